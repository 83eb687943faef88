"""The edges of a graph as tensors, sorted by tail, head and relation; and the part of a graph near some entities."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.core.memo import Memo
from fewlink.core.threads import distinct
from fewlink.graph import Graph
from fewlink.graph.groups import offsets_of, spans

ROW_SEGMENT = 128  # edges of an entity that one program of the GPU adds up
RELATION_SEGMENT = 512  # edges of a relation


@dataclass(frozen=True, eq=False)
class Segments:
    """The edges of each row, in segments of bounded length: a row with one segment is written at once.

    Shapes: `rows`, `begins`, `ends`, `slots` (segments,); a slot is a place for the partial sum of a row that has
    several segments, or -1; there are `partials`. `long_rows` (m,) are those rows, `firsts` (m + 1,) their first slots.
    """

    partials: int
    rows: Tensor
    begins: Tensor
    ends: Tensor
    slots: Tensor
    long_rows: Tensor
    firsts: Tensor

    @classmethod
    def of(cls, offsets: np.ndarray, longest: int, *, all_partial: bool = False) -> Segments:
        """Segments of rows whose edges are at `offsets[row]:offsets[row + 1]`; `all_partial` gives each one a slot."""
        counts = np.maximum(1, -(-np.diff(offsets) // longest))
        rows = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        begins = offsets[rows] + place * longest
        ends = np.minimum(begins + longest, offsets[rows + 1])
        partial = counts[rows] > 1 if not all_partial else np.ones(len(rows), bool)
        slots = np.where(partial, np.cumsum(partial) - 1, -1)
        long_rows = np.flatnonzero(counts > 1) if not all_partial else np.arange(len(counts))
        firsts = np.append(0, np.cumsum(counts[long_rows]))
        arrays = [torch.from_numpy(a.astype(np.int64)) for a in (rows, begins, ends, slots, long_rows, firsts)]
        return cls(int(partial.sum()), *arrays)


class Chunk(NamedTuple):
    """Consecutive rows of `RowEdges`, their pairs of a row and a relation, and the edges of these.

    `edge_offsets` are those of the pairs among the chunk's edges, and `pair_offsets` those of the rows among its pairs.
    """

    rows: slice
    pairs: slice
    edges: slice
    edge_offsets: Tensor
    pair_offsets: Tensor


@dataclass(frozen=True, eq=False)
class RowEdges(Memo):
    """The edges of n rows, sorted by row and relation. Those of one row and one relation, a pair, have the same fan at
    the row.

    Shapes: `sources`, `source_fans` (e,) of each edge; `relations`, `fans` (q,) of each pair; `edges` (q + 1,) int32,
    where the edges of each pair begin; `pairs` (n + 1,) int32, where the pairs of each row begin.
    """

    sources: Tensor
    source_fans: Tensor
    relations: Tensor
    fans: Tensor
    edges: Tensor
    pairs: Tensor

    def of(self, rows: Tensor) -> tuple[RowEdges, Tensor]:
        """The edges of some rows (n,), one row after the other, and their places among all edges; on the CPU."""
        pairs, pair_offsets = _joined(self.pairs, rows)
        edges, edge_offsets = _joined(self.edges, pairs)
        chosen = RowEdges(
            self.sources[edges],
            self.source_fans[edges],
            self.relations[pairs],
            self.fans[pairs],
            edge_offsets,
            pair_offsets,
        )
        return chosen, edges

    def only(self, kept: Tensor, sources: Tensor) -> RowEdges:
        """The edges at which `kept` (e,) is true, with new numbers for the sources of all edges (e,)."""
        edges = counts_before(kept).index_select(0, self.edges)
        has_edges = edges.diff() > 0
        at, pairs = (chosen.nonzero().squeeze(1) for chosen in (kept, has_edges))
        return RowEdges(
            sources.index_select(0, at),
            self.source_fans.index_select(0, at),
            self.relations.index_select(0, pairs),
            self.fans.index_select(0, pairs),
            torch.cat([edges.index_select(0, pairs), edges[-1:]]),
            counts_before(has_edges).index_select(0, self.pairs),
        )

    def chunks(self, pairs: int) -> list[Chunk]:
        """All rows in chunks of about this many `pairs`, computed once."""
        return self.once(_chunks, pairs)

    def power(self, of: Literal["source_fans", "fans"], power: float, dtype: torch.dtype) -> Tensor | None:
        """A power of the fans of edges or of pairs, computed once; None for the power 0."""
        return self.once(_power, of, power, dtype) if power else None


def counts_before(chosen: Tensor) -> Tensor:
    """The number of chosen ones before each place and before the end, int32."""
    return torch.cat([chosen.new_zeros(1, dtype=torch.int32), chosen.cumsum(0, dtype=torch.int32)])


def _joined(offsets: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """The members of groups, one group after the other, and where each group begins among these members, int32."""
    begins = offsets[groups].numpy()
    ends = offsets[groups + 1].numpy()
    joined = np.append(0, np.cumsum(ends - begins)).astype(np.int32)
    return torch.from_numpy(spans(begins.astype(np.int64), ends)[0]), torch.from_numpy(joined)


def _power(edges: RowEdges, name: str, power: float, dtype: torch.dtype) -> Tensor:
    fans: Tensor = getattr(edges, name).to(dtype)
    return fans if power == 1 else fans**power


def _chunks(row_edges: RowEdges, size: int) -> list[Chunk]:
    pairs_of = row_edges.pairs
    pairs = torch.arange(0, len(row_edges.relations), size, dtype=torch.int32, device=pairs_of.device)
    bounds = sorted({0, *torch.searchsorted(pairs_of, pairs).tolist(), len(pairs_of) - 1})
    chunks = []
    for first, last in pairwise(bounds):
        of_rows = pairs_of[first : last + 1]
        begin = int(of_rows[0])
        end = int(of_rows[-1])
        of_pairs = row_edges.edges[begin : end + 1]
        edges = slice(int(of_pairs[0]), int(of_pairs[-1]))
        chunks.append(Chunk(slice(first, last), slice(begin, end), edges, of_pairs - edges.start, of_rows - begin))
    return chunks


@dataclass(frozen=True, eq=False)
class EdgeOrder(Memo):
    """Edges in one order.

    Shapes: `row` (edges,) int32, what they are sorted by; `first`, `second` (edges,) int32, the other two of head,
    relation and tail; `offsets` (rows + 1,); `fan_out`, `fan_in` (edges,) float32, one over the number of tails of the
    head, and of heads of the tail, with the edge's relation. The edges of a row are sorted by `second`.
    """

    segments: Segments
    row: Tensor
    first: Tensor
    second: Tensor
    offsets: Tensor
    fan_out: Tensor
    fan_in: Tensor

    def edges_of(self, rows: Tensor) -> Tensor:
        """The places of all edges of these rows (n,), one row after the other; on the CPU."""
        return torch.from_numpy(spans(self.offsets[rows].numpy(), self.offsets[rows + 1].numpy())[0])

    def row_edges(self, transposed: bool) -> RowEdges:
        """The edges of all rows, computed once; sources are `first`, relations `second`."""
        return self.once(_row_edges, transposed)


def _row_edges(order: EdgeOrder, transposed: bool) -> RowEdges:
    of_source, of_row = (order.fan_in, order.fan_out) if transposed else (order.fan_out, order.fan_in)
    begins = torch.ones(len(order.row), dtype=torch.bool, device=order.row.device)
    begins[1:] = (order.row.diff() != 0) | (order.second.diff() != 0)
    at = begins.nonzero().squeeze(1)
    edges = torch.cat([at, at.new_tensor([len(order.row)])]).int()
    pairs = torch.searchsorted(at, order.offsets).int()
    return RowEdges(order.first, of_source, order.second[at].long(), of_row[at], edges, pairs)


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """Every edge and its inverse; relation r + R is the inverse of r, `relations` is 2R.

    `by_tail`: rows are tails, then heads and relations; `by_head`: rows are heads, then tails and relations;
    `by_relation`: rows are relations, then heads and tails.
    """

    nodes: int
    relations: int
    by_tail: EdgeOrder
    by_head: EdgeOrder
    by_relation: EdgeOrder

    @classmethod
    def of(cls, graph: Graph) -> EdgeTable:
        """All edges of a graph, on the CPU."""
        edges = (np.asarray(graph.head_ids), np.asarray(graph.relation_ids), np.asarray(graph.tail_ids))
        return cls.of_edges(
            *edges, *edge_fans(graph), nodes=len(graph.entities), relations_count=2 * len(graph.relations)
        )

    @classmethod
    def of_edges(
        cls,
        heads: np.ndarray,
        relations: np.ndarray,
        tails: np.ndarray,
        fan_out: np.ndarray,
        fan_in: np.ndarray,
        *,
        nodes: int,
        relations_count: int,
    ) -> EdgeTable:
        """Make the table of edges, inverse ones included, given one over the fan-out and fan-in of each."""

        def order(
            row: np.ndarray,
            rows: int,
            first: np.ndarray,
            second: np.ndarray,
            longest: int,
            *,
            all_partial: bool = False,
        ) -> EdgeOrder:
            at = np.argsort(row.astype(np.int64) * max(nodes, relations_count) + second, kind="stable")
            offsets = offsets_of(row[at], rows)
            ids = [torch.from_numpy(np.ascontiguousarray(a[at], np.int32)) for a in (row, first, second)]
            fans = [torch.from_numpy(a[at]) for a in (fan_out, fan_in)]
            segments = Segments.of(offsets, longest, all_partial=all_partial)
            return EdgeOrder(segments, ids[0], ids[1], ids[2], torch.from_numpy(offsets.astype(np.int64)), *fans)

        return cls(
            nodes,
            relations_count,
            order(tails, nodes, heads, relations, ROW_SEGMENT),
            order(heads, nodes, tails, relations, ROW_SEGMENT),
            order(relations, relations_count, heads, tails, RELATION_SEGMENT, all_partial=True),
        )

    @property
    def edges(self) -> int:
        """The number of edges, inverse ones included."""
        return len(self.by_tail.row)

    @property
    def device(self) -> torch.device:
        return self.by_tail.row.device

    def to(self, device: str | torch.device) -> EdgeTable:
        """The table on a device; the same object, with all that it has cached, if it is there already."""
        wanted = torch.device(device)
        return self if wanted == self.device else _moved(self, wanted)


def edge_fans(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """One over the fan-out, and over the fan-in, of each edge of a graph (edges,) float32, computed once.

    The fan-out is the number of tails of the head with the relation, the fan-in that of heads of the tail.
    """
    return graph.once(_edge_fans)


def _edge_fans(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    first = graph.slot_starts
    counts = np.diff(np.append(first, len(graph.relation_ids)))
    fan_out = np.repeat((1 / np.maximum(counts, 1)).astype(np.float32), counts)
    return fan_out, fan_out[inverse_edges(graph)]


def inverse_edges(graph: Graph) -> np.ndarray:
    """The place of each edge's inverse (edges,), computed once."""
    return graph.once(_inverse_edges)


