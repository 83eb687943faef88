"""Trails: the relation paths of up to three hops that join references, found and followed over sparse arrays.

A trail is a sequence of relations, inverse ones included, written as one number in base `signed + 1`. It joins h and t
with two chances: that a walk from h which takes an edge of each of its relations in turn, any of them with the same
probability, ends at t; and that a walk from t which goes the way back ends at h.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fewlink.graph import Graph
from fewlink.graph.csr import offsets_of

HOPS = 3


class Walks(NamedTuple):
    """Walks side by side. Shapes: whose it is, its trail so far and where it stands, (n,); its two chances (n, 2)."""

    owners: Tensor
    trails: Tensor
    entities: Tensor
    chances: Tensor

    def where(self, mask: Tensor) -> Walks:
        return Walks(*(part[mask] for part in self))


class Rules(NamedTuple):
    """Trails that join references. Shapes: `trails` (P,) sorted; `chances` (P, K, 2), 0 for one it does not join."""

    trails: Tensor
    chances: Tensor


class Ends(NamedTuple):
    """Where rules lead. Shapes: which head, which rule and which candidate, (n,); the two chances (n, 2)."""

    heads: Tensor
    rules: Tensor
    candidates: Tensor
    chances: Tensor


class TrailFinder(nn.Module):
    """The edges of a graph as bundles: the edges of one entity with one relation.

    Shapes: `bundles` (E + 1,) where each entity's bundles begin; `relations` (G,) of the bundles; `begins` (G + 1,)
    where their edges begin; `tails` (edges,); `turned` (edges,) how many edges of the inverse relation the tail has.
    """

    bundles: Tensor
    relations: Tensor
    begins: Tensor
    tails: Tensor
    turned: Tensor

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.signed, self.entities = 2 * len(graph.relations), len(graph.entities)
        self.base = self.signed + 1
        keys = graph.head_ids.astype(np.int64) * self.signed + graph.relation_ids
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        begins = np.append(first, len(keys))
        for name, array in (
            ("bundles", offsets_of(graph.head_ids[first], self.entities)),
            ("relations", graph.relation_ids[first]),
            ("begins", begins),
            ("tails", graph.tail_ids),
            ("turned", _turned(graph, np.repeat(np.diff(begins), np.diff(begins)))),
        ):
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array, np.int64)), persistent=False)

    def bundles_of(self, entities: Tensor) -> tuple[Tensor, Tensor]:
        """The bundles of entities (n,), one entity after the other, and whose each is."""
        return _spans(self.bundles[entities], self.bundles[entities + 1])

    def sizes(self, edges: Tensor) -> Tensor:
        """How many edges the bundle of each of these edges (n,) has."""
        every = self.begins.diff()
        return every.repeat_interleave(every)[edges]

    def siblings(self, entities: Tensor) -> Walks:
        """Walks from each entity (n,) along an edge and back along its relation: to those that share it, and itself."""
        there = torch.arange(self.signed, device=entities.device)
        back = (there + self.signed // 2) % self.signed
        return self.onward(self.onward(self.start(entities)), (there + 1) * self.base + back + 1)

    def relations_of(self, trail: int) -> tuple[int, ...]:
        """The relations of a trail, in turn."""
        rest, last = divmod(trail, self.base)
        return (*(self.relations_of(rest) if rest else ()), last - 1)

    def start(self, entities: Tensor) -> Walks:
        """A walk of no hops from each entity (n,)."""
        own = torch.arange(len(entities), device=entities.device)
        return Walks(own, torch.zeros_like(own), entities, torch.ones(len(own), 2, device=entities.device))

    def onward(self, walks: Walks, among: Tensor | None = None, least: float = 0.0) -> Walks:
        """Each walk one hop further along every edge, or those that make a trail of `among`, sorted.

        Walks with both chances under `least` are left out.
        """
        at, before = self.bundles_of(walks.entities)
        trails = walks.trails[before] * self.base + self.relations[at] + 1
        if among is not None:
            keep = _places(among, trails) >= 0
            at, before, trails = at[keep], before[keep], trails[keep]
        edges, which = _spans(self.begins[at], self.begins[at + 1])
        counts = torch.stack([(self.begins[at + 1] - self.begins[at])[which], self.turned[edges]], 1)
        before = before[which]
        further = Walks(walks.owners[before], trails[which], self.tails[edges], walks.chances[before] / counts)
        return further.where((further.chances >= least).any(1)) if least else further

    def joining(self, references: Tensor, hops: int = HOPS) -> Rules:
        """The trails of up to `hops` hops that join references (K, 2)."""
        heads, tails = references.unbind(-1)
        walks, found = self.start(heads), []
        for _ in range(min(hops, HOPS - 1)):
            walks = self.onward(walks)
            found.append(walks.where(walks.entities == tails[walks.owners]))
        if hops == HOPS:
            found.append(self._met(walks, tails))
        owners, trails, _, chances = (torch.cat(parts) for parts in zip(*found, strict=True))
        kinds, which = trails.unique(return_inverse=True)
        table = chances.new_zeros(len(kinds) * len(heads), 2).index_add_(0, which * len(heads) + owners, chances)
        return Rules(kinds, table.view(len(kinds), len(heads), 2))

    def _met(self, walks: Walks, tails: Tensor) -> Walks:
        """The walks one hop further that end at their owner's tail: those that stand beside it."""
        beside = self.onward(self.start(tails))
        keys, order = (beside.owners * self.entities + beside.entities).sort(stable=True)
        asked = walks.owners * self.entities + walks.entities
        places, which = _spans(torch.searchsorted(keys, asked), torch.searchsorted(keys, asked, right=True))
        last = order[places]
        relations = (beside.trails[last] - 1 + self.signed // 2) % self.signed
        chances = walks.chances[which] * beside.chances[last].flip(1)
        owners = walks.owners[which]
        return Walks(owners, walks.trails[which] * self.base + relations + 1, tails[owners], chances)

    def follow(self, heads: Tensor, rules: Tensor, least: float = 0.0) -> Walks:
        """Where the rules (P,), sorted, lead from heads (H,): walks whose trail is the place of a rule."""
        wanted = torch.cat([rules // self.base**hops for hops in range(HOPS)]).unique()
        walks, found = self.start(heads), []
        for _ in range(HOPS):
            walks = self._merged(self.onward(walks, wanted, least), wanted)
            rule = _places(rules, walks.trails)
            found.append(walks._replace(trails=rule).where(rule >= 0))
        return Walks(*(torch.cat(parts) for parts in zip(*found, strict=True)))

    def arrived(self, walks: Walks, candidates: Tensor) -> Ends:
        """Those of the walks along rules that end at candidates (C,), sorted."""
        columns = _places(candidates, walks.entities)
        ended = columns >= 0
        return Ends(walks.owners[ended], walks.trails[ended], columns[ended], walks.chances[ended])

    def ends(self, walks: Walks, owners: int, candidates: Tensor) -> Tensor:
        """The chances of all walks of each owner that end at each of the candidates (C,), sorted: (owners, C, 2)."""
        columns = _places(candidates, walks.entities)
        ended = columns >= 0
        total = walks.chances.new_zeros(owners * len(candidates), 2)
        total.index_add_(0, walks.owners[ended] * len(candidates) + columns[ended], walks.chances[ended])
        return total.view(owners, len(candidates), 2)

    def _merged(self, walks: Walks, wanted: Tensor) -> Walks:
        """Walks of one owner that took the same trail to the same entity as one, their chances added up."""
        trail = torch.searchsorted(wanted, walks.trails)
        keys = (walks.owners * len(wanted) + trail) * self.entities + walks.entities
        kinds, which = keys.unique(return_inverse=True)
        chances = walks.chances.new_zeros(len(kinds), 2).index_add_(0, which, walks.chances)
        rest = kinds // self.entities
        return Walks(rest // len(wanted), wanted[rest % len(wanted)], kinds % self.entities, chances)


def _turned(graph: Graph, values: np.ndarray) -> np.ndarray:
    """Of a value for each edge (n,), the one that its inverse has: both have the place of their triple."""
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
