"""Relation paths of up to three hops that join references, found and followed over sparse arrays.

A path is a sequence of relations, inverse ones included, written as one number in base `signed + 1`. It joins h and t
with two chances: that a random walk from h along its relations, each edge of a relation equally likely, ends at t; and
that a walk from t along the inverse path ends at h.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fewlink.graph import Graph
from fewlink.graph.graph import offsets_of

HOPS = 3


class Walks(NamedTuple):
    """Walks side by side. Shapes: `owners`, `paths` so far and `entities` reached (n,); `chances` (n, 2)."""

    owners: Tensor
    paths: Tensor
    entities: Tensor
    chances: Tensor

    def where(self, mask: Tensor) -> Walks:
        """The walks for which the mask (n,) is true."""
        return Walks(*(part[mask] for part in self))


class JoiningPaths(NamedTuple):
    """Paths that join references. Shapes: `paths` (P,) sorted; `chances` (P, K, 2), 0 for one it does not join."""

    paths: Tensor
    chances: Tensor


class Ends(NamedTuple):
    """Where rules lead. Shapes: `heads`, `rules` and `candidates` (n,), numbers of each; `chances` (n, 2)."""

    heads: Tensor
    rules: Tensor
    candidates: Tensor
    chances: Tensor


class PathFinder(nn.Module):
    """The edges of a graph in groups: the edges of one entity with one relation.

    Shapes: `group_offsets` (E + 1,) where each entity's groups begin; `group_relations` (G,); `edge_offsets` (G + 1,)
    where each group's edges begin; `edge_tails` (edges,); `inverse_counts` (edges,) how many edges of the inverse
    relation the tail has.
    """

    group_offsets: Tensor
    group_relations: Tensor
    edge_offsets: Tensor
    edge_tails: Tensor
    inverse_counts: Tensor

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.signed, self.entities = 2 * len(graph.relations), len(graph.entities)
        self.base = self.signed + 1
        keys = graph.head_ids.astype(np.int64) * self.signed + graph.relation_ids
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        begins = np.append(first, len(keys))
        for name, array in (
            ("group_offsets", offsets_of(graph.head_ids[first], self.entities)),
            ("group_relations", graph.relation_ids[first]),
            ("edge_offsets", begins),
            ("edge_tails", graph.tail_ids),
            ("inverse_counts", _inverse_values(graph, np.repeat(np.diff(begins), np.diff(begins)))),
        ):
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array, np.int64)), persistent=False)

    def groups_of(self, entities: Tensor) -> tuple[Tensor, Tensor]:
        """The groups of entities (n,), one entity after the other, and the entity's position of each."""
        return _spans(self.group_offsets[entities], self.group_offsets[entities + 1])

    def group_sizes(self, edges: Tensor) -> Tensor:
        """How many edges the group of each of these edges (n,) has."""
        every = self.edge_offsets.diff()
        return every.repeat_interleave(every)[edges]

    def siblings(self, entities: Tensor) -> Walks:
        """Walks from each entity (n,) along an edge and back along its relation: to all that share it, itself too."""
        there = torch.arange(self.signed, device=entities.device)
        back = (there + self.signed // 2) % self.signed
        return self.onward(self.onward(self.start(entities)), (there + 1) * self.base + back + 1)

    def relations_of(self, path: int) -> tuple[int, ...]:
        """The relations of a path, in turn."""
        rest, last = divmod(path, self.base)
        return (*(self.relations_of(rest) if rest else ()), last - 1)

    def start(self, entities: Tensor) -> Walks:
        """A walk of no hops from each entity (n,)."""
        own = torch.arange(len(entities), device=entities.device)
        return Walks(own, torch.zeros_like(own), entities, torch.ones(len(own), 2, device=entities.device))

    def onward(self, walks: Walks, allowed: Tensor | None = None, least: float = 0.0) -> Walks:
        """Each walk one hop further along every edge, or only along paths of `allowed`, sorted.

        Walks with both chances under `least` are left out.
        """
        at, before = self.groups_of(walks.entities)
        paths = walks.paths[before] * self.base + self.group_relations[at] + 1
        if allowed is not None:
            keep = _places(allowed, paths) >= 0
            at, before, paths = at[keep], before[keep], paths[keep]
        edges, which = _spans(self.edge_offsets[at], self.edge_offsets[at + 1])
        counts = torch.stack(
            [(self.edge_offsets[at + 1] - self.edge_offsets[at])[which], self.inverse_counts[edges]], 1
        )
        before = before[which]
        further = Walks(walks.owners[before], paths[which], self.edge_tails[edges], walks.chances[before] / counts)
        return further.where((further.chances >= least).any(1)) if least else further

    def joining(self, references: Tensor, hops: int = HOPS) -> JoiningPaths:
        """The paths of up to `hops` hops that join references (K, 2)."""
        heads, tails = references.unbind(-1)
        walks, found = self.start(heads), []
        for _ in range(min(hops, HOPS - 1)):
            walks = self.onward(walks)
            found.append(walks.where(walks.entities == tails[walks.owners]))
        if hops == HOPS:
            found.append(self._met(walks, tails))
        owners, paths, _, chances = (torch.cat(parts) for parts in zip(*found, strict=True))
        kinds, which = paths.unique(return_inverse=True)
        table = chances.new_zeros(len(kinds) * len(heads), 2).index_add_(0, which * len(heads) + owners, chances)
        return JoiningPaths(kinds, table.view(len(kinds), len(heads), 2))

    def _met(self, walks: Walks, tails: Tensor) -> Walks:
        """The walks one hop further that end at their owner's tail: those that stand beside it."""
        beside = self.onward(self.start(tails))
        keys, order = (beside.owners * self.entities + beside.entities).sort(stable=True)
        asked = walks.owners * self.entities + walks.entities
        places, which = _spans(torch.searchsorted(keys, asked), torch.searchsorted(keys, asked, right=True))
        last = order[places]
        relations = (beside.paths[last] - 1 + self.signed // 2) % self.signed
        chances = walks.chances[which] * beside.chances[last].flip(1)
        owners = walks.owners[which]
        return Walks(owners, walks.paths[which] * self.base + relations + 1, tails[owners], chances)

    def follow(self, heads: Tensor, rules: Tensor, least: float = 0.0) -> Walks:
        """Where the rules (P,), sorted, lead from heads (H,): walks whose `paths` are numbers of rules."""
        wanted = torch.cat([rules // self.base**hops for hops in range(HOPS)]).unique()
        walks, found = self.start(heads), []
        for _ in range(HOPS):
            walks = self._merged(self.onward(walks, wanted, least), wanted)
            rule = _places(rules, walks.paths)
            found.append(walks._replace(paths=rule).where(rule >= 0))
        return Walks(*(torch.cat(parts) for parts in zip(*found, strict=True)))

    def arrived(self, walks: Walks, candidates: Tensor) -> Ends:
        """Those of the walks along rules that end at candidates (C,), sorted."""
        columns = _places(candidates, walks.entities)
        ended = columns >= 0
        return Ends(walks.owners[ended], walks.paths[ended], columns[ended], walks.chances[ended])

    def ends(self, walks: Walks, owners: int, candidates: Tensor) -> Tensor:
        """The chances of all walks of each owner that end at each of the candidates (C,), sorted: (owners, C, 2)."""
        columns = _places(candidates, walks.entities)
        ended = columns >= 0
        total = walks.chances.new_zeros(owners * len(candidates), 2)
        total.index_add_(0, walks.owners[ended] * len(candidates) + columns[ended], walks.chances[ended])
        return total.view(owners, len(candidates), 2)

    def _merged(self, walks: Walks, wanted: Tensor) -> Walks:
        """Walks of one owner along the same path to the same entity as one, their chances added up."""
        path = torch.searchsorted(wanted, walks.paths)
        keys = (walks.owners * len(wanted) + path) * self.entities + walks.entities
        kinds, which = keys.unique(return_inverse=True)
        chances = walks.chances.new_zeros(len(kinds), 2).index_add_(0, which, walks.chances)
        rest = kinds // self.entities
        return Walks(rest // len(wanted), wanted[rest % len(wanted)], kinds % self.entities, chances)


def _inverse_values(graph: Graph, values: np.ndarray) -> np.ndarray:
    """Of a value for each edge (n,), the one that its inverse edge has: both have the position of their triple."""
    forwards = graph.relation_ids < len(graph.relations)
    places, found = graph.positions, np.empty_like(values)
    for own, others in ((forwards, ~forwards), (~forwards, forwards)):
        by_place = np.zeros(int(places.max(initial=-1)) + 1, values.dtype)
        by_place[places[others]] = values[others]
        found[own] = by_place[places[own]]
    return found


def _spans(begins: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """All positions of the spans [begin, end), one span after the other, and the span each belongs to."""
    lengths = ends - begins
    owners = torch.repeat_interleave(lengths)
    firsts = lengths.cumsum(0) - lengths
    return torch.arange(len(owners), device=begins.device) - (firsts - begins)[owners], owners


def _places(ordered: Tensor, wanted: Tensor) -> Tensor:
    """Where each wanted number (n,) stands among sorted ones, or -1."""
    at = torch.searchsorted(ordered, wanted).clamp_max(max(len(ordered) - 1, 0))
    return torch.where(ordered[at] == wanted, at, -1) if len(ordered) else torch.full_like(wanted, -1)
