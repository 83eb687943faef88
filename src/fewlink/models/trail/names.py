"""Names as relations of the graph: `same` and `contain`; and the vectors of names, for cosines at the score.

`same` joins entities whose normalised names are equal; `contain` leads from a name to the longest of its sub-sequences
of words that are a whole name. Both are learnt, hidden and explained like any other relation.
"""

from __future__ import annotations

import functools
import hashlib
import io
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from safetensors.numpy import load
from torch import Tensor
from torch.nn.functional import normalize

from fewlink.graph import Graph
from fewlink.graph.name_index import lines_of, readable
from fewlink.models.trail.built_in import built_in_file
from fewlink.propagation.product import widened

NAME_RELATIONS = ("has the same name as", "contains the name of")  # `same` and `contain`, in explanations
FLAGS = len(NAME_RELATIONS)
LARGEST_GROUP = 40  # entities with one name; larger groups are not joined
MAX_CONTAINING = 60  # names that contain one; a name within more of them says little
MAX_WORDS = 16  # of a name in which others are looked for
MAX_ALIKE = 5  # entities of each of two names that `contain` joins
MOST_NAMES = 1_000_000  # of more entities, names are not read
SAMPLE = 2_000  # names that are looked at to see whether they say something
DISTINCT = 0.3  # share of names whose words are their own from which they say something
KIND = 0.5  # share of names with a colon from which what stands before it is taken for a kind
WORDS_FILE = "words.npz"
ATTACK_FILE = (
    "attack.names.safetensors"  # what is read of the names of the built-in ATT&CK, by benchmarks/ship_graphs.py
)
ATTACK_NAMES = "1510622a8dd053eb908651bf0cf125d9faf2de386645b3edabf55cf75919972c"  # their digest
MAX_PIECES = 16  # pieces of words that count in the vector of a name
USUAL = 1e-3  # share of all pieces from which a piece counts for half
COSINES = 9  # numbers that `name_cosines` returns

_OTHER = re.compile(r"(?:\W|_)+")
_WORD = re.compile(r"[^\W\d_]{3,}\d{0,3}")
_NUMBERED = re.compile(r"(?<=[a-z])\d{3}$")  # NELL's entities of one name: water, water001


class ReadNames(NamedTuple):
    """What TRAIL reads of names: pairs (n, 2) of `same` and of `contain`, and the vectors (entities, 96) float16."""

    same: np.ndarray
    contain: np.ndarray
    vectors: np.ndarray


def read_names(graph: Graph) -> ReadNames | None:
    """What the names of a graph's entities say, made once; None if they say nothing or are too many."""
    return graph.once(_read_names)


def _read_names(graph: Graph) -> ReadNames | None:
    if len(graph.entities) > MOST_NAMES:
        return None
    if digest_of_names(graph) == ATTACK_NAMES:
        return ReadNames(**load(built_in_file(ATTACK_FILE)))
    return made_of_names(graph)


def digest_of_names(graph: Graph) -> str:
    """The sha256 of all that `read_names` depends on: the ids and readable names of the entities."""
    count = len(graph.entities)
    texts = [lines_of(names, 0, count) for names in (graph.entities, graph.labels) if names is not None]
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def made_of_names(graph: Graph) -> ReadNames | None:
    """What `read_names` gives, made from the names themselves."""
    names = entity_names(graph)
    if names is None:
        return None
    groups = names.groups()
    return ReadNames(same_pairs(groups), contain_pairs(groups), vectors_of(names))


def with_name_relations(graph: Graph) -> Graph:
    """The graph with `same` and `contain` as its last two relations, made once; itself if its names say nothing."""
    return graph.once(_with_name_relations)


def _with_name_relations(graph: Graph) -> Graph:
    names = read_names(graph)
    if names is None:
        return graph
    first = len(graph.relations)
    triples = [np.insert(each, 1, first + place, axis=1) for place, each in enumerate((names.same, names.contain))]
    return graph.with_relations(NAME_RELATIONS, np.concatenate(triples).astype(np.int32))


class EntityNames(NamedTuple):
    """The words of each entity's name, lower-case and without accents; of a name without words none."""

    words: Sequence[Sequence[str]]

    def groups(self) -> dict[str, list[int]]:
        """The entities of each normalised name."""
        groups = defaultdict(list)
        for entity, words in enumerate(self.words):
            if words:
                groups[" ".join(words)].append(entity)
        return dict(groups)