def _inverse_edges(graph: Graph) -> np.ndarray:
    forward = np.asarray(graph.relation_ids) < len(graph.relations)  # each triple is one forward and one inverse edge
    at = np.empty(graph.triple_count, np.int64)
    back = np.empty(graph.triple_count, np.int64)
    at[graph.positions[forward]] = np.flatnonzero(forward)
    back[graph.positions[~forward]] = np.flatnonzero(~forward)
    inverse = np.empty(len(forward), np.int64)
    inverse[at] = back
    inverse[back] = at
    return inverse


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: _moved(getattr(value, f.name), device) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changed)
    return value


ROUNDS = 4  # times that the neighbours of reached entities are reached in turn
SHARE = 0.25  # of the edges of a part: an entity with more is not expanded


class GraphPart(NamedTuple):
    """Some entities of a graph: `nodes` (n,) their ids, sorted; `edges` between them, numbered by place in `nodes`."""

    nodes: np.ndarray
    edges: EdgeTable

    def places(self, entities: np.ndarray) -> np.ndarray:
        """The place of each entity among the nodes, or -1."""
        at = np.minimum(np.searchsorted(self.nodes, entities), len(self.nodes) - 1)
        return np.where(self.nodes[at] == entities, at, -1)


def graph_part(graph: Graph, sources: np.ndarray, most_edges: int, visible: np.ndarray | None = None) -> GraphPart:
    """The neighbourhood of some entities, with at most about 2 · `most_edges` edges.

    Entities are expanded (all their edges are taken) in the order of the share of random walks from the sources that
    passes through each of their edges, until `most_edges` are taken; an edge is taken with its inverse. Walks choose
    among the relations of an entity first, then among the edges of that relation. Entities with very many edges are not
    expanded, but of a source those of its rarer relations are taken. With `visible` (2R,), a bool for each relation and
    inverse, neither walks nor edges are of the others.
    """
    reached, mass, taken = _from_sources(graph, np.unique(np.asarray(sources, np.int64)), most_edges, visible)
    expanded = np.zeros(0, np.int64)
    left = most_edges
    for rounds in range(ROUNDS):
        waiting = ~np.isin(reached, expanded)
        nodes = reached[waiting]
        weight = mass[waiting]
        size = graph.degrees_of(nodes, visible)
        order = np.argsort(-weight / np.maximum(size, 1), kind="stable")
        order = order[size[order] <= SHARE * most_edges]
        limit = left if rounds == ROUNDS - 1 else left * (rounds + 1) / ROUNDS
        order = order[np.cumsum(size[order]) <= limit]
        nodes = nodes[order]
        weight = weight[order]
        firsts, counts, owners = graph.slots_of(nodes, visible)
        if not len(firsts):
            break
        some = Taken.of(firsts, counts, nodes[owners])
        taken.append(some)
        left -= len(some.edges)
        owners = np.repeat(owners, counts)
        shares = weight[owners] * some.fan_out
        shares /= np.maximum(np.bincount(owners, some.fan_out, len(nodes)), 1e-9)[owners]  # relations of the owner
        everyone = np.concatenate([reached, graph.tail_ids[some.edges]])
        both, which = np.unique(everyone, return_inverse=True)
        mass = np.bincount(which, np.concatenate([mass, shares]))
        reached = both
        expanded = np.concatenate([expanded, nodes])
    return _part_of(graph, reached, taken)


