"""TRAIL: evidence of several kinds about each pair, weighed by how reliable each is; its compositions and settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from fewlink.base.errors import choose
from fewlink.trail_0_1.context import GraphContext, ModelInputs
from fewlink.trail_0_1.evidence import KINDS, kinds_of, scoring_kinds
from fewlink.trail_0_1.evidence.base import Evidence, network
from fewlink.training.family import ModelSettings


class Weighing(nn.Module):
    """Σ_i x_i · (w_i + gate_i(r)) + network(x, r) of evidence x, by the reliability r of the kinds."""

    def __init__(self, width: int, reliability: int, hidden: int = 32, dropout: float = 0.1) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(width))
        self.gate = network(reliability, 16, width)
        self.network = network(width + reliability, hidden, 1)
        self.dropout = nn.Dropout(dropout)
        for parameter in self.gate[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self, evidence: Tensor, reliability: Tensor) -> Tensor:
        """Evidence (…, width) and reliability (n,) to scores (…)."""
        both = torch.cat([evidence, reliability.expand(*evidence.shape[:-1], -1)], -1)
        gated = evidence @ (self.weights + self.gate(reliability))
        scores: Tensor = gated + self.network(self.dropout(both)).squeeze(-1)
        return scores


class BlindWeighing(Weighing):
    """The same weights whatever the references: their reliability is not seen."""

    def forward(self, evidence: Tensor, reliability: Tensor) -> Tensor:
        return super().forward(evidence, torch.zeros_like(reliability))


class TrailComposition(NamedTuple):
    """What a model of TRAIL's family is composed of.

    `kinds` of evidence are weighed. `scoring` are the kinds with a score of their own: their reliability is measured
    and they propose hard negatives, in ablations too, so that nothing but the evidence differs.
    """

    kinds: tuple[str, ...]
    scoring: tuple[str, ...]
    weighing: type[Weighing]
    about: str


class Trail(nn.Module):
    """Evidence of several kinds about each pair, and how it is weighed."""

    def __init__(self, composition: TrailComposition, dropout: float = 0.1) -> None:
        super().__init__()
        parts: Mapping[str, Evidence] = {kind.kind: kind() for kind in kinds_of(composition.kinds)}
        self.composition, self.parts = composition, nn.ModuleDict(parts)
        self.widths = {kind: part.width for kind, part in parts.items()}
        reliability = 2 * len(composition.scoring) + 2
        self.weighing = composition.weighing(sum(self.widths.values()), reliability, dropout=dropout)

    def fit_scale(self, inputs: Sequence[ModelInputs]) -> None:
        """Set the scale of all kinds' columns from several episodes."""
        for kind, part in self.evidence_parts().items():
            part.fit_scale([each.features[kind] for each in inputs])

    def evidence_parts(self) -> dict[str, Evidence]:
        """The kinds of evidence by name."""
        return {kind: part for kind, part in self.parts.items() if isinstance(part, Evidence)}

    def evidence(self, inputs: ModelInputs, graph: GraphContext) -> Tensor:
        """All evidence, one kind after the other: (H, C, width)."""
        return torch.cat([part(inputs, graph) for part in self.parts.values()], -1)

    def forward(self, inputs: ModelInputs, graph: GraphContext) -> Tensor:
        """Scores (H, C)."""
        scores: Tensor = self.weighing(self.evidence(inputs, graph), inputs.reliability)
        return scores

    def shares(self, inputs: ModelInputs, graph: GraphContext) -> dict[str, Tensor]:
        """For each kind of evidence, what it adds to the scores (H, C): without it they would be that much lower."""
        evidence = self.evidence(inputs, graph)
        scores, parts = self.weighing(evidence, inputs.reliability), evidence.split(list(self.widths.values()), -1)
        shares = {}
        for kind in self.widths:
            rest = [part * (kind != other) for other, part in zip(self.widths, parts, strict=True)]
            shares[kind] = scores - self.weighing(torch.cat(rest, -1), inputs.reliability)
        return shares


