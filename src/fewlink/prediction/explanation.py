"""Why a tail fits a head, for people: evidence, paths, references and neighbours with names, and as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fewlink.graph import Graph
from fewlink.scorers import ExplainingScorer, Question, Reasons, Scorer

TOLD = 3  # paths and neighbours in sentences
LEAST = 0.005  # what adds less is not told


@dataclass(frozen=True)
class Entity:
    """An entity by its id and its readable name."""

    id: str
    name: str


@dataclass(frozen=True)
class Step:
    """One hop of a path along a relation, or against it where `inverse`."""

    relation: str
    inverse: bool


@dataclass(frozen=True)
class Path:
    """A kind of path that joins references as it joins this pair, what it adds to the score, and one that is there.

    `entities` are those of an actual path, head and tail included: one more than steps, or none where there is none.
    """

    steps: tuple[Step, ...]
    weight: float
    entities: tuple[Entity, ...]

    def __str__(self) -> str:
        names = [entity.name for entity in self.entities] or ["head", *["…"] * (len(self.steps) - 1), "tail"]
        hops = [hop(step.relation, step.inverse) for step in self.steps]
        return " ".join([names[0], *(word for both in zip(hops, names[1:], strict=True) for word in both)])


@dataclass(frozen=True)
class Reference:
    """A reference, and the attention (β) it has; None where the model weighs none."""

    head: Entity
    tail: Entity
    weight: float | None


@dataclass(frozen=True)
class Neighbour:
    """A neighbour of the pair's head or tail (`of`), with its weight.

    For FSRL and its kin the weight is the attention (α) that the encoder gave it; for TRAIL it is an edge that the tail
    has in common with references' tails, and the rarer it is, the more it weighs.
    """

    of: str
    relation: str
    inverse: bool
    entity: Entity
    weight: float


@dataclass(frozen=True)
class Explanation:
    """What carried the score of one pair.

    `shares`: what each kind of evidence adds to the score, most first, and `evidence` names the kinds in words; both
    are empty for models that do not say.
    """

    head: Entity
    tail: Entity
    score: float
    shares: dict[str, float]
    paths: tuple[Path, ...]
    references: tuple[Reference, ...]
    neighbours: tuple[Neighbour, ...]
    shared: bool = False  # whether neighbours are shared with the references' tails, or attended to
    evidence: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, texts and numbers, for JSON; with the sentences."""
        return {**asdict(self), "sentences": self.sentences()}

    def sentences(self) -> list[str]:
        """The reasons in plain English, the strongest first."""
        told = [f"{self.head.name} → {self.tail.name} has a score of {self.score:.2f}."]
        told += self._evidence()
        helping = [path for path in self.paths if path.weight >= LEAST][:TOLD]
        if helping:
            kind = "Paths" if len(helping) > 1 else "A path"
            told.append(f"{kind} like those between the references: {'; '.join(map(str, helping))}.")
        told += self._references()
        for end in (self.tail, self.head):
            told += self._neighbours(end, "tail" if end is self.tail else "head")
        return told

    def _evidence(self) -> list[str]:
        """What speaks for the pair, and what against it."""
        ways = {
            "For it": {kind: share for kind, share in self.shares.items() if share >= LEAST},
            "Against it": {kind: share for kind, share in reversed(self.shares.items()) if share <= -LEAST},
        }
        return [
            f"{way}: {', '.join(f'{self.evidence.get(kind, kind)} ({share:+.2f})' for kind, share in shares.items())}."
            for way, shares in ways.items()
            if shares
        ]

    def _references(self) -> list[str]:
        weighed = [(r.weight, r) for r in self.references if r.weight is not None]
        if len(weighed) < 2:
            return []
        weight, most = max(weighed, key=lambda pair: pair[0])
        if weight < 1.1 / len(weighed):
            return ["All references count about the same."]
        pair = f"{most.head.name} → {most.tail.name}"
        return [f"Of the references, {pair} counts most ({weight:.0%} of the attention)."]

    def _neighbours(self, end: Entity, which: str) -> list[str]:
        own = [n for n in self.neighbours if n.of == which and n.weight > 0][:TOLD]
        if not own:
            return []
        named = ", ".join(
            f"{hop(n.relation, n.inverse)} {n.entity.name}" + ("" if self.shared else f" ({n.weight:.0%})") for n in own
        )
        if self.shared:
            return [f"{end.name} has in common with the references' tails: {named}."]
        return [f"What weighs most around {end.name}: {named}."]