class Taken(NamedTuple):
    """Edges of a graph by their numbers, their heads, and one over their fan-out: (n,) each."""

    edges: np.ndarray
    heads: np.ndarray
    fan_out: np.ndarray

    @classmethod
    def of(cls, firsts: np.ndarray, counts: np.ndarray, heads: np.ndarray, most: int | None = None) -> Taken:
        """The edges of slots, given the first edge, the edge count and the head of each; at most the first `most`."""
        used = counts if most is None else np.clip(most - (np.cumsum(counts) - counts), 0, counts)
        edges, owners = spans(firsts, firsts + used)
        return cls(edges, heads[owners], (1 / np.maximum(counts, 1)).astype(np.float32)[owners])


def _part_of(graph: Graph, reached: np.ndarray, taken: list[Taken]) -> GraphPart:
    """The part with these edges, each with its inverse and once, and the entities `reached` and at their ends."""
    nothing = Taken(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    edges, heads, fan_out = (np.concatenate(columns) for columns in zip(nothing, *taken, strict=True))
    relations = graph.relation_ids[edges].astype(np.int64)
    tails = graph.tail_ids[edges]
    fan_in = fan_in_of(graph, edges)
    nodes = distinct(np.concatenate([reached, heads, tails]))
    signed = 2 * len(graph.relations)
    heads = np.searchsorted(nodes, heads)
    tails = np.searchsorted(nodes, tails)
    both = np.concatenate([heads, tails]), np.concatenate([tails, heads])
    relations = np.concatenate([relations, (relations + signed // 2) % signed])
    keys = (both[0] * signed + relations) * len(nodes) + both[1]
    _, once = np.unique(keys, return_index=True)
    out = np.concatenate([fan_out, fan_in])
    into = np.concatenate([fan_in, fan_out])
    ends = both[0][once], relations[once], both[1][once]
    table = EdgeTable.of_edges(*ends, out[once], into[once], nodes=len(nodes), relations_count=signed)
    return GraphPart(nodes, table)


def fan_in_of(graph: Graph, edges: np.ndarray) -> np.ndarray:
    """One over the fan-in of these edges (n,) float32."""
    if graph.counted is None:
        return np.asarray(edge_fans(graph)[1][edges])
    return np.asarray(1 / np.maximum(graph.counted.fans[edges], 1), np.float32)


def _from_sources(
    graph: Graph, sources: np.ndarray, most_edges: int, visible: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, list[Taken]]:
    """The sources and the entities that edges of rare relations join to those with very many edges, (n,); the share of
    walks that begins at each, (n,); and these edges, of each such source."""
    reached = sources
    mass = np.full(len(sources), 1 / len(sources))
    few = int(SHARE * most_edges / len(sources))
    taken = []
    for source in sources[graph.degrees_of(sources, visible) > SHARE * most_edges].tolist():
        firsts, counts, _ = graph.slots_of(np.array([source]), visible)
        rare = np.argsort(counts, kind="stable")
        some = Taken.of(firsts[rare], counts[rare], np.full(len(rare), source), few)
        new = np.setdiff1d(distinct(graph.tail_ids[some.edges]), reached, assume_unique=True)
        reached = np.append(reached, new)
        mass = np.append(mass, np.full(len(new), mass[0] / max(few, 1)))
        taken.append(some)
    return reached, mass, taken
