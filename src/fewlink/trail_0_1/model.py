"""TRAIL: evidence of several kinds about each pair, weighed by how reliable each kind is for these references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fewlink.base.resolver import choose
from fewlink.trail_0_1.context import GraphContext, ModelInputs
from fewlink.trail_0_1.evidence import KINDS, kinds_of, scoring_kinds
from fewlink.trail_0_1.evidence.base import Evidence, network


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
