"""Why a tail fits a head, for people: evidence, paths, references and neighbours with names, and as sentences."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

EVIDENCE = {  # the kinds of TRAIL's evidence in words
    "trails": "paths in the graph",
    "bilinear": "the ComplEx vectors",
    "translation": "the TransE vectors",
    "profile": "what kind of thing the tail is",
    "matching": "likeness to the references",
}
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

    `shares`: what each kind of evidence adds to the score, most first; empty for models that do not tell.
    """

    head: Entity
    tail: Entity
    score: float
    shares: dict[str, float]
    paths: tuple[Path, ...]
    references: tuple[Reference, ...]
    neighbours: tuple[Neighbour, ...]
    shared: bool = False  # whether neighbours are shared with the references' tails, or attended to

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
            f"{way}: {', '.join(f'{EVIDENCE.get(kind, kind)} ({share:+.2f})' for kind, share in shares.items())}."
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