def compositions() -> dict[str, TrailComposition]:
    """The models by name: TRAIL with all kinds of evidence, without each of them, and blind to reliability."""
    kinds, scoring = tuple(KINDS), tuple(scoring_kinds(KINDS))
    return {
        "trail-0.1": TrailComposition(
            kinds, scoring, Weighing, "TRAIL 0.1: paths, vectors, profiles and references, weighed"
        ),
        **{
            f"trail-0.1-no-{kind}": TrailComposition(
                tuple(other for other in kinds if other != kind),
                scoring,
                Weighing,
                f"TRAIL 0.1 without {kind}",
            )
            for kind in kinds
        },
        "trail-0.1-no-reliability": TrailComposition(
            kinds, scoring, BlindWeighing, "TRAIL 0.1 that does not see how reliable evidence is"
        ),
    }


def build(name: str, dropout: float = 0.1) -> Trail:
    """A model with fresh parameters."""
    return Trail(choose("model", name, compositions()), dropout)


@dataclass(frozen=True)
class Trail01Settings(ModelSettings):
    """How TRAIL is trained.

    model                a name of `fewlink models`
    shots                references of each dev relation
    most_shots           references of an episode: from 1 to this many
    views                masked views, each hiding some known relations to learn from
    dim                  real numbers of an entity's vector, of each kind
    half                 keep the vectors in half precision
    complex_epochs       epochs of the ComplEx vectors of each view, and of the known graph
    transe_epochs        epochs of the TransE vectors
    negatives            random entities that a batch of triples is contrasted with
    lessons              episodes of each hidden relation, in either direction
    queries              queries of an episode at most
    candidates           random candidates of an episode
    hard                 hard negatives by paths and vectors, at most
    relations            episodes of a step; shared out where several processes train together
    learning_rate        of AdamW at its highest: it rises over the first tenth of the steps and falls as a cosine
    weight_decay         of AdamW
    steps                steps in all, over which the learning rate is spread; continuing with more changes its course
    clip                 largest norm of the gradient; 0 leaves it as it is
    dropout              share of the evidence dropped while training
    evaluate_every       steps between evaluations on dev; each one saves the run
    patience             evaluations without a better dev MRR before training stops
    evaluate_candidates  the candidates on dev: full or paper
    """

    model: str = "trail-0.1"
    shots: int = 3
    most_shots: int = 5
    views: int = 3
    dim: int = 100
    half: bool = False
    complex_epochs: int = 16
    transe_epochs: int = 12
    negatives: int = 8192
    lessons: int = 6
    queries: int = 10
    candidates: int = 100
    hard: int = 300
    relations: int = 8
    learning_rate: float = 3e-3
    weight_decay: float = 1e-3
    steps: int = 1000
    clip: float = 1.0
    dropout: float = 0.1
    evaluate_every: int = 200
    patience: int = 10
    evaluate_candidates: str = "full"
    seed: int = 0
    device: str = "cpu"

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {
        "evaluate_candidates": ("full", "paper"),
    }
    AT_LEAST_ONE = (
        *("shots", "most_shots", "views", "dim", "complex_epochs", "transe_epochs", "negatives", "lessons", "queries"),
        *("candidates", "relations", "steps", "evaluate_every", "patience"),
    )
    POSITIVE = ("learning_rate",)
    NOT_NEGATIVE = ("hard", "weight_decay", "clip")

    def __post_init__(self) -> None:
        self.check()
        choose("model", self.model, compositions())
        self.require("dropout", 0 <= self.dropout < 1, "0 or more and less than 1")

    def decay_at(self, step: int) -> float:
        """What the learning rate of a step, the first of which is 0, is multiplied with."""
        rise = max(1, self.steps // 10)
        if step < rise:
            return (step + 1) / rise
        return 0.5 + 0.5 * math.cos(math.pi * (step + 1 - rise) / (self.steps + 1 - rise))