def entity_names(graph: Graph) -> EntityNames | None:
    """The names of a graph's entities; None if they say nothing, such as Q42 or /m/0abc.

    If most names have a colon, as in "concept:athlete:tiger_woods", what stands before the last one is left out.
    """
    count = len(graph.entities)
    names = readable(lines_of(graph.labels or graph.entities, 0, count)).split("\n")
    sample = range(0, count, max(1, count // SAMPLE))
    with_kind = sum(":" in names[entity] for entity in sample) >= KIND * len(sample)
    numbered = sum(graph.entities[entity].startswith("concept:") for entity in sample) >= KIND * len(sample)

    def name(entity: int) -> str:
        text = names[entity]
        text = text.rpartition(":")[2] if with_kind else text
        return _NUMBERED.sub("", text) if numbered else text

    distinct = {_readable_words(name(entity)) for entity in sample} - {""}
    if len(distinct) < max(2.0, DISTINCT * len(sample)):
        return None
    return EntityNames([normalised(name(entity)).split() for entity in range(count)])


def normalised(name: str) -> str:
    """Lower-case words without accents, one space between them."""
    text = name.lower()
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    return _OTHER.sub(" ", text).strip()


def _readable_words(name: str) -> str:
    """The words in a name, without numbers and codes: tokens of three letters or more, or not of the Latin script."""
    text = name.rpartition("/")[2] if name.startswith(("http://", "https://", "/")) else name
    return " ".join(token for token in normalised(text).split() if not token.isascii() or _WORD.fullmatch(token))


def same_pairs(groups: Mapping[str, Sequence[int]]) -> np.ndarray:
    """Pairs (n, 2) of entities with the same name, the lower id first."""
    pairs = [
        (first, second)
        for group in groups.values()
        if 2 <= len(group) <= LARGEST_GROUP
        for place, first in enumerate(group)
        for second in group[place + 1 :]
    ]
    return _sorted_pairs(pairs)


def contain_pairs(groups: Mapping[str, Sequence[int]]) -> np.ndarray:
    """Pairs (n, 2) of an entity and one whose name is within its own, and within no longer name that is."""
    found: set[tuple[str, str]] = set()
    containing: Counter[str] = Counter()
    for name in groups:
        for inner in _inner_names(name.split(), groups):
            found.add((name, inner))
            containing[inner] += 1
    pairs = [
        (whole, part)
        for name, inner in found
        if containing[inner] <= MAX_CONTAINING
        for whole in groups[name][:MAX_ALIKE]
        for part in groups[inner][:MAX_ALIKE]
    ]
    return _sorted_pairs(pairs)


def _inner_names(words: Sequence[str], groups: Mapping[str, Sequence[int]]) -> list[str]:
    """The longest proper sub-sequences of words that are a name, at each place where they stand."""
    if not 2 <= len(words) <= MAX_WORDS:
        return []
    taken: list[tuple[int, int]] = []
    found = []
    for length in range(len(words) - 1, 0, -1):
        for begin in range(len(words) - length + 1):
            end = begin + length
            if any(first <= begin and end <= last for first, last in taken):
                continue
            inner = " ".join(words[begin:end])
            if inner in groups and not inner.isdigit() and any(len(word) >= 3 for word in words[begin:end]):
                taken.append((begin, end))
                found.append(inner)
    return found


def _sorted_pairs(pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.array(sorted(pairs), np.int32).reshape(-1, 2)


class WordVectors(NamedTuple):
    """Vectors (pieces, 96) of pieces of words, of length 1, and the place of each piece; later pieces begin with ##."""

    vectors: np.ndarray
    places: Mapping[str, int]

    def pieces(self, word: str) -> list[int]:
        """The longest known pieces of a word from left to right; none if one is unknown."""
        found: list[int] = []
        begin = 0
        while begin < len(word):
            prefix = "##" if begin else ""
            for end in range(len(word), begin, -1):
                if (place := self.places.get(prefix + word[begin:end])) is not None:
                    found.append(place)
                    begin = end
                    break
            else:
                return []
        return found


@functools.cache
def word_vectors() -> WordVectors:
    """The vectors that come with fewlink; `benchmarks/word_vectors.py` makes them."""
    with np.load(io.BytesIO(built_in_file(WORDS_FILE))) as content:
        vectors = content["vectors"].astype(np.float32)
        words = bytes(content["words"]).decode("utf-8").split("\n")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-6
    return WordVectors(vectors, {word: place for place, word in enumerate(words)})


def name_vectors(graph: Graph) -> np.ndarray | None:
    """Vectors (entities, 96) float16 of the names, of length 1, or 0 without a name; None if names say nothing."""
    names = read_names(graph)
    return None if names is None else names.vectors


def vectors_of(names: EntityNames) -> np.ndarray:
    """The vectors of `name_vectors`.

    A name's vector is the mean of its pieces' vectors, rare pieces first in weight, less the mean over all names.
    """
    known = word_vectors()
    pieces_of = functools.cache(known.pieces)
    pieces = [[piece for word in words for piece in pieces_of(word)][:MAX_PIECES] for words in names.words]
    lengths = np.array([len(own) for own in pieces])
    flat = torch.tensor([piece for own in pieces for piece in own], dtype=torch.long)
    shares = torch.bincount(flat, minlength=len(known.vectors)) / max(1, len(flat))
    weights = USUAL / (USUAL + shares[flat])
    offsets = torch.from_numpy(np.append(0, np.cumsum(lengths))[:-1])
    sums = torch.nn.functional.embedding_bag(
        flat, torch.from_numpy(known.vectors), offsets, mode="sum", per_sample_weights=weights.float()
    ).numpy()
    has_name = lengths > 0
    if has_name.any():
        sums[has_name] -= sums[has_name].mean(0)
    lengths_of_sums = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.asarray(sums / (lengths_of_sums + 1e-6), np.float16)


@torch.no_grad()
def name_cosines(references: Tensor, used: Tensor, heads: Tensor, candidates: Tensor) -> Tensor:
    """What the vectors of names say of each head and candidate: (L, Q, C, COSINES).

    The cosine of candidate and head; the largest cosine of the candidate and a reference's tail, at least 0, and their
    mean; its mean cosine with the references' heads; the mean product of (candidate, tail) and (head, head) cosines,
    each at least 0; the cosine of the candidate and the head moved by the mean step from a reference's head to its
    tail; the largest cosine of the head and a reference's head, at least 0; whether the candidate, and whether the
    head, has a vector.

    Shapes: vectors of `references` (L, S, 2, D), of which `used` (L, S) are 1 and padding is 0; of `heads` (L, Q, D);
    of `candidates` (L, C, D).
    """
    at_heads, at_tails = (widened(references) * used[..., None, None]).unbind(2)  # (L, S, D)
    heads = widened(heads)
    candidates = widened(candidates)
    total = used.sum(1)[:, None, None]  # (L, 1, 1)
    to_tails, to_heads = (candidates @ ends.transpose(1, 2) for ends in (at_tails, at_heads))  # (L, C, S)
    head_to_heads = heads @ at_heads.transpose(1, 2)  # (L, Q, S)
    moved = normalize(heads + (at_tails - at_heads).sum(1, keepdim=True) / total, dim=-1)
    across = (len(heads), heads.shape[1], candidates.shape[1])
    of_candidate = [
        to_tails.amax(-1).clamp(min=0),
        to_tails.sum(-1) / total[..., 0],
        to_heads.sum(-1) / total[..., 0],
        (candidates.square().sum(-1) > 0.5).to(heads.dtype),
    ]
    of_head = [head_to_heads.amax(-1).clamp(min=0), (heads.square().sum(-1) > 0.5).to(heads.dtype)]
    largest, mean, mean_of_heads, has_vector = (column[:, None].expand(across) for column in of_candidate)
    nearest, head_has_vector = (column[..., None].expand(across) for column in of_head)
    columns = [
        heads @ candidates.transpose(1, 2),
        largest,
        mean,
        mean_of_heads,
        head_to_heads.clamp(min=0) @ to_tails.clamp(min=0).transpose(1, 2) / total,
        moved @ candidates.transpose(1, 2),
        nearest,
        has_vector,
        head_has_vector,
    ]
    return torch.stack(columns, -1)