def hop(relation: str, inverse: bool) -> str:
    """A relation as an arrow."""
    return f"←{relation}—" if inverse else f"—{relation}→"


def explain(scorer: Scorer, graph: Graph, references: np.ndarray, head: int, tail: int, most: int = 5) -> Explanation:
    """Why a scorer gives a pair its score, given references (K, 2); some scorers say nothing but the score."""
    if isinstance(scorer, ExplainingScorer):
        reasons, evidence = scorer.explain(references, head, tail, most), scorer.evidence
    else:
        score = float(np.asarray(scorer(Question("", references, np.array([head]), np.array([tail]))))[0, 0])
        reasons, evidence = Reasons(score), {}
    graph = reasons.graph or graph
    paths = []
    for relations, weight in reasons.paths:
        walked = instance(graph, head, relations, tail)
        steps = tuple(step_of(graph, relation) for relation in relations)
        paths.append(Path(steps, weight, tuple(entity_of(graph, entity) for entity in walked)))
    return Explanation(
        entity_of(graph, head),
        entity_of(graph, tail),
        reasons.score,
        dict(sorted(reasons.shares.items(), key=lambda share: -share[1])),
        tuple(paths),
        references_with(graph, references, reasons.references),
        tuple(neighbour_of(graph, *edge) for edge in reasons.neighbours),
        reasons.shared,
        evidence,
    )


def instance(graph: Graph, head: int, relations: Sequence[int], tail: int) -> list[int]:
    """The entities of a path from head to tail along these relations, inverse ones included; none where none is there.

    Of several it takes the way over entities with few edges, which says more, and not twice over the same where it can.
    """
    reached = [np.array([head])]
    for relation in relations:
        at, _ = graph.edges_of(reached[-1])
        reached.append(np.unique(graph.tail_ids[at[graph.relation_ids[at] == relation]]))
    if tail not in reached[-1]:
        return []
    walked, count = [int(tail)], len(graph.relations)
    for relation, before in zip(reversed(relations), reversed(reached[:-1]), strict=True):
        back = (relation + count) % (2 * count)
        at, _ = graph.edges_of(np.array([walked[-1]]))
        beside = np.intersect1d(graph.tail_ids[at[graph.relation_ids[at] == back]], before)
        seen = np.isin(beside, [*walked, head])
        walked.append(int(beside[np.lexsort((beside, graph.degrees[beside], seen))[0]]))
    return walked[::-1]


def entity_of(graph: Graph, entity: int) -> Entity:
    return Entity(graph.entities[entity], graph.name(entity))


def step_of(graph: Graph, relation: int) -> Step:
    inverse, forward = divmod(relation, len(graph.relations))
    return Step(graph.relation_name(forward), bool(inverse))


def neighbour_of(graph: Graph, which: str, relation: int, entity: int, weight: float) -> Neighbour:
    step = step_of(graph, relation)
    return Neighbour(which, step.relation, step.inverse, entity_of(graph, entity), weight)


def references_with(graph: Graph, references: np.ndarray, weights: Sequence[float]) -> tuple[Reference, ...]:
    """References with their weights, where there are any."""
    each: Sequence[float | None] = weights or [None] * len(references)
    return tuple(
        Reference(entity_of(graph, int(head)), entity_of(graph, int(tail)), weight)
        for (head, tail), weight in zip(references, each, strict=True)
    )
