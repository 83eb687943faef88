"""ULTRA as plain loops in double precision: one edge, one relation, one entity at a time.

Graph. E holds every triple (h, r, t), its inverse (t, r⁻¹, h), and for the references (a, b) of the new relation n the
edges (a, n, b) and (b, n⁻¹, a).

Graph of relations. H(r) and T(r) are the sets of heads and of tails of r in E. For every pair of relations (r, s) there
is an edge of kind 0 if H(r) and H(s) have an entity in common, 1 if T(r) and T(s) have, 2 if H(r) and T(s) have, 3 if
T(r) and H(s) have.

Layers over relations, with labels y_n = 1 (all ones), y_r = 0 for the others; z starts as y, N = layer norm:

    m_r = y_r + Σ over edges (r, s) of kind k of  v_k ⊙ z_s          z_r ← z_r + ReLU(N(A [z_r; m_r] + a))

Layers over entities, with labels y_head = z_n and 0 for the others; x starts as y; p_r = P₂ ReLU(P₁ z_r + c₁) + c₂:

    m_h = y_h + Σ over edges (h, r, t) of  p_r ⊙ x_t                 x_h ← x_h + ReLU(N(A [x_h; m_h] + a))

Each layer has its own v, P, c, A, a and N. Score of t: w · ReLU(W [x_t; z_n] + b) + b₀.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fewlink.graph import Graph

Pair = tuple[int, int]
Edge = tuple[int, int, int]


def edges_with(graph: Graph, references: Sequence[Pair], hidden: Sequence[int] = ()) -> list[Edge]:
    """E without the edges of hidden relations and of their inverses; the new relation is 2R, its inverse 2R + 1."""
    half = len(graph.relations)
    triples = [(int(h), int(r), int(t)) for h, r, t in graph.triples() if int(r) not in hidden]
    edges = [*triples, *((t, r + half, h) for h, r, t in triples)]
    for a, b in references:
        edges += [(a, 2 * half, b), (b, 2 * half + 1, a)]
    return edges


class LiteralUltra:
    """The network with the parameters of another, by name, in double precision."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self.p = {name: value.detach().double().requires_grad_() for name, value in parameters.items()}
        self.width = len(self.p["entity_model.layers.0.linear.bias"])

    def depth(self, layers: str) -> int:
        return sum(name.startswith(f"{layers}.") and name.endswith(".linear.bias") for name in self.p)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return self.p[f"{name}.weight"] @ x + self.p[f"{name}.bias"]

    def mlp(self, name: str, x: Tensor) -> Tensor:
        return self.linear(f"{name}.2", positive(self.linear(f"{name}.0", x)))

    def moved(self, name: str, x: Tensor, m: Tensor) -> Tensor:
        y = self.linear(f"{name}.linear", torch.cat([x, m]))
        y = (y - y.mean()) / ((y - y.mean()).square().mean() + 1e-5).sqrt()
        y = y * self.p[f"{name}.layer_norm.weight"] + self.p[f"{name}.layer_norm.bias"]
        return x + positive(y)

    def zeros(self, count: int) -> list[Tensor]:
        return [torch.zeros(self.width, dtype=torch.float64) for _ in range(count)]

    def relation_vectors(self, edges: Sequence[Edge], relations: int, asked: int) -> list[Tensor]:
        """z of every relation."""
        heads = [{h for h, r, _ in edges if r == own} for own in range(relations)]
        tails = [{t for _, r, t in edges if r == own} for own in range(relations)]
        y = self.zeros(relations)
        y[asked] = torch.ones_like(y[asked])
        z = y
        for number in range(self.depth("relation_model.layers")):
            name = f"relation_model.layers.{number}"
            v, new = self.p[f"{name}.relation.weight"], []
            for r in range(relations):
                m = y[r]
                for s in range(relations):
                    ends = ((heads, heads), (tails, tails), (heads, tails), (tails, heads))
                    for kind, (of_r, of_s) in enumerate(ends):
                        if of_r[r] & of_s[s]:
                            m = m + v[kind] * z[s]
                new.append(self.moved(name, z[r], m))
            z = new
        return z

    def states(
        self, model: str, z: Sequence[Tensor], edges: Sequence[Edge], entities: int, asked: int, head: int
    ) -> list[Tensor]:
        """x of every entity after the layers of a model."""
        y = self.zeros(entities)
        y[head] = z[asked]
        x = y
        for number in range(self.depth(f"{model}.layers")):
            name = f"{model}.layers.{number}"
            p = [self.mlp(f"{name}.relation_projection", own) for own in z]
            m = list(y)
            for h, r, t in edges:
                m[h] = m[h] + p[r] * x[t]
            x = [self.moved(name, own, sums) for own, sums in zip(x, m, strict=True)]
        return x

    def scores(
        self, edges: Sequence[Edge], entities: int, relations: int, asked: int, head: int, labelled: int | None = None
    ) -> Tensor:
        """The scores of all entities as tails of the asked relation for one head; by default it is also labelled."""
        z = self.relation_vectors(edges, relations, asked if labelled is None else labelled)
        x = self.states("entity_model", z, edges, entities, asked, head)
        return torch.stack([self.mlp("entity_model.mlp", torch.cat([own, z[asked]]))[0] for own in x])


def positive(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.zeros_like(x))
