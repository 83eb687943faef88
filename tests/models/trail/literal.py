"""TRAIL's network as plain loops in double precision: one walk, one edge, one entity, one query at a time.

Edges. E holds every triple (h, r, t) and its inverse (t, r⁻¹, h), relations r⁻¹⁻¹ = r. out(h, r) is the number of tails
of h with r, and in(t, r) = out(t, r⁻¹). A task sees the edges of E whose relation is visible, V of them. K references
(a₁, b₁), …, (a_K, b_K); references with weight 0 are padding and left out from the beginning.

Walks. For n = 1, 2, 3 and each position p ≤ n, over all walks a = e₀ –r₁→ e₁ … –r_n→ e_n = b in V with r_p = r:

    f(r, n, p, a, b) = Σ Π 1 / out(e_{i-1}, r_i)        g(r, n, p, a, b) = Σ Π 1 / in(e_i, r_i)

Features of relation r (26): for each (n, p) in order, chance(v) = log(1 + 1000 v) / log 1001,

    Σ_k chance(f) / K,   Σ_k chance(g) / K,   Σ_k [f > 0] / K                                     18 numbers
    share of references whose head has r in V; whose tail has r in V                                2
    log(1 + T) / 10, log(1 + H) / 10, log(1 + B) / 10, log(1 + T / H) / 4, log(1 + T / B) / 4       5
    log(K) / 2                                                                                      1

with T triples, H heads and B tails of r in E. Features of the task (8): log(K) / 2; the share of references joined by a
walk of one, of two, of three hops; distinct heads / K; distinct tails / K; the means of log(1 + edges) / 8 of the
references' heads and tails, with edges counted in E.

Relations. z_r = MLP(features of r), 0 if r is hidden. C(r, s) = (entities with r and s in E) / (the same, over all s).
A layer, with N = layer norm:

    z_r ← z_r + ReLU(N(W [z_r; Σ_s C(r,s) z_s; Σ_s C(r,s) z_{s⁻¹}; Σ_s C(r⁻¹,s) z_{s⁻¹}; Σ_s C(r⁻¹,s) z_s] + b))

and 0 if r is hidden. The task: q = MLP([mean of z over the relations of references' heads, weighted by their shares;
the same for tails; features of the task]).

Propagation. Weights of layer l: w_r = (U z_r + u)_l for visible r, and n, n' = (U' q + u')_l for the new relation and
its inverse. States start at 0; the mark (M q + m)₁ is added at the head asked about, (M q + m)₂ at each reference's
head, (M q + m)₃ at each reference's tail. Each layer, for every entity t:

    s_t = Σ_{(h, r, t) in V} c(h, r, t) ⊙ w_r ⊙ x_h  +  Σ_{k: b_k = t} n ⊙ x_{a_k}  +  Σ_{k: a_k = t} n' ⊙ x_{b_k}
    x_t ← x_t + ReLU(gain ⊙ N'(x_t A + asinh(s_t) B))

c has four equal blocks: 1 / out(h, r), 1 / in(t, r), √ of their product, and 1; N' is a layer norm without gain and
bias.

Score of candidate t: v · ReLU(P x_t + P' q + p) + v₀.

C, 1 / out and 1 / in are rounded to float32, as the network keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fewlink.graph import Graph

EPS = 1e-5
Edge = tuple[int, int, int]
Pair = tuple[int, int]
POSITIONS = [(n, p) for n in (1, 2, 3) for p in range(1, n + 1)]


def stored(value: float) -> float:
    """As float32 holds it."""
    return float(np.float32(value))


class LiteralGraph:
    """E, and what is counted in it."""

    def __init__(self, graph: Graph) -> None:
        self.entities, self.half = len(graph.entities), len(graph.relations)
        triples = [(int(h), int(r), int(t)) for h, r, t in graph.triples()]
        self.edges: list[Edge] = [*triples, *((t, r + self.half, h) for h, r, t in triples)]
        self.relations = range(2 * self.half)

    def inverse(self, relation: int) -> int:
        return relation - self.half if relation >= self.half else relation + self.half

    def out(self, head: int, relation: int) -> int:
        return sum(h == head and r == relation for h, r, _ in self.edges)

    def into(self, tail: int, relation: int) -> int:
        return sum(t == tail and r == relation for _, r, t in self.edges)

    def constants(self, edge: Edge, width: int) -> Tensor:
        """c: (width,)."""
        head, relation, tail = edge
        out, into = stored(1 / self.out(head, relation)), stored(1 / self.into(tail, relation))
        blocks = [out, into, math.sqrt(out * into), 1.0]
        return torch.tensor([blocks[i // (width // 4)] for i in range(width)], dtype=torch.float64)

    def together(self, relation: int, other: int) -> float:
        """C(r, s)."""
        own = {h for h, r, _ in self.edges if r == relation}
        counts = [len(own & {h for h, r, _ in self.edges if r == s}) for s in self.relations]
        return stored(counts[other] / sum(counts)) if own else 0.0

    def sizes(self, relation: int) -> list[float]:
        own = [(h, t) for h, r, t in self.edges if r == relation]
        triples, heads, tails = len(own), len({h for h, _ in own}), len({t for _, t in own})
        logs = [math.log1p(n) / 10 for n in (triples, heads, tails)]
        return [*logs, math.log1p(triples / max(1, heads)) / 4, math.log1p(triples / max(1, tails)) / 4]

    def degree(self, entity: int) -> int:
        return sum(h == entity for h, _, _ in self.edges)


class LiteralTask:
    """References on a graph with hidden relations, and their features."""

    def __init__(self, graph: LiteralGraph, references: Sequence[Pair], hidden: Sequence[int]) -> None:
        self.graph, self.references, self.shots = graph, references, len(references)
        self.visible = [r for r in graph.relations if r not in hidden]
        self.edges = [edge for edge in graph.edges if edge[1] in self.visible]

    def walks(self, entity: int, hops: int) -> Iterator[list[Edge]]:
        """All walks of so many hops from an entity."""
        if hops == 0:
            yield []
            return
        for edge in self.edges:
            if edge[0] == entity:
                for rest in self.walks(edge[2], hops - 1):
                    yield [edge, *rest]

    def joining(self, reference: Pair, hops: int) -> list[list[Edge]]:
        head, tail = reference
        return [walk for walk in self.walks(head, hops) if walk[-1][2] == tail]

    def features(self) -> dict[int, list[float]]:
        """The features of each relation."""
        graph, joined = self.graph, {}
        for n in (1, 2, 3):
            for k, reference in enumerate(self.references):
                joined[n, k] = self.joining(reference, n)
        found = {}
        for relation in graph.relations:
            numbers = []
            for n, p in POSITIONS:
                forward, back = [0.0] * self.shots, [0.0] * self.shots
                for k in range(self.shots):
                    for walk in joined[n, k]:
                        if walk[p - 1][1] == relation:
                            forward[k] += math.prod(1 / graph.out(h, r) for h, r, _ in walk)
                            back[k] += math.prod(1 / graph.into(t, r) for _, r, t in walk)
                numbers += [sum(map(chance, forward)), sum(map(chance, back)), sum(v > 0 for v in forward)]
            around = [self.share(relation, end) for end in (0, 1)]
            means = [number / self.shots for number in numbers]
            found[relation] = [*means, *around, *graph.sizes(relation), math.log(self.shots) / 2]
        return found

    def share(self, relation: int, end: int) -> float:
        """The share of references whose head (whose tail) has a relation."""
        owners = {h for h, r, _ in self.edges if r == relation}
        return sum(pair[end] in owners for pair in self.references) / self.shots

    def task_features(self) -> list[float]:
        hops = [sum(bool(self.joining(pair, n)) for pair in self.references) / self.shots for n in (1, 2, 3)]
        ends = [[pair[end] for pair in self.references] for end in (0, 1)]
        distinct = [len(set(own)) / self.shots for own in ends]
        degrees = [sum(math.log1p(self.graph.degree(e)) for e in own) / self.shots / 8 for own in ends]
        return [math.log(self.shots) / 2, *hops, *distinct, *degrees]


def chance(value: float) -> float:
    return math.log(1 + 1000 * value) / math.log(1001)


class LiteralNetwork:
    """The network with the parameters of another, by name, in double precision."""

    def __init__(self, parameters: Mapping[str, Tensor], width: int, layers: int, relation_layers: int) -> None:
        self.p = {name: value.detach().double().requires_grad_() for name, value in parameters.items()}
        self.width, self.layers, self.relation_layers = width, layers, relation_layers

    def linear(self, name: str, x: Tensor) -> Tensor:
        y = self.p[f"{name}.weight"] @ x
        return y + self.p[f"{name}.bias"] if f"{name}.bias" in self.p else y

    def mlp(self, name: str, x: Tensor) -> Tensor:
        return self.linear(f"{name}.2", positive(self.linear(f"{name}.0", x)))

    def relation_vectors(self, task: LiteralTask) -> dict[int, Tensor]:
        """z."""
        graph, features = task.graph, task.features()
        z = {r: self.mlp("read_relation", number(features[r])) for r in task.visible}
        for layer in range(self.relation_layers):
            name, new = f"relation_layers.{layer}", {}
            for r in task.visible:
                parts = [z[r]]
                for owner, turned in (
                    (r, False),
                    (r, True),
                    (graph.inverse(r), True),
                    (graph.inverse(r), False),
                ):
                    total = torch.zeros(self.width, dtype=torch.float64)
                    for s in graph.relations:
                        other = graph.inverse(s) if turned else s
                        if other in z:
                            total = total + graph.together(owner, s) * z[other]
                    parts.append(total)
                y = normed(self.linear(f"{name}.linear", torch.cat(parts)))
                new[r] = z[r] + positive(y * self.p[f"{name}.norm.weight"] + self.p[f"{name}.norm.bias"])
            z = new
        return z

    def task_vector(self, task: LiteralTask, z: Mapping[int, Tensor]) -> Tensor:
        """q."""
        parts = []
        for end in (0, 1):
            shares = {r: task.share(r, end) for r in z}
            total = torch.zeros(self.width, dtype=torch.float64)
            for r in z:
                total = total + shares[r] * z[r]
            parts.append(total / max(sum(shares.values()), 1e-6))
        return self.mlp("read_task", torch.cat([*parts, number(task.task_features())]))

    def states(self, task: LiteralTask, head: int) -> tuple[list[Tensor], Tensor]:
        """x of every entity after the last layer, and q."""
        graph, width = task.graph, self.width
        z = self.relation_vectors(task)
        q = self.task_vector(task, z)
        of_relations = {r: self.linear("relation_weights", z[r]).split(width) for r in z}
        of_new = self.linear("new_weights", q).split(width)
        marks = self.linear("marks", q).split(width)
        x = [torch.zeros(width, dtype=torch.float64) for _ in range(graph.entities)]
        x[head] = x[head] + marks[0]
        for a, b in task.references:
            x[a] = x[a] + marks[1]
            x[b] = x[b] + marks[2]
        constants = {edge: graph.constants(edge, width) for edge in task.edges}
        for layer in range(self.layers):
            new, new_inverse = of_new[2 * layer], of_new[2 * layer + 1]
            sums = [torch.zeros(width, dtype=torch.float64) for _ in x]
            for h, r, t in task.edges:
                sums[t] = sums[t] + constants[h, r, t] * of_relations[r][layer] * x[h]
            for a, b in task.references:
                sums[b] = sums[b] + new * x[a]
                sums[a] = sums[a] + new_inverse * x[b]
            name = f"layers.{layer}"
            from_state, from_sums, gain = (self.p[f"{name}.{part}"] for part in ("from_state", "from_sums", "gain"))
            x = [
                own + positive(gain * normed(own @ from_state + arcsinh(s) @ from_sums))
                for own, s in zip(x, sums, strict=True)
            ]
        return x, q

    def scores(self, task: LiteralTask, head: int, candidates: Sequence[int]) -> Tensor:
        """The scores of candidates for one head: (C,)."""
        x, q = self.states(task, head)
        found = [self.linear("of_state", x[c]) + self.linear("of_task", q) for c in candidates]
        return torch.stack([self.linear("last", positive(inner))[0] for inner in found])


def number(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def positive(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.zeros_like(x))


def arcsinh(x: Tensor) -> Tensor:
    return torch.sign(x) * torch.log(x.abs() + torch.sqrt(x * x + 1))


def normed(x: Tensor) -> Tensor:
    centred = x - x.sum() / len(x)
    return centred / torch.sqrt((centred * centred).sum() / len(x) + EPS)
