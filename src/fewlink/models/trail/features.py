"""What TRAIL counts: of a graph and its relations, of references, and of the walks that join them."""

from __future__ import annotations

import copy
import functools
import hashlib
import math
import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from fewlink.core.seeds import hashes_of
from fewlink.graph import Graph
from fewlink.graph.groups import offsets_of, spans
from fewlink.models.trail.names import FLAGS, name_vectors, with_name_relations
from fewlink.propagation.edges import EdgeTable, GraphPart
from fewlink.propagation.product import (
    ExtraEdges,
    Norms,
    edge_constants,
    relation_sums,
    relational_product,
    transposed_product,
    widened,
)

PAIRS_AT_ONCE = 1 << 24


class ReadGraph:
    """A graph as TRAIL reads it.

    `graph` has two relations more than the user's if names are read, see `fewlink.models.trail.names`; R counts them.

    Shapes: `sizes` (2R, 5) of each relation; `together` (2R, 2R), the share of the entities with one relation that
    have the other, rows adding up to 1; `flags` (2R, 2), 1 for `same` and for `contain`, and their inverses; `vectors`
    (entities, D) of the names, or None, and `given_vectors`, the sha256 of those that took the place of the built-in
    ones; `visible` (2R,), 0 for relations that are not read. `edges` are sorted when they are first used.
    """

    def __init__(
        self,
        graph: Graph,
        sizes: Tensor,
        together: Tensor,
        flags: Tensor,
        vectors: Tensor | None,
    ) -> None:
        self.graph = graph
        self.sizes = sizes
        self.together = together
        self.flags = flags
        self.vectors = vectors
        self.visible = np.ones(len(sizes))
        self.given_vectors = ""

    @classmethod
    def of(cls, graph: Graph, *, names: bool = True) -> ReadGraph:
        """The whole of a graph, on the CPU; with `names` also the relations between names, if they say something."""
        given = len(graph.relations)
        vectors = name_vectors(graph) if names else None
        graph = with_name_relations(graph) if names else graph
        flags = torch.zeros(2, len(graph.relations), FLAGS)
        if len(graph.relations) > given:
            flags[:, given:] = torch.eye(FLAGS)
        sizes = graph.once(_sizes)
        together = graph.once(_together)
        return cls(graph, sizes, together, flags.flatten(0, 1), None if vectors is None else torch.from_numpy(vectors))

    def without(self, relation: str) -> ReadGraph:
        """The graph, in which the triples of a relation are not read; all ids stay the same."""
        number = self.graph.relations.find(relation)
        return self if number is None else self._hiding([number])

    def without_names(self) -> ReadGraph:
        """The graph, in which neither relations nor vectors of names are read; all ids stay the same."""
        if not self.reads_names:
            return self
        other = self.with_vectors(None)
        if self.has_name_relations:
            count = len(self.graph.relations)
            other = other._hiding(range(count - FLAGS, count))
            other.flags = torch.zeros_like(self.flags)
        return other

    def _hiding(self, relations: Iterable[int]) -> ReadGraph:
        """The same graph, in which some relations and their inverses are not read."""
        if self.device.type != "cpu":
            _ = self.edges  # sorted once for all copies; of a large graph a CPU reads parts
        other = copy.copy(self)
        other.visible = self.visible.copy()
        other.visible.reshape(2, -1)[:, list(relations)] = 0
        return other

    def with_vectors(self, vectors: np.ndarray | None) -> ReadGraph:
        """The same graph with other vectors of names (entities, D), or without any."""
        other = copy.copy(self)
        other.vectors = None
        other.given_vectors = ""
        if vectors is not None:
            other.vectors = torch.from_numpy(vectors).to(self.device)
            other.given_vectors = hashlib.sha256(np.ascontiguousarray(vectors).data).hexdigest()
        return other

    @property
    def shown(self) -> np.ndarray | None:
        """Whether each relation is read (2R,); None if all are."""
        return None if self.visible.all() else self.visible > 0

    def degrees_of(self, entities: np.ndarray, visible: np.ndarray) -> np.ndarray:
        """The number of edges of these entities (n,) with `visible` relations (2R,), without those between names."""
        counted = visible > 0
        if self.has_name_relations:
            counted.reshape(2, -1)[:, -FLAGS:] = False
        return self.graph.degrees_of(entities, counted)

    @property
    def has_name_relations(self) -> bool:
        """Whether the last two relations are those between names."""
        return bool(self.flags.any())

    @property
    def reads_names(self) -> bool:
        """Whether names are evidence, as relations or by their vectors."""
        return self.has_name_relations or self.vectors is not None

    @functools.cached_property
    def edges(self) -> EdgeTable:
        return EdgeTable.of(self.graph).to(self.device)

    def part(self, part: GraphPart) -> ReadGraph:
        """The same graph with some of its entities and edges only; its counts are those of the whole graph."""
        other = copy.copy(self)
        other.vectors = None if self.vectors is None else self.vectors[torch.from_numpy(part.nodes)]
        other.edges = part.edges
        return other

    @property
    def device(self) -> torch.device:
        return self.sizes.device

    @property
    def relations(self) -> int:
        """The number of relations, inverse ones included."""
        return len(self.sizes)

    def to(self, device: str | torch.device) -> ReadGraph:
        other = copy.copy(self)
        for name in ("sizes", "together", "flags", "vectors", "edges"):
            value = self.__dict__.get(name)
            if value is not None:
                setattr(other, name, value.to(device))
        return other

    @property
    def inverse(self) -> Tensor:
        """The inverse of each relation."""
        return torch.arange(self.relations, device=self.device).roll(self.relations // 2)


def _sizes(graph: Graph) -> Tensor:
    """The counts of triples, heads and tails of each relation, and its mean fan-out and fan-in, on log scales."""
    count = graph.relation_sizes
    heads = np.diff(graph.slots.offsets)
    ends = heads, np.roll(heads, len(graph.relations))
    fans = [np.log1p(count / np.maximum(each, 1)) / 4 for each in ends]
    return torch.from_numpy(np.stack([*(np.log1p(each) / 10 for each in (count, *ends)), *fans], -1).astype(np.float32))


def _together(graph: Graph) -> Tensor:
    """How often an entity with one relation has another: (2R, 2R), rows adding up to 1."""
    if graph.counted is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the array is not writable, and is not written to
            return torch.from_numpy(graph.counted.together)
    firsts = graph.slot_starts
    count = 2 * len(graph.relations)
    relations = graph.relation_ids[firsts].astype(np.int64)
    owners = graph.head_ids[firsts]
    offsets = offsets_of(owners, len(graph.entities))
    both = np.zeros(count * count)
    step = max(1, PAIRS_AT_ONCE // max(1, int(np.diff(offsets).max(initial=1))))
    for at in range(0, len(relations), step):
        part = slice(at, at + step)
        others, which = spans(offsets[owners[part]], offsets[owners[part] + 1])
        both += np.bincount(relations[part][which] * count + relations[others], minlength=count * count)
    matrix = both.reshape(count, count)
    return torch.from_numpy((matrix / np.maximum(matrix.sum(1, keepdims=True), 1)).astype(np.float32))


SAMPLE = 32  # references whose walks and names are read; of more a fixed sample
FACTS = 9  # numbers that `_facts` returns


class TaskReferences(NamedTuple):
    """The references of L tasks on one graph with 2R relations, padded to P pairs with E ends and a sample of S.

    ends      (L, E)      the distinct entities, as nodes of the edges that are read
    marks     (L, 2, E)   1 where an end is the head, the tail of a reference
    pairs     (L, P, 2)   each reference as places in `ends`
    fans      (L, P, 2)   one over the references with the same head, with the same tail
    used      (L, P)      1, or 0 for padding
    sample    (L, S)      places in `pairs`
    sampled   (L, S)      1, or 0 for padding
    around    (L, 2, 2R)  the share of references whose head, whose tail has each relation
    cover     (L, 2, 2R)  the share of the entities with each relation that are heads, tails of references
    turned    (L, 2, 2)   the share of references whose head is the head of another, is a tail; whose tail is a head,
                          is the tail of another
    sizes     (L, 2, 5)   of the new relation and its inverse, as `ReadGraph.sizes`
    facts     (L, FACTS)  log(K) / 2; distinct heads, distinct tails / K; mean log(1 + visible edges) / 8 of heads, of
                          tails; the shares of the most frequent head and tail, of references whose inverse is one, and
                          of heads that are tails
    visible   (L, 2R)     1, or 0 for relations that the task must not see
    named     (L,)        1, or 0 if the task must not see names
    """

    ends: Tensor
    marks: Tensor
    pairs: Tensor
    fans: Tensor
    used: Tensor
    sample: Tensor
    sampled: Tensor
    around: Tensor
    cover: Tensor
    turned: Tensor
    sizes: Tensor
    facts: Tensor
    visible: Tensor
    named: Tensor

    def to(self, device: torch.device) -> TaskReferences:
        return TaskReferences(*(each.to(device, non_blocking=True) for each in self))

    @property
    def entities(self) -> Tensor:
        """The heads and tails (L, P, 2), as nodes."""
        return self.ends.gather(1, self.pairs.flatten(1)).view_as(self.pairs)

    @property
    def sampled_entities(self) -> Tensor:
        """The heads and tails of the sample (L, S, 2), as nodes."""
        picked = self.pairs.gather(1, self.sample[..., None].expand(-1, -1, 2))
        return self.ends.gather(1, picked.flatten(1)).view_as(picked)

    def edges(self) -> ExtraEdges:
        """The references as edges of the new relation, then of its inverse: 2 · L · P of them."""
        count, ends = self.ends.shape
        task = torch.arange(count, device=self.ends.device)[:, None]
        at = self.pairs + (task * ends)[..., None]
        heads, tails = (each.flatten() for each in at.unbind(-1))
        rows = (self.ends * count + task).flatten()
        return ExtraEdges(rows, torch.cat([heads, tails]), torch.cat([tails, heads]))

    def constants(self, width: int, norms: Norms) -> Tensor:
        """The constants of these edges (2, L, P, width), 0 for padding."""
        out, into = self.fans.unbind(-1)
        both = [edge_constants(out, into, width, norms), edge_constants(into, out, width, norms)]
        return torch.stack(both) * self.used[..., None]


def read_references(
    graph: ReadGraph,
    pairs: np.ndarray,
    *,
    visible: np.ndarray | None = None,
    named: bool = True,
    size: int | None = None,
    sample: int = SAMPLE,
    rng: np.random.Generator | None = None,
) -> TaskReferences:
    """One task with distinct references (K, 2), on the CPU; `visible` (2R,): by default what the graph shows.

    Of more than `sample` references, an `rng` draws the sample; by default it is those with the lowest hashes, whatever
    their order, so that one more reference changes at most one of the sample. With a `size`, pairs are padded to it,
    ends to twice as many, and the sample to `sample`.
    """
    count = len(pairs)
    ends, places = np.unique(pairs, return_inverse=True)
    places = places.reshape(-1, 2)
    heads, tails = places.T
    out, into = (np.bincount(column, minlength=len(ends)) for column in (heads, tails))
    seen = graph.visible if visible is None else visible
    around, cover = _around(graph, ends, out, into)
    degrees = graph.degrees_of(ends, seen)
    chosen = np.arange(count)
    if count > sample and rng is None:
        chosen = np.sort(np.argpartition(hashes_of(pairs), sample)[:sample])
    elif count > sample and rng is not None:
        chosen = rng.choice(count, sample, replace=False)
    numbers = {
        "marks": np.stack([out > 0, into > 0]),
        "fans": np.stack([1 / out[heads], 1 / into[tails]], 1),
        "used": np.ones(count),
        "sampled": np.ones(len(chosen)),
        "around": around * seen,
        "cover": cover * seen,
        "turned": _turned(heads, tails, out, into),
        "sizes": _sizes_of_new(count, int((out > 0).sum()), int((into > 0).sum())),
        "facts": _facts(np.log1p(degrees) / 8, heads, tails),
        "visible": seen,
        "named": np.array(named),
    }
    ids = {"ends": ends, "pairs": places, "sample": chosen}
    tensors = {name: torch.from_numpy(array.astype(np.float32)) for name, array in numbers.items()}
    tensors |= {name: torch.from_numpy(array.astype(np.int64)) for name, array in ids.items()}
    read = TaskReferences(**{name: tensor[None] for name, tensor in tensors.items()})
    return read if size is None else padded(read, size, sample, graph.edges.nodes)


def padded(references: TaskReferences, size: int, sample: int, nodes: int) -> TaskReferences:
    """One task with `size` pairs, twice as many ends, and a sample of `sample`."""
    more_pairs = size - references.pairs.shape[1]
    more_ends = 2 * size - references.ends.shape[1]
    more_samples = sample - references.sample.shape[1]
    # padding is spread over many rows, since additions to one row wait for each other on a GPU
    spread = torch.arange(more_ends)[None] * 7919 % nodes
    places = (torch.arange(more_pairs) % (2 * size))[None, :, None].expand(-1, -1, 2)
    return references._replace(
        ends=torch.cat([references.ends, spread], 1),
        marks=pad(references.marks, (0, more_ends)),
        pairs=torch.cat([references.pairs, places], 1),
        fans=pad(references.fans, (0, 0, 0, more_pairs)),
        used=pad(references.used, (0, more_pairs)),
        sample=pad(references.sample, (0, more_samples)),
        sampled=pad(references.sampled, (0, more_samples)),
    )


def stacked(tasks: Sequence[TaskReferences]) -> TaskReferences:
    """Tasks of one graph, padded alike, as one."""
    return TaskReferences(*(torch.cat(columns) for columns in zip(*tasks, strict=True)))


def distinct_pairs(pairs: np.ndarray) -> np.ndarray:
    """Pairs (K, 2), each once, in the order in which they come first."""
    _, first = np.unique(pairs, axis=0, return_index=True)
    return np.asarray(pairs, np.int64)[np.sort(first)]


def _around(graph: ReadGraph, ends: np.ndarray, out: np.ndarray, into: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`around` and `cover`, hidden relations included, given the references that leave and enter each end."""
    firsts, _, owners = graph.graph.slots_of(ends)
    relations = graph.graph.relation_ids[firsts]
    sizes = np.diff(graph.graph.slots.offsets)
    around = []
    cover = []
    for counts in (out, into):
        own = counts[owners] > 0
        around.append(np.bincount(relations[own], counts[owners[own]], minlength=graph.relations) / counts.sum())
        cover.append(np.bincount(relations[own], minlength=graph.relations) / np.maximum(sizes, 1))
    return np.stack(around), np.stack(cover)


def _turned(heads: np.ndarray, tails: np.ndarray, out: np.ndarray, into: np.ndarray) -> np.ndarray:
    at_heads = [(out[heads] > 1).mean(), (into[heads] > 0).mean()]
    at_tails = [(out[tails] > 0).mean(), (into[tails] > 1).mean()]
    return np.array([at_heads, at_tails])


def _sizes_of_new(count: int, heads: int, tails: int) -> np.ndarray:
    logs = [math.log1p(number) / 10 for number in (count, heads, tails)]
    own = [*logs, math.log1p(count / heads) / 4, math.log1p(count / tails) / 4]
    return np.array([own, [own[0], own[2], own[1], own[4], own[3]]])


def _facts(degrees: np.ndarray, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
    """The facts of references as places, given log(1 + edges) / 8 of each end."""
    count = len(heads)
    ends = len(degrees)
    keys = heads * ends + tails
    turned = tails * ends + heads
    own = [np.bincount(column) for column in (heads, tails)]
    return np.array(
        [
            math.log(count) / 2,
            *((counts > 0).sum() / count for counts in own),
            *(degrees[column].mean() for column in (heads, tails)),
            *(counts.max() / count for counts in own),
            np.isin(turned, keys).mean(),
            np.isin(heads, tails).mean(),
        ]
    )


HOPS = ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0))  # hops before and after an edge of walks of one to three hops
WALK_FEATURES = 3 * len(HOPS)


class Walks(NamedTuple):
    """Walks of one to three hops that join the sampled references.

    Shapes: `features` (L, 2R + 2, WALK_FEATURES), for each length and place of a relation in the walk its chance
    forwards and backwards and the share of references with such a walk; the new relation and its inverse come last.
    `joined` (L, 3): the share of references joined by a walk of each length.
    """

    features: Tensor
    joined: Tensor


@torch.no_grad()
def read_walks(graph: ReadGraph, references: TaskReferences, dtype: torch.dtype) -> Walks:
    """The walks over the visible edges and over the other references: a reference does not see itself."""
    edges = graph.edges
    count, size = references.sample.shape
    device = references.ends.device
    task = torch.arange(count, device=device)[:, None].expand(-1, size)
    columns = torch.arange(size, device=device).expand(count, -1)
    visible = references.visible[..., None].expand(-1, -1, 2 * size).to(dtype).contiguous()
    extra = references.edges()
    places = torch.arange(references.pairs.shape[1], device=device)
    others = (places[None, :, None] != references.sample[:, None]).to(references.used.dtype)  # (L, P, S)
    constants = references.constants(2 * size, Norms.TWO) * others.repeat(1, 1, 2)  # (2, L, P, 2S)
    over = constants.flatten(0, 2)

    def marks(ends: Tensor) -> Tensor:
        x = torch.zeros(edges.nodes, count, 1, 2 * size, device=device, dtype=dtype)
        for shift in (0, size):
            x[ends, task, 0, columns + shift] = references.sampled.to(dtype)
        return x

    def through(x: Tensor, y: Tensor) -> Tensor:
        """Chances of walks through each relation: (L, 2R + 2, 2S)."""
        sums = relation_sums(x, y, edges, Norms.TWO) * references.visible[..., None]
        first, last = (states.flatten(0, 1)[:, 0] for states in (x, y))
        new = widened(first[extra.rows[extra.sources]]) * widened(last[extra.rows[extra.targets]]) * over
        return torch.cat([sums, new.view_as(constants).sum(2).transpose(0, 1)], 1)

    heads, tails = references.sampled_entities.unbind(-1)
    before = [marks(heads)]
    after = [marks(tails)]
    for _ in range(2):
        forth = relational_product(before[-1], visible, edges, Norms.TWO)
        back = transposed_product(after[-1], visible, edges, Norms.TWO)
        before.append(extra.add_(forth, before[-1], over))
        after.append(extra.add_(back, after[-1], over, transposed=True))
    total = references.sampled.sum(1)
    features = []
    joined = []
    for first, last in HOPS:
        forward, backward = through(before[first], after[last]).split(size, -1)
        share = (forward > 0).to(references.used.dtype)
        features += [_chance(forward).sum(-1), _chance(backward).sum(-1), share.sum(-1)]
        joined.append(share.amax(1).sum(-1) / total)
    by_length = [joined[0], torch.maximum(joined[1], joined[2]), joined[4]]
    return Walks(torch.stack(features, -1) / total[:, None, None], torch.stack(by_length, -1))


def _chance(value: Tensor) -> Tensor:
    """A chance on a logarithmic scale, from 0 to about 1."""
    return torch.log1p(1000 * value) / math.log(1001)
