"""A graph as TRAIL reads it: its edges, those of names included, and what is counted once for each of its relations."""

from __future__ import annotations

import copy
import functools
import hashlib
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewlink.graph import Graph
from fewlink.graph.groups import offsets_of, spans
from fewlink.models.trail.names import FLAGS, name_vectors, with_name_relations
from fewlink.propagation.edges import EdgeTable, GraphPart

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
        edges: EdgeTable | None = None,
    ) -> None:
        self.graph = graph
        self.sizes = sizes
        self.together = together
        self.flags = flags
        self.vectors = vectors
        self._edges = edges
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
        """The graph without the triples of a relation; all ids stay the same."""
        number = self.graph.relations.find(relation)
        if number is None:
            return self
        if self.graph.counted is not None:  # of a large graph nothing is copied
            return self.hiding(number)
        rest = self.graph.without(np.array([number]))
        return self._with(graph=rest, sizes=rest.once(_sizes), together=rest.once(_together)).to(self.device)

    def hiding(self, relation: int) -> ReadGraph:
        """The same graph, in which a relation and its inverse are not read; what was counted with it stays."""
        if self.device.type != "cpu":
            _ = self.edges  # sorted once for all copies; of a large graph a CPU reads parts
        other = copy.copy(self)
        other.visible = self.visible.copy()
        other.visible[[relation, (relation + self.relations // 2) % self.relations]] = 0
        return other

    def without_names(self) -> ReadGraph:
        """The graph without the relations and vectors of names; all ids stay the same."""
        if not self.reads_names:
            return self
        other = self.with_vectors(None)
        if not self.has_name_relations:
            return other
        count = len(self.graph.relations)
        rest = self.graph.without(np.arange(count - FLAGS, count))
        counted = {"sizes": rest.once(_sizes), "together": rest.once(_together)}
        return other._with(graph=rest, **counted, flags=torch.zeros_like(self.flags)).to(self.device)

    def with_vectors(self, vectors: np.ndarray | None) -> ReadGraph:
        """The same graph with other vectors of names (entities, D), or without any."""
        other = copy.copy(self)
        other.vectors = None
        other.given_vectors = ""
        if vectors is not None:
            other.vectors = torch.from_numpy(vectors).to(self.device)
            other.given_vectors = hashlib.sha256(np.ascontiguousarray(vectors).data).hexdigest()
        return other

    def _with(self, **changes: Any) -> ReadGraph:
        """The same graph with other values of its attributes, and with edges of its own unless they are given."""
        other = copy.copy(self)
        other._edges = None
        other.__dict__.update(changes)
        for cached in ("edges", "inverse"):
            other.__dict__.pop(cached, None)
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
        table = EdgeTable.of(self.graph) if self._edges is None else self._edges
        return table.to(self.device)

    def part(self, part: GraphPart) -> ReadGraph:
        """The same graph with some of its entities and edges only; what was counted is of the whole."""
        vectors = None if self.vectors is None else self.vectors[torch.from_numpy(part.nodes)]
        return self._with(vectors=vectors, _edges=part.edges)

    @property
    def device(self) -> torch.device:
        return self.sizes.device

    @property
    def relations(self) -> int:
        """The number of relations, inverse ones included."""
        return len(self.sizes)

    def to(self, device: str | torch.device) -> ReadGraph:
        moved = {name: getattr(self, name).to(device) for name in ("sizes", "together", "flags")}
        vectors = None if self.vectors is None else self.vectors.to(device)
        return self._with(**moved, vectors=vectors, _edges=self._edges)

    @functools.cached_property
    def inverse(self) -> Tensor:
        """The inverse of each relation."""
        return torch.arange(self.relations, device=self.device).roll(self.relations // 2)


def _sizes(graph: Graph) -> Tensor:
    """Of each relation: triples, entities at its head and at its tail, and mean fan-out and fan-in, on log scales."""
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
