"""The likeness of two entity names: the cosine of TF-IDF vectors of their character n-grams, or of a text model's.

Operations, for E names of about L characters: making the index hashes 2·L n-grams of each name and sorts them by name
and by n-gram, O(E·L·log(E·L)), once for each graph. A question adds up one list of names for each n-gram of one name:
the names that share an n-gram with it, each as often as they share one. Stored is the list of names of each n-gram
(4 bytes for each n-gram of a name) and the length of each name's vector; no vector of a name is stored, since a name is
hashed again when it is asked about. In a graph of over 200,000 names, only those are indexed that are asked about:
those of candidates and of entities like the references' tails.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fewlink.core.errors import InputError, MissingExtra
from fewlink.core.seeds import generator
from fewlink.graph import Graph
from fewlink.graph.groups import offsets_of, spans
from fewlink.graph.side_files import check_describes, read_pairs_table

SIZES = (3, 4)  # characters of an n-gram
BITS = 20  # n-grams are hashed into 2^20 buckets
MAX_GRAMS = 48  # n-grams of a name that count, the rarest first
MAX_ENTRIES = 1 << 26  # n-grams of all names (256 MB); in larger graphs fewer n-grams of each name count
CHUNK = 200_000  # names that are hashed together
LARGE = 200_000  # names above which a name is indexed when a question first needs it
SAMPLED_NAMES = 200_000  # names of such a graph from which the rarity of n-grams is estimated
SAMPLE = 2_000  # names that are read to decide whether names are evidence
DISTINCT = 0.3  # share of names with words of their own from which names are evidence
KIND = 0.5  # share of names with a colon from which the text before it is taken for a kind
AT_ONCE = 4_096  # texts that are encoded together
SAMPLED = 1_000  # random pairs of texts, whose cosines show what unrelated texts have
USUAL = 0.95  # quantile of their cosines that counts as a likeness of 0
SENTENCE_TRANSFORMERS = ("modules.json", "config_sentence_transformers.json")  # files that its models have

_MULTIPLIER, _ODD = np.uint64(1_000_003), np.uint64(0x9E3779B97F4A7C15)
_NEWLINE, _SPACE = 10, 32
_OTHER = re.compile(r"(?:[^\w\n]|_)+")
_WORD = re.compile(r"[^\W\d_]{3,}\d{0,3}")


class NameVector(NamedTuple):
    """The n-grams of a name as `buckets` (n,) with their `weights` (n,), and the `length` of that vector."""

    buckets: np.ndarray
    weights: np.ndarray
    length: float


class GramIndex:
    """The names of all entities by their n-grams.

    Shapes: `members[offsets[b] : offsets[b + 1]]` are the entities with n-gram b; `rarity` (buckets,) is the weight of
    each n-gram, ln((1 + E) / (1 + names that have it)); `lengths` (E,) are those of the names' vectors.

    Of more than `LARGE` names, rarity is estimated from some of them, and a name is indexed when it is asked about:
    `cover` them first. `covered` (E,) says which are. Several threads may ask and cover at the same time.
    """

    def __init__(self, count: int, name: Callable[[int], str], most: int = MAX_GRAMS) -> None:
        self.count, self.name = count, name
        self.most = max(1, min(most, MAX_ENTRIES // max(count, 1)))
        self.lengths, self.covered = np.zeros(count, np.float32), np.zeros(count, bool)
        self._lists = np.zeros((1 << BITS) + 1, np.int64), np.zeros(0, np.int32)  # replaced together
        self._lock = threading.Lock()  # held while names are indexed
        every = np.arange(count)
        if count <= LARGE:
            hashed = [(chunk, self._grams(chunk)) for chunk in _chunks(every)]
            self._weigh((grams for _, grams in hashed), count)
            self._add(hashed)
        else:
            some = every[:: max(1, count // SAMPLED_NAMES)]
            self._weigh(map(self._grams, _chunks(some)), len(some))

    def _weigh(self, hashed: Iterable[np.ndarray], sampled: int) -> None:
        """Set the rarity of each n-gram by the n-grams of the `sampled` number of names."""
        names_with = np.zeros(1 << BITS)
        for grams in hashed:
            names_with += np.bincount(grams & _MASK, minlength=1 << BITS)
        names_with *= self.count / max(sampled, 1)
        self.rarity = np.log((1 + self.count) / (1 + names_with)).astype(np.float32)
        self._order = np.unique(-self.rarity, return_inverse=True)[1]  # 0: the rarest

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @property
    def offsets(self) -> np.ndarray:
        """Where the entities of each n-gram begin among `members`: (buckets + 1,)."""
        return self._lists[0]

    @property
    def members(self) -> np.ndarray:
        """The entities of each n-gram, one n-gram after the other."""
        return self._lists[1]

    @property
    def number(self) -> int:
        """How many names are indexed."""
        return int(self.covered.sum())

    def cover(self, entities: np.ndarray) -> None:
        """Index the names of entities (n,) that are not indexed yet."""
        if self.covered[entities].all():
            return
        with self._lock:
            new = np.unique(entities[~self.covered[entities]])
            if len(new):
                self._add((chunk, self._grams(chunk)) for chunk in _chunks(new))

    def _add(self, hashed: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Add entities (n,) and their n-grams to the index."""
        added, parts = [], []
        for entities, grams in hashed:
            added.append(entities)
            parts.append(self._by_bucket(self._rarest(grams), entities))
        if len(self.members):
            own = np.repeat(np.arange(1 << BITS, dtype=np.int64), np.diff(self.offsets))
            parts.insert(0, (own << 32) | self.members)
        counts = sum((np.bincount(part >> 32, minlength=1 << BITS) for part in parts), np.zeros(1 << BITS, np.int64))
        offsets = np.append(0, np.cumsum(counts))
        members, free = np.empty(int(offsets[-1]), np.int32), offsets[:-1].copy()
        for place, part in enumerate(parts):
            buckets = (part >> 32).astype(np.int32)
            inside = offsets_of(buckets, 1 << BITS)
            members[np.arange(len(part)) - inside[buckets] + free[buckets]] = part & 0xFFFFFFFF
            free += np.diff(inside)
            parts[place] = part[:0]  # frees its memory
        self._lists = offsets, members
        for entities in added:
            self.covered[entities] = True

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in (self.offsets, self.members, self.rarity, self.lengths))

    def vector(self, name: str) -> NameVector:
        """The vector of any name."""
        buckets = self._rarest(distinct(gram_keys([name]))) & _MASK
        weights = self.rarity[buckets]
        return NameVector(buckets, weights, float(np.sqrt((weights.astype(np.float64) ** 2).sum())))

    def products(self, vector: NameVector) -> np.ndarray:
        """The product of a name's vector with that of each entity's name: (E,)."""
        offsets, members = self._lists
        at, owners = spans(offsets[vector.buckets], offsets[vector.buckets + 1])
        squares = vector.weights.astype(np.float64) ** 2
        return np.bincount(members[at], squares[owners], self.count)

    def likeness(self, vector: NameVector) -> np.ndarray:
        """The cosine of a name's vector with each entity's: (E,), from 0 to 1, rounded so that equal names tie."""
        both = self.lengths * vector.length
        return np.asarray(np.divide(self.products(vector), both, out=np.zeros(self.count), where=both > 0).round(5))

    def _grams(self, entities: np.ndarray) -> np.ndarray:
        return distinct(gram_keys([self.name(entity) for entity in entities.tolist()]))

    def _rarest(self, grams: np.ndarray) -> np.ndarray:
        """The `most` rarest n-grams of each name, of sorted keys (n,); of equally rare ones the first buckets."""
        owners = grams >> BITS
        counts = np.bincount(owners) if len(owners) else np.zeros(0, np.int64)
        if counts.max(initial=0) <= self.most:
            return grams
        ordered = np.sort((owners << 2 * BITS) | (self._order[grams & _MASK] << BITS) | (grams & _MASK))
        begins = np.cumsum(counts) - counts
        kept = ordered[np.arange(len(grams)) - begins[owners] < self.most]
        return np.sort((kept >> 2 * BITS << BITS) | (kept & _MASK))

    def _by_bucket(self, grams: np.ndarray, entities: np.ndarray) -> np.ndarray:
        """Bucket and entity of each n-gram as one number, sorted; the lengths of the vectors are stored."""
        owners, buckets = grams >> BITS, grams & _MASK
        squares = self.rarity[buckets].astype(np.float64) ** 2
        self.lengths[entities] = np.sqrt(np.bincount(owners, squares, len(entities)))
        return np.sort((buckets << 32) | entities[owners])


