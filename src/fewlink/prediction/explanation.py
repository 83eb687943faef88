"""Why a pair has its score: evidence, paths, references and neighbours with readable names, also as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

import numpy as np

from fewlink.graph import Graph
from fewlink.prediction.names import Entity, entity_of
from fewlink.scorers import ExplainingScorer, Question, Reasons, Scorer

MENTIONED = 3  # paths and neighbours in sentences
LEAST = 0.005  # contributions to the score below this are not mentioned
End = Literal["head", "tail"]


@dataclass(frozen=True)
class Step:
    """One hop of a path along a relation, or against it if `inverse`."""

    relation: str
    inverse: bool


@dataclass(frozen=True)
class Path:
    """A sequence of relations that connects references as it connects this pair, and what it adds to the score.

    `entities` are those of one such path, head and tail included: one more than steps, or empty if none exists.
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
    """A reference and its attention (β); None if the model has no attention over references."""

    head: Entity
    tail: Entity
    weight: float | None


@dataclass(frozen=True)
class Neighbour:
    """A neighbour of the pair's head or tail (`of`), with its weight.

    For FSRL and its variants the weight is the encoder's attention (α); for TRAIL the neighbour is an edge that the
    tail shares with the references' tails, and rarer edges have larger weights.
    """

    of: End
    relation: str
    inverse: bool
    entity: Entity
    weight: float


@dataclass(frozen=True)
class Explanation:
    """What contributed to the score of one pair.

    `shares`: what each kind of evidence adds to the score, largest first, and `evidence` describes the kinds; both are
    empty for models that do not provide them.
    """

    head: Entity
    tail: Entity
    score: float
    shares: dict[str, float]
    paths: tuple[Path, ...]
    references: tuple[Reference, ...]
    neighbours: tuple[Neighbour, ...]
    shared: bool = False  # whether neighbours are shared with the references' tails, or weighted by attention
    evidence: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, texts and numbers for JSON, sentences included."""
        return {**asdict(self), "sentences": self.sentences()}

    def sentences(self) -> list[str]:
        """The reasons in plain English, the strongest first."""
        sentences = [f"{self.head.name} → {self.tail.name} has a score of {self.score:.2f}."]
        sentences += self._evidence()
        helping = [path for path in self.paths if path.weight >= LEAST][:MENTIONED]
        if helping:
            kind = "Paths" if len(helping) > 1 else "A path"
            sentences.append(f"{kind} like those between the references: {'; '.join(map(str, helping))}.")
        sentences += self._references()
        for end in (self.tail, self.head):
            sentences += self._neighbours(end, "tail" if end is self.tail else "head")
        return sentences

    def _evidence(self) -> list[str]:
        """The evidence for the pair and the evidence against it."""
        sides = {
            "Evidence for it": {kind: share for kind, share in self.shares.items() if share >= LEAST},
            "Evidence against it": {kind: share for kind, share in reversed(self.shares.items()) if share <= -LEAST},
        }
        return [
            f"{side}: {', '.join(f'{self.evidence.get(kind, kind)} ({share:+.2f})' for kind, share in shares.items())}."
            for side, shares in sides.items()
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
        nearby = [n for n in self.neighbours if n.of == which and n.weight > 0][:MENTIONED]
        if not nearby:
            return []
        named = ", ".join(
            f"{hop(n.relation, n.inverse)} {n.entity.name}" + ("" if self.shared else f" ({n.weight:.0%})")
            for n in nearby
        )
        if self.shared:
            return [f"{end.name} shares with the references' tails: {named}."]
        return [f"Neighbours of {end.name} with most attention: {named}."]


def hop(relation: str, inverse: bool) -> str:
    """A relation as an arrow."""
    return f"←{relation}—" if inverse else f"—{relation}→"


def explain_pair(
    scorer: Scorer, graph: Graph, references: np.ndarray, head: int, tail: int, most: int = 5
) -> Explanation:
    """Why a scorer gives a pair its score, given references (K, 2); scorers without reasons give only the score."""
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
    """The entities of a path from head to tail along these relations, inverse ones included; empty if there is none.

    Of several paths it takes one over entities with few edges, which tell more, and avoids repeated entities.
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


def step_of(graph: Graph, relation: int) -> Step:
    inverse, forward = divmod(relation, len(graph.relations))
    return Step(graph.relation_name(forward), bool(inverse))


def neighbour_of(graph: Graph, which: str, relation: int, entity: int, weight: float) -> Neighbour:
    step = step_of(graph, relation)
    return Neighbour(cast(End, which), step.relation, step.inverse, entity_of(graph, entity), weight)


def references_with(graph: Graph, references: np.ndarray, weights: Sequence[float]) -> tuple[Reference, ...]:
    """References with their weights, if there are any."""
    each: Sequence[float | None] = weights or [None] * len(references)
    return tuple(
        Reference(entity_of(graph, int(head)), entity_of(graph, int(tail)), weight)
        for (head, tail), weight in zip(references, each, strict=True)
    )
