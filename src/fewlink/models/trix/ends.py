"""Which entities are tails of which relations, and sums over them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fewlink.models.trail.features import ReadGraph
from fewlink.models.ultra.network import PublishedTasks, with_new_relation
from fewlink.propagation.edges import EdgeOrder
from fewlink.propagation.product import bag_sums

LONGEST = 512  # members of a bag that are added up one after the other


class Bags(NamedTuple):
    """Members of consecutive bags, in pieces of at most `LONGEST`, which a GPU adds up side by side.

    Shapes: `members` (m,); `pieces` (p + 1,), where each piece begins among the members; `bags` (b + 1,), where each
    bag begins among the pieces.
    """

    members: Tensor
    pieces: Tensor
    bags: Tensor

    @classmethod
    def of(cls, members: Tensor, offsets: Tensor) -> Bags:
        """From members, of which bag i has those from `offsets[i]` to `offsets[i + 1]`."""
        counts = (offsets.diff() + LONGEST - 1) // LONGEST
        ends = counts.cumsum(0)
        bag = torch.arange(len(counts), device=offsets.device).repeat_interleave(counts)
        place = torch.arange(len(bag), device=offsets.device) - (ends - counts)[bag]
        pieces = torch.cat([offsets[bag] + place * LONGEST, offsets[-1:]])
        return cls(members, pieces.int(), torch.cat([ends.new_zeros(1), ends]).int())

    def sums(self, rows: Tensor) -> Tensor:
        """The sums (b, C) of rows (n, C) over the members of each bag."""
        of_pieces = bag_sums(self.members, rows, self.pieces)
        return bag_sums(torch.arange(len(of_pieces), dtype=torch.int32, device=rows.device), of_pieces, self.bags)


class Ends:
    """The tails of the relations of a graph, and those of the new relation and of its inverse in several tasks.

    An entity that is a tail of a relation several times is counted once. The heads of a relation are the tails of its
    inverse, and `inverse` (2R + 2,) says which that is.
    """

    def __init__(self, graph: ReadGraph, tasks: PublishedTasks) -> None:
        self.inverse = with_new_relation(graph.inverse)
        self.visible = tasks.visible
        self.relations_of, self.tails_of = graph.edges.by_tail.once(_bags, graph.relations)
        count = len(tasks.references)
        task = torch.arange(count, device=tasks.references.device)[:, None]
        self.rows = tasks.references.flip(-1) * count + task.unsqueeze(-1)  # (L, K, 2) of (nodes · L): tails, heads
        weights = tasks.weights.unsqueeze(-1).expand(-1, -1, 2)
        often = weights.new_zeros(2, graph.edges.nodes * count)
        for end in range(2):
            often[end].index_add_(0, self.rows[..., end].flatten(), tasks.weights.flatten())
        counted = torch.stack([often[end][self.rows[..., end]] for end in range(2)], -1)
        self.shares = weights / counted.clamp(min=1)  # (L, K, 2), of each entity 1 in all

    def at_entities(self, z: Tensor) -> Tensor:
        """The sums (nodes, L, C) of z (L, 2R + 2, C) over the relations that each entity is a tail of."""
        known = z[:, :-2] * self.visible.unsqueeze(-1)
        new = z[:, -2:]
        sums: Tensor = _BagSums.apply(  # type: ignore[no-untyped-call]
            known.transpose(0, 1).flatten(1), self.relations_of, self.tails_of
        )
        messages = (self.shares.unsqueeze(-1) * new.unsqueeze(1)).flatten(0, 2)  # (L · K · 2, C)
        return sums.view(-1, z.shape[-1]).index_add(0, self.rows.flatten(), messages).view(-1, *z[:, 0].shape)

    def at_relations(self, x: Tensor) -> Tensor:
        """The sums (L, 2R + 2, C) of x (nodes, L, C) over the tails of each relation."""
        known: Tensor = _BagSums.apply(x.flatten(1), self.tails_of, self.relations_of)  # type: ignore[no-untyped-call]
        new = (x.flatten(0, 1)[self.rows] * self.shares.unsqueeze(-1)).sum(1)  # (L, 2, C)
        return torch.cat([known.view(-1, *x.shape[1:]).transpose(0, 1), new], 1)


def _bags(order: EdgeOrder, relations: int) -> tuple[Bags, Bags]:
    """The relations that each entity is a tail of, and the tails of each relation, given edges sorted by tail."""
    pairs = order.row_edges(False)
    entities = torch.arange(len(pairs.pairs) - 1, dtype=torch.int32, device=order.row.device)
    entities = entities.repeat_interleave(pairs.pairs.diff().long())
    at = pairs.relations.argsort(stable=True)
    ids = torch.arange(relations + 1, device=order.row.device)
    tails = Bags.of(entities[at], torch.searchsorted(pairs.relations[at], ids))
    return Bags.of(pairs.relations.int(), pairs.pairs), tails


class _BagSums(torch.autograd.Function):
    """The sums of rows over bags; `transposed` has, for each row, the bags that it is a member of."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, bags: Bags, transposed: Bags) -> Tensor:
        ctx.transposed = transposed
        return bags.sums(rows)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        return ctx.transposed.sums(slopes[0].contiguous()), None, None