def _chunks(entities: np.ndarray) -> Iterator[np.ndarray]:
    """Entities (n,), some at a time."""
    return (entities[begin : begin + CHUNK] for begin in range(0, len(entities), CHUNK))


_MASK = (1 << BITS) - 1


def gram_keys(names: Sequence[str]) -> np.ndarray:
    """All n-grams of names as numbers (n,): the place of the name, shifted by `BITS`, and the bucket.

    An n-gram lies within one word with the spaces around it.
    """
    lines = folded("\n".join(name.replace("\n", " ") for name in names)).replace("\n", " \n ")
    codes = np.frombuffer(f" {lines} ".encode("utf-32-le"), np.uint32)
    newline = codes == _NEWLINE
    between, owners, keys = newline | (codes == _SPACE), np.cumsum(newline), []
    for size in SIZES:
        count = max(0, len(codes) - size + 1)
        outside = newline[:count] | newline[size - 1 : size - 1 + count]
        for place in range(1, size - 1):
            outside |= between[place : place + count]
        at = np.flatnonzero(~outside)
        hashed = np.full(len(at), size, np.uint64)
        for place in range(size):
            hashed = hashed * _MULTIPLIER + codes[at + place]
        buckets = ((hashed * _ODD) >> np.uint64(64 - BITS)).astype(np.int64)
        keys.append((owners[at] << BITS) | buckets)
    return np.concatenate(keys)


