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
REFERENCE = "reference"  # the relation of a step between the ends of a reference
End = Literal["head", "tail"]


@dataclass(frozen=True)
class Step:
    """One hop of a path along a relation, or against it if `inverse`."""

    relation: str
    inverse: bool


@dataclass(frozen=True)
class Path:
    """A sequence of relations that connects this pair, or a reference with its tail, and what it adds to the score.

    `entities` are those of one such path, both ends included: one more than steps, or empty if none exists. `like` is
    the number of references that the same relations join, if they were counted. A step from the head of a reference to
    its tail has the relation "reference".
    """

    steps: tuple[Step, ...]
    weight: float
    entities: tuple[Entity, ...]
    like: int | None = None

    def __str__(self) -> str:
        names = [entity.name for entity in self.entities] or ["head", *["…"] * (len(self.steps) - 1), "tail"]
        hops = [hop(step.relation, step.inverse) for step in self.steps]
        return " ".join([names[0], *(word for both in zip(hops, names[1:], strict=True) for word in both)])


@dataclass(frozen=True)
class Reference:
    """A reference and its attention (β), or what the score loses without it; None if the model has neither."""

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
    empty for models that do not provide them. If `measured`, the numbers of shares, paths and references are what the
    score loses without each of them.
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
    measured: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, texts and numbers for JSON, sentences included."""
        return {**asdict(self), "sentences": self.sentences()}

    def sentences(self) -> list[str]:
        """The reasons in plain English, the strongest first."""
        sentences = [f"{self.head.name} → {self.tail.name} has a score of {self.score:.2f}."]
        if self.measured:
            sentences += [*self._paths(), *self._evidence(), *self._left_out()]
        else:
            sentences += [*self._evidence(), *self._kinds_of_paths(), *self._references()]
        for end in (self.tail, self.head):
            sentences += self._neighbours(end, "tail" if end is self.tail else "head")
        return sentences

    def _paths(self) -> list[str]:
        """The edges from head to tail, then paths from the head, then those from references."""
        from_head = [path for path in self.paths if path.entities[0] == self.head]
        direct = [path for path in from_head if len(path.steps) == 1 and path.like is not None]
        sides = {
            f"{self.head.name} and {self.tail.name} are joined directly": direct,
            f"From {self.head.name}": [path for path in from_head if path not in direct and path.weight >= LEAST],
            "From the references": [p for p in self.paths if p not in from_head and p.weight >= LEAST],
        }
        return [
            f"{side}: {'; '.join(self._counted(path) for path in paths[:MENTIONED])}."
            for side, paths in sides.items()
            if paths
        ]

    def _counted(self, path: Path) -> str:
        like = f"like {path.like} of {len(self.references)} references, " if path.like else ""
        return f"{path} ({like}{path.weight:+.2f})"

    def _kinds_of_paths(self) -> list[str]:
        helping = [path for path in self.paths if path.weight >= LEAST][:MENTIONED]
        if not helping:
            return []
        kind = "Paths" if len(helping) > 1 else "A path"
        return [f"{kind} like those between the references: {'; '.join(map(str, helping))}."]

    def _left_out(self) -> list[str]:
        """What the score would be without the reference that counts most."""
        weighed = [(r.weight, r) for r in self.references if r.weight is not None]
        if not weighed:
            return []
        weight, most = max(weighed, key=lambda pair: pair[0])
        if weight < LEAST:
            return ["The score would not be lower without any single reference."]
        pair = f"{most.head.name} → {most.tail.name}"
        return [f"Of the references, {pair} counts most: without it the score would be {weight:.2f} lower."]

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
    for place, (relations, weight) in enumerate(reasons.paths):
        walked = reasons.entities[place] if reasons.entities else instance(graph, head, relations, tail)
        steps = tuple(step_of(graph, relation) for relation in relations)
        like = None
        if reasons.entities and walked[0] == head and max(relations) < 2 * len(graph.relations):
            like = sum(bool(instance(graph, int(h), relations, int(t))) for h, t in references)
        paths.append(Path(steps, weight, tuple(entity_of(graph, entity) for entity in walked), like))
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
        reasons.measured,
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
    if inverse >= 2:
        return Step(REFERENCE, relation > 2 * len(graph.relations))
    return Step(graph.relation_name(forward), bool(inverse))


def neighbour_of(graph: Graph, which: str, relation: int, entity: int, weight: float) -> Neighbour:
    step = step_of(graph, relation)
    return Neighbour(cast(End, which), step.relation, step.inverse, entity_of(graph, entity), weight)


def references_with(graph: Graph, references: np.ndarray, weights: Sequence[float]) -> tuple[Reference, ...]:
    """References with their weights; those that the scorer did not read have none."""
    each: Sequence[float | None] = [*weights, *[None] * (len(references) - len(weights))]
    return tuple(
        Reference(entity_of(graph, int(head)), entity_of(graph, int(tail)), weight)
        for (head, tail), weight in zip(references, each, strict=True)
    )
