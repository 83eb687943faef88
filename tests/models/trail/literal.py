"""TRAIL's network as plain loops in double precision: one walk, one edge, one entity, one query at a time.

Edges. E holds every triple (h, r, t) and its inverse (t, r⁻¹, h), relations r⁻¹⁻¹ = r. out(h, r) is the number of tails
of h with r, and in(t, r) = out(t, r⁻¹). A task sees the edges of E whose relation is visible. Its K references
(a₁, b₁), …, (a_K, b_K), all different, are edges of a new relation n, their inverses edges of n⁻¹, with out and in
counted among them; V holds the visible edges and these.

Walks. For reference k, V_k is V without the edge of the reference and its inverse. For m = 1, 2, 3 and each position
p ≤ m, over all walks a = e₀ –r₁→ e₁ … –r_m→ e_m = b in V_k with r_p = r:

    f(r, m, p, k) = Σ Π 1 / out(e_{i-1}, r_i)        g(r, m, p, k) = Σ Π 1 / in(e_i, r_i)

Features of relation r (29): for each (m, p) in order, chance(v) = log(1 + 1000 v) / log 1001,

    Σ_k chance(f) / K,   Σ_k chance(g) / K,   Σ_k [f > 0] / K                                     18 numbers
    A(r, 1), A(r, 2): the share of references whose head, whose tail has r; of n and n⁻¹, through another reference  2
    log(1 + T) / 10, log(1 + H) / 10, log(1 + B) / 10, log(1 + T / H) / 4, log(1 + T / B) / 4       5
    log(K) / 2; 1 for `same`, for `contain`, for n and n⁻¹                                          4

with T triples, H heads and B tails of r in E or among the references. Facts of the task (12): log(K) / 2; distinct
heads / K, tails / K; the means of log(1 + edges) / 8 of the references' heads and tails, with visible edges of E but
for those of names; the share of references with the most frequent head, tail; of those whose inverse is a reference; of
those whose head is the tail of one; the share of references joined by a walk of one, of two, of three hops.

Relations. z_r = MLP(features of r), 0 if r is hidden. For visible r, s of E, C(r, s) = (entities with r and s in E) /
(the same, over all visible s). C(r, n) and C(r, n⁻¹) are the shares of the entities with r that are heads, that are
tails of references; C(n, s) is A(s, 1) / Σ A(·, 1) over s of E, C(n⁻¹, s) the same with A(·, 2); C(n, n), C(n, n⁻¹),
C(n⁻¹, n) and C(n⁻¹, n⁻¹) are A(n, 1), A(n⁻¹, 1), A(n, 2), A(n⁻¹, 2). A layer, with N = layer norm:

    z_r ← z_r + ReLU(N(W [z_r; Σ_s C(r,s) z_s; Σ_s C(r,s) z_{s⁻¹}; Σ_s C(r⁻¹,s) z_{s⁻¹}; Σ_s C(r⁻¹,s) z_s] + b))

and 0 if r is hidden. The task: q = MLP([Σ_s C(n,s) z_s, Σ_s C(n⁻¹,s) z_s over s of E; facts; z_n; z_n⁻¹]).

Propagation. Two streams d = 1, 2. Weights of layer l: w_r = (U z_r + u)_{d,l} for visible r, and for n and n⁻¹ also
+ (U' q + u')_{d,l}. States start at 0. In the first stream the mark (M q + m)₁ is added at the head asked about; in the
second one (M q + m)₂ at each entity that is the head of a reference, (M q + m)₃ at each that is a tail. Each layer:

    s_t = Σ_{(h, r, t) in V} c(h, r, t) ⊙ w_r ⊙ x_h        x_t ← x_t + ReLU(gain ⊙ N'(x_t A + asinh(s_t) B))

c has four equal blocks: 1 / out(h, r), 1 / in(t, r), √ of their product, and 1; N' is a layer norm without gain and
bias. Score of candidate t: v · ReLU(P [x_t; x'_t] + P' q + P'' (cosines of names) + p) + v₀.

C, 1 / out and 1 / in, and the features of tasks are rounded to float32, as the network keeps them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fewlink.graph import Graph
from fewlink.models.trail.network import Shape

EPS = 1e-5
Edge = tuple[int, int, int]
Pair = tuple[int, int]
POSITIONS = [(n, p) for n in (1, 2, 3) for p in range(1, n + 1)]
HEAD, TAIL = 0, 1


def stored(value: float) -> float:
    """As float32 holds it."""
    return float(np.float32(value))


class LiteralGraph:
    """E, and what is counted in it; the last `named` relations are those of names."""

    def __init__(self, graph: Graph, named: int = 0) -> None:
        self.entities, self.half, self.named = len(graph.entities), len(graph.relations), named
        triples = [(int(h), int(r), int(t)) for h, r, t in graph.triples()]
        self.edges: list[Edge] = [*triples, *((t, r + self.half, h) for h, r, t in triples)]
        self.relations = range(2 * self.half)

    def owners(self, relation: int) -> set[int]:
        return {h for h, r, _ in self.edges if r == relation}

    def together(self, relation: int, other: int) -> float:
        """The share of the entities with a relation of E that have another, adding up to 1."""
        own = self.owners(relation)
        counts = [len(own & self.owners(s)) for s in self.relations]
        return stored(counts[other] / sum(counts)) if own else 0.0

    def flags(self, relation: int) -> list[float]:
        """1 for `same`, for `contain`."""
        place = relation % self.half - (self.half - self.named)
        return [float(bool(self.named) and place == each) for each in (0, 1)]


class LiteralTask:
    """References on a graph with hidden relations, and their features."""

    def __init__(self, graph: LiteralGraph, references: Sequence[Pair], hidden: Sequence[int]) -> None:
        self.graph, self.references, self.shots = graph, references, len(references)
        self.new, self.new_inverse = 2 * graph.half, 2 * graph.half + 1
        self.visible = [r for r in graph.relations if r not in hidden]
        self.relations = [*self.visible, self.new, self.new_inverse]
        self.own = [(a, self.new, b) for a, b in references] + [(b, self.new_inverse, a) for a, b in references]
        self.edges = [edge for edge in graph.edges if edge[1] in self.visible] + self.own
        every = graph.edges + self.own
        self.outs = Counter((h, r) for h, r, _ in every)
        self.intos = Counter((t, r) for _, r, t in every)

    def inverse(self, relation: int) -> int:
        if relation >= 2 * self.graph.half:
            return self.new + self.new_inverse - relation
        return (relation + self.graph.half) % (2 * self.graph.half)

    def constants(self, edge: Edge, width: int) -> Tensor:
        """c: (width,)."""
        head, relation, tail = edge
        out, into = stored(1 / self.outs[head, relation]), stored(1 / self.intos[tail, relation])
        blocks = [out, into, math.sqrt(out * into), 1.0]
        return torch.tensor([blocks[i // (width // 4)] for i in range(width)], dtype=torch.float64)

    def walks(self, edges: Sequence[Edge], entity: int, hops: int) -> Iterator[list[Edge]]:
        """All walks of so many hops from an entity."""
        if hops == 0:
            yield []
            return
        for edge in edges:
            if edge[0] == entity:
                for rest in self.walks(edges, edge[2], hops - 1):
                    yield [edge, *rest]

    def joining(self, reference: Pair, hops: int) -> list[list[Edge]]:
        (head, tail), seen = reference, list(self.edges)
        seen.remove((head, self.new, tail))
        seen.remove((tail, self.new_inverse, head))
        return [walk for walk in self.walks(seen, head, hops) if walk[-1][2] == tail]

    def features(self) -> dict[int, list[float]]:
        """The features of each relation, hidden ones included."""
        joined = {(n, k): self.joining(pair, n) for n in (1, 2, 3) for k, pair in enumerate(self.references)}
        found = {}
        for relation in [*self.graph.relations, self.new, self.new_inverse]:
            numbers = []
            for n, p in POSITIONS:
                forward, back = [0.0] * self.shots, [0.0] * self.shots
                for k in range(self.shots):
                    for walk in joined[n, k]:
                        if walk[p - 1][1] == relation:
                            forward[k] += math.prod(1 / self.outs[h, r] for h, r, _ in walk)
                            back[k] += math.prod(1 / self.intos[t, r] for _, r, t in walk)
                numbers += [sum(map(chance, forward)), sum(map(chance, back)), sum(v > 0 for v in forward)]
            means = [number / self.shots for number in numbers]
            around = [stored(self.share(relation, end)) for end in (HEAD, TAIL)]
            sizes = [stored(size) for size in self.sizes(relation)]
            is_new = relation >= self.new
            flags = [0.0, 0.0, 1.0] if is_new else [*self.graph.flags(relation), 0.0]
            found[relation] = [*means, *around, *sizes, stored(math.log(self.shots) / 2), *flags]
        return found

    def sizes(self, relation: int) -> list[float]:
        own = [(h, t) for h, r, t in self.graph.edges + self.own if r == relation]
        triples, heads, tails = len(own), len({h for h, _ in own}), len({t for _, t in own})
        logs = [math.log1p(n) / 10 for n in (triples, heads, tails)]
        return [*logs, math.log1p(triples / max(1, heads)) / 4, math.log1p(triples / max(1, tails)) / 4]

    def share(self, relation: int, end: int) -> float:
        """A: the share of references whose head (whose tail) has a visible relation, or another reference."""
        own = self.new if end == HEAD else self.new_inverse
        if relation >= self.new:
            needed = 2 if relation == own else 1
            return sum(self.outs[pair[end], relation] >= needed for pair in self.references) / self.shots
        if relation not in self.visible:
            return 0.0
        owners = self.graph.owners(relation)
        return sum(pair[end] in owners for pair in self.references) / self.shots

    def together(self, relation: int, other: int) -> float:
        """C(r, s)."""
        graph = self.graph
        if relation < self.new and other < self.new:
            if relation not in self.visible or other not in self.visible:
                return 0.0
            return graph.together(relation, other) / max(sum(graph.together(relation, s) for s in self.visible), 1e-6)
        if relation < self.new:
            if relation not in self.visible:
                return 0.0
            ends = {pair[HEAD if other == self.new else TAIL] for pair in self.references}
            owners = graph.owners(relation)
            return stored(len(owners & ends) / max(1, len(owners)))
        end = HEAD if relation == self.new else TAIL
        if other >= self.new:
            return stored(self.share(other, end))
        total = sum(stored(self.share(s, end)) for s in self.visible)
        return stored(self.share(other, end)) / max(total, 1e-6)

    def degree(self, entity: int) -> int:
        """The visible edges of an entity that are not of names."""
        half, named = self.graph.half, self.graph.named
        return sum(h == entity and r < self.new and r % half < half - named for h, r, _ in self.edges)

    def facts(self) -> list[float]:
        ends = [[pair[end] for pair in self.references] for end in (HEAD, TAIL)]
        numbers = [
            math.log(self.shots) / 2,
            *(len(set(own)) / self.shots for own in ends),
            *(sum(math.log1p(self.degree(e)) for e in own) / self.shots / 8 for own in ends),
            *(max(Counter(own).values()) / self.shots for own in ends),
            sum((b, a) in self.references for a, b in self.references) / self.shots,
            sum(a in ends[TAIL] for a in ends[HEAD]) / self.shots,
        ]
        hops = [sum(bool(self.joining(pair, n)) for pair in self.references) / self.shots for n in (1, 2, 3)]
        return [*map(stored, numbers), *hops]


def chance(value: float) -> float:
    return math.log(1 + 1000 * value) / math.log(1001)


class LiteralNetwork:
    """The network with the parameters of another, by name, in double precision."""

    def __init__(self, parameters: Mapping[str, Tensor], shape: Shape) -> None:
        self.p = {name: value.detach().double().requires_grad_() for name, value in parameters.items()}
        self.shape, self.width = shape, shape.width

    def linear(self, name: str, x: Tensor) -> Tensor:
        y = self.p[f"{name}.weight"] @ x
        return y + self.p[f"{name}.bias"] if f"{name}.bias" in self.p else y

    def mlp(self, name: str, x: Tensor) -> Tensor:
        return self.linear(f"{name}.2", positive(self.linear(f"{name}.0", x)))

    def mean(
        self, task: LiteralTask, z: Mapping[int, Tensor], owner: int, others: Sequence[int], turned: bool
    ) -> Tensor:
        """Σ_s C(owner, s) z_s, or z_{s⁻¹} if turned."""
        total = torch.zeros(self.width, dtype=torch.float64)
        for s in others:
            other = task.inverse(s) if turned else s
            if other in z:
                total = total + task.together(owner, s) * z[other]
        return total

    def relation_vectors(self, task: LiteralTask) -> dict[int, Tensor]:
        """z."""
        features = task.features()
        every = [*task.graph.relations, task.new, task.new_inverse]
        z = {r: self.mlp("read_relation", number(features[r])) for r in task.relations}
        for layer in range(self.shape.relation_layers):
            name, new = f"relation_layers.{layer}", {}
            for r in task.relations:
                back = task.inverse(r)
                around = ((r, False), (r, True), (back, True), (back, False))
                parts = [z[r], *(self.mean(task, z, owner, every, turned) for owner, turned in around)]
                y = normed(self.linear(f"{name}.linear", torch.cat(parts)))
                new[r] = z[r] + positive(y * self.p[f"{name}.norm.weight"] + self.p[f"{name}.norm.bias"])
            z = new
        return z

    def task_vector(self, task: LiteralTask, z: Mapping[int, Tensor]) -> Tensor:
        """q."""
        around = [self.mean(task, z, new, task.graph.relations, False) for new in (task.new, task.new_inverse)]
        parts = [*around, number(task.facts()), z[task.new], z[task.new_inverse]]
        return self.mlp("read_task", torch.cat(parts))

    def states(self, task: LiteralTask, head: int) -> tuple[list[list[Tensor]], Tensor]:
        """x of every entity after the last layer of both streams, and q."""
        z = self.relation_vectors(task)
        q = self.task_vector(task, z)
        shape = (2, self.shape.layers, self.width)
        weights = {r: self.linear("relation_weights", z[r]).view(shape) for r in z}
        of_task = self.linear("new_weights", q).view(2, self.shape.layers, 2, self.width)
        for place, r in enumerate((task.new, task.new_inverse)):
            weights[r] = weights[r] + of_task[:, :, place]
        marks = self.linear("marks", q).split(self.width)
        begins = [
            [(head, marks[0])],
            [(e, marks[1 + end]) for end in (0, 1) for e in {p[end] for p in task.references}],
        ]
        constants = {edge: task.constants(edge, self.width) for edge in task.edges}
        streams = []
        for stream, begin in enumerate(begins):
            x = [torch.zeros(self.width, dtype=torch.float64) for _ in range(task.graph.entities)]
            for entity, mark in begin:
                x[entity] = x[entity] + mark
            for layer in range(self.shape.layers):
                sums = [torch.zeros(self.width, dtype=torch.float64) for _ in x]
                for h, r, t in task.edges:
                    sums[t] = sums[t] + constants[h, r, t] * weights[r][stream, layer] * x[h]
                name = f"layers.{stream}.{layer}"
                from_state, from_sums, gain = (self.p[f"{name}.{each}"] for each in ("from_state", "from_sums", "gain"))
                x = [
                    own + positive(gain * normed(own @ from_state + arcsinh(s) @ from_sums))
                    for own, s in zip(x, sums, strict=True)
                ]
            streams.append(x)
        return streams, q

    def scores(self, task: LiteralTask, head: int, candidates: Sequence[int], cosines: Tensor | None = None) -> Tensor:
        """The scores of candidates for one head: (C,), given the cosines of their names (C, 9)."""
        (of_head, of_references), q = self.states(task, head)
        found = []
        for place, c in enumerate(candidates):
            inner = self.linear("of_state", torch.cat([of_head[c], of_references[c]])) + self.linear("of_task", q)
            if cosines is not None:
                inner = inner + self.linear("of_names", cosines[place])
            found.append(self.linear("last", positive(inner))[0])
        return torch.stack(found)


def literal_cosines(
    vectors: Mapping[int, Sequence[float]], references: Sequence[Pair], head: int, candidate: int
) -> list[float]:
    """The nine numbers that names say of one pair, given the vector of each entity, of length 1 or 0."""

    def cosine(a: Sequence[float], b: Sequence[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    h, c = vectors[head], vectors[candidate]
    to_tails = [cosine(c, vectors[b]) for _, b in references]
    to_heads = [cosine(c, vectors[a]) for a, _ in references]
    head_to_heads = [cosine(h, vectors[a]) for a, _ in references]
    steps = [[y - x for x, y in zip(vectors[a], vectors[b], strict=True)] for a, b in references]
    moved = [own + sum(step[i] for step in steps) / len(references) for i, own in enumerate(h)]
    length = max(math.sqrt(cosine(moved, moved)), 1e-12)
    alike = sum(max(x, 0) * max(y, 0) for x, y in zip(to_tails, head_to_heads, strict=True))
    return [
        cosine(c, h),
        max(0, *to_tails),
        sum(to_tails) / len(references),
        sum(to_heads) / len(references),
        alike / len(references),
        cosine(c, moved) / length,
        max(0, *head_to_heads),
        float(any(c)),
        float(any(h)),
    ]


def number(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def positive(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.zeros_like(x))


def arcsinh(x: Tensor) -> Tensor:
    return torch.sign(x) * torch.log(x.abs() + torch.sqrt(x * x + 1))


def normed(x: Tensor) -> Tensor:
    centred = x - x.sum() / len(x)
    return centred / torch.sqrt((centred * centred).sum() / len(x) + EPS)
