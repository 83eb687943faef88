"""TRIX as plain loops in double precision: one entity, one pair of its relations at a time.

The equations are those in `fewlink.models.trix.network`; edges and the layers over entities are as in
`tests.models.ultra.literal`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tests.models.ultra.literal import Edge, LiteralUltra
from torch import Tensor


class LiteralTrix(LiteralUltra):
    """The network with the parameters of another, by name, in double precision."""

    def relation_layer(
        self, number: int, z: list[Tensor], y: list[Tensor], n: list[Tensor], edges: Sequence[Edge]
    ) -> list[Tensor]:
        """z of every relation after a layer, given n of every entity."""
        heads = [{r for h, r, _ in edges if h == e} for e in range(len(n))]
        tails = [{r for _, r, t in edges if t == e} for e in range(len(n))]
        kinds = {"hh": (heads, heads), "ht": (heads, tails), "th": (tails, heads), "tt": (tails, tails)}
        moved = z
        for kind, (own, others) in kinds.items():
            name = f"relation_model.layers_{kind}.{number}"
            m = list(y)
            for e, features in enumerate(n):
                p = self.mlp(f"{name}.relation_projection", features)
                for r in own[e]:
                    for s in others[e]:
                        if r != s or kind in ("ht", "th"):
                            m[r] = m[r] + p * z[s]
            changes = [self.moved(name, vector, sums) - vector for vector, sums in zip(z, m, strict=True)]
            moved = [vector + change for vector, change in zip(moved, changes, strict=True)]
        return moved

    def scores(
        self, edges: Sequence[Edge], entities: int, relations: int, asked: int, head: int, labelled: int | None = None
    ) -> Tensor:
        """The scores of all entities as tails of the asked relation for one head; by default it is also labelled."""
        y = self.zeros(relations)
        y[asked if labelled is None else labelled] = torch.ones(self.width, dtype=torch.float64)
        n = [torch.ones(self.width, dtype=torch.float64) for _ in range(entities)]
        z = self.relation_layer(0, y, y, n, edges)
        x = self.states("entity_model_mini", z, edges, entities, asked, head)
        n = [self.linear("relation_model.node_mlp", torch.cat([own, z[asked]])) for own in x]
        for number in range(1, self.depth("relation_model.layers_hh")):
            z = self.relation_layer(number, z, y, n, edges)
        x = self.states("entity_model", z, edges, entities, asked, head)
        return torch.stack([self.mlp("entity_model.mlp", torch.cat([own, z[asked]]))[0] for own in x])