def distinct(keys: np.ndarray) -> np.ndarray:
    """Keys sorted, each once; several times as quick as `np.unique`."""
    keys = np.sort(keys)
    return np.asarray(keys[np.append(True, keys[1:] != keys[:-1])]) if len(keys) else keys


def folded(text: str) -> str:
    """Lower-case words without accents, one space between them; lines stay lines."""
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    text = _OTHER.sub(" ", text.lower())
    return re.sub(r" ?\n ?", "\n", text).strip(" ")


@dataclass(frozen=True)
class EntityNames:
    """The name of each entity; `without_kind`: the text before the last colon is left out."""

    graph: Graph
    without_kind: bool

    def __call__(self, entity: int) -> str:
        text = self.graph.name(entity)
        return text.rpartition(":")[2] if self.without_kind else text


def names_of(graph: Graph) -> EntityNames | None:
    """A function from an entity to its name; None if names are no evidence, such as Q42 or /m/0abc.

    If most names have a colon, as in "concept:athlete:tiger_woods", what stands before the last one is left out.
    """
    count = len(graph.entities)
    sample = range(0, count, max(1, count // SAMPLE))
    kinds = sum(":" in graph.name(entity) for entity in sample)
    names = EntityNames(graph, without_kind=kinds >= KIND * len(sample))
    distinct = {words for entity in sample if (words := words_of(names(entity)))}
    return names if len(distinct) >= max(2.0, DISTINCT * len(sample)) else None


def words_of(name: str) -> str:
    """The words in a name, without numbers and codes: tokens of three letters or more, or not of the Latin script."""
    text = name.rpartition("/")[2] if name.startswith(("http://", "https://", "/")) else name
    tokens = folded(text).split()
    return " ".join(token for token in tokens if not token.isascii() or _WORD.fullmatch(token))


def gram_index(graph: Graph) -> GramIndex | None:
    """The index of a graph's names, made once; None if they are no evidence."""
    return graph.once(_gram_index)


def _gram_index(graph: Graph) -> GramIndex | None:
    name = names_of(graph)
    return None if name is None else GramIndex(len(graph.entities), name)


class TextModel(Protocol):
    """The interface that models of sentence-transformers and model2vec share."""

    def encode(self, sentences: Sequence[str]) -> Any:
        """Vectors (n, d)."""
        ...


class TextVectors:
    """Unit vectors (E, d) of the texts of all entities.

    Cosines of such vectors are high for any two texts: one as high as for two texts drawn at random counts as 0.
    """

    def __init__(self, vectors: np.ndarray) -> None:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        self.vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
        pairs = generator(0, "text").integers(len(vectors), size=(SAMPLED, 2))
        cosines = (self.vectors[pairs[:, 0]] * self.vectors[pairs[:, 1]]).sum(1)[pairs[:, 0] != pairs[:, 1]]
        self.usual = float(np.clip(np.quantile(cosines, USUAL), 0.0, 0.99)) if len(cosines) else 0.0

    @classmethod
    def of(cls, model: TextModel, count: int, text: Callable[[int], str]) -> TextVectors:
        """The vectors that a model gives to the texts of `count` entities."""
        parts = []
        for begin in range(0, count, AT_ONCE):
            texts = [text(entity) for entity in range(begin, min(begin + AT_ONCE, count))]
            parts.append(np.asarray(model.encode(texts), np.float32))
        return cls(np.concatenate(parts))

    def likeness(self, entity: int) -> np.ndarray:
        """The likeness of one entity's text to every text: (E,), from 0 to 1."""
        cosines = self.vectors @ self.vectors[entity]
        return np.asarray(np.clip((cosines - self.usual) / (1 - self.usual), 0.0, 1.0))


def read_descriptions(path: Path, graph: Graph) -> dict[int, str]:
    """Descriptions of entities: an id, a tab and a text per line; entities that the graph lacks are left out."""
    check_describes(path, graph.entities, graph.relations, "an id, a tab and a description")
    rows = ((graph.entities.find(row[0]), " ".join(row[1:]).strip()) for row in read_pairs_table(path))
    return {entity: text for entity, text in rows if entity is not None}


def open_text_model(folder: str | Path) -> TextModel:
    """A sentence-transformers or model2vec model in a folder; nothing is downloaded."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(path, "is not a folder: give the folder of a sentence-transformers or model2vec model")
    kind = "sentence-transformers" if any((path / name).exists() for name in SENTENCE_TRANSFORMERS) else "model2vec"
    model: TextModel
    try:
        if kind == "model2vec":
            from model2vec import StaticModel

            model = StaticModel.from_pretrained(str(path))
        else:
            from sentence_transformers import SentenceTransformer

            model = SentenceTransformer(str(path), local_files_only=True)
    except ImportError:
        raise MissingExtra(f"{path}, a {kind} model,", "text") from None
    except Exception as error:  # of many kinds: files that are missing or damaged
        message = " ".join(str(error).split())[:200]
        raise InputError(path, f"cannot be opened as a {kind} model ({type(error).__name__}: {message})") from None
    return model
