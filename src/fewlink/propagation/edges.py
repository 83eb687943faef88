"""The edges of a graph as tensors, sorted by tail, by head and by relation, and cut into segments for the kernels."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewlink.graph import Graph
from fewlink.graph.csr import offsets_of

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


@dataclass(frozen=True, eq=False)
class EdgeOrder:
    """Edges in one order.

    Shapes: `first`, `second` (edges,) int32, the other two of head, relation and tail; `row` (edges,) int32, what they
    are sorted by; `offsets` (rows + 1,); `fan_out`, `fan_in` (edges,) float32, one over the number of tails of the
    head, and of heads of the tail, with the edge's relation.
    """

    segments: Segments
    row: Tensor
    first: Tensor
    second: Tensor
    offsets: Tensor
    fan_out: Tensor
    fan_in: Tensor


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
        return cls.of_edges(
            np.asarray(graph.head_ids),
            np.asarray(graph.relation_ids),
            np.asarray(graph.tail_ids),
            len(graph.entities),
            2 * len(graph.relations),
        )

    @classmethod
    def of_edges(
        cls, heads: np.ndarray, relations: np.ndarray, tails: np.ndarray, nodes: int, relation_count: int
    ) -> EdgeTable:
        """From edges sorted by head, relation and tail, each with its inverse."""
        key = heads.astype(np.int64) * relation_count + relations
        slots, which, counts = np.unique(key, return_inverse=True, return_counts=True)
        inverse = (relations + relation_count // 2) % relation_count
        back = np.searchsorted(slots, tails.astype(np.int64) * relation_count + inverse)
        fan_out = (1 / counts[which]).astype(np.float32)
        fan_in = (1 / counts[back]).astype(np.float32)

        def order(row: np.ndarray, rows: int, first: np.ndarray, second: np.ndarray, longest: int) -> EdgeOrder:
            at = np.argsort(row, kind="stable")
            offsets = offsets_of(row[at], rows)
            row_ids, *others = (torch.from_numpy(np.ascontiguousarray(a[at], np.int32)) for a in (row, first, second))
            fans = (torch.from_numpy(a[at]) for a in (fan_out, fan_in))
            begins = torch.from_numpy(offsets.astype(np.int64))
            segments = Segments.of(offsets, longest, all_partial=row is relations)
            return EdgeOrder(segments, row_ids, others[0], others[1], begins, *fans)

        return cls(
            nodes,
            relation_count,
            order(tails, nodes, heads, relations, ROW_SEGMENT),
            order(heads, nodes, tails, relations, ROW_SEGMENT),
            order(relations, relation_count, heads, tails, RELATION_SEGMENT),
        )

    @property
    def edges(self) -> int:
        return len(self.by_tail.row)

    @property
    def device(self) -> torch.device:
        return self.by_tail.row.device

    def to(self, device: str | torch.device) -> EdgeTable:
        return _moved(self, torch.device(device))  # type: ignore[no-any-return]


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: _moved(getattr(value, f.name), device) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changed)
    return value
