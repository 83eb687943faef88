"""Probabilities adjusted by decisions: a model that is too sure or too cautious about a relation is corrected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fewlink.curation.schema import KINDS, Decision
from fewlink.curation.store import ProjectFile
from fewlink.questions.logistic import fit_logistic

SHIFT, SCALE = 2.5, 2.5  # how firmly the shift is drawn towards 0, and the scale towards 1
LEAST_SCALE = 0.1  # so that the order of probabilities stays
EXTREME = 1e-6  # probabilities nearer to 0 or 1 count as this


@dataclass(frozen=True)
class Adjustment:
    """logit p' = shift + scale · logit p, fitted to a number of decisions. A higher p has a higher p'."""

    shift: float = 0.0
    scale: float = 1.0
    decisions: int = 0

    def __call__(self, probabilities: np.ndarray) -> np.ndarray:
        """Adjusted probabilities, of the same shape."""
        return np.asarray(1 / (1 + np.exp(-(self.shift + self.scale * logits(probabilities)))))

    def sentence(self, project: str = "") -> str:
        count = f"the {self.decisions:,} decisions" if self.decisions > 1 else "one decision"
        return f"probabilities are adjusted by {count} of {f'the project {project}' if project else 'this project'}"


@dataclass(frozen=True)
class ProjectReading:
    """What a question reads of a project: true pairs, wrong pairs, and how its decisions adjust probabilities.

    References come first, then accepted pairs, newest first: a model may read only some.
    """

    name: str
    references: tuple[tuple[str, str], ...]
    rejected: tuple[tuple[str, str], ...]
    adjustment: Adjustment | None
    lacking: tuple[tuple[str, str], ...] = ()  # pairs of entities that a graph lacks: they are not read

    def notes(self) -> list[str]:
        """What a reader of answers is told."""
        told = [self.adjustment.sentence(self.name)] if self.adjustment else []
        return [*told, *([lacking_note(self.lacking)] if self.lacking else [])]

    @classmethod
    def of(cls, file: str | Path, name: str | None = None) -> ProjectReading:
        """Of a project file; the name is needed if it has several projects."""
        with ProjectFile(file, write=False) as opened:
            chosen = opened.only(name)
            states = opened.decisions(chosen)
        pairs = {kind: [state.pair for state in states if state.kind == kind] for kind in KINDS}
        references = (*pairs["reference"], *reversed(pairs["accepted"]))
        return cls(chosen, references, tuple(pairs["rejected"]), adjustment_of(states))


def lacking_note(pairs: Sequence[tuple[str, str]]) -> str:
    """How many decided pairs have entities that the graph lacks, and which."""
    few = "; ".join(f"{head} → {tail}" for head, tail in pairs[:3]) + ("; …" if len(pairs) > 3 else "")
    if len(pairs) == 1:
        return f"1 decided pair names an entity that this graph lacks, and is kept but not read: {few}"
    return f"{len(pairs):,} decided pairs name entities that this graph lacks, and are kept but not read: {few}"


def adjustment_of(states: Iterable[Decision]) -> Adjustment | None:
    """What the decisions that count say, of pairs whose probability is known; None if there are none."""
    decided = [state for state in states if state.kind != "reference"]
    return adjustment((s.probability, s.kind == "accepted") for s in decided if s.probability is not None)


def adjustment(decisions: Iterable[tuple[float, bool]]) -> Adjustment | None:
    """What decisions say: the model's probability of each pair, not adjusted, and whether it was accepted.

    None if there are no decisions. Few decisions change little: shift and scale are drawn towards 0 and 1.
    """
    rows = list(decisions)
    if not rows:
        return None
    given, accepted = np.array([p for p, _ in rows], float), np.array([yes for _, yes in rows], bool)
    features = np.stack([np.ones(len(rows)), logits(given)], 1) / np.sqrt([SHIFT, SCALE])
    towards = np.array([0.0, np.sqrt(SCALE)])
    shift, scale = fit_logistic(features, accepted, np.ones(len(rows)), 1.0, towards) / np.sqrt([SHIFT, SCALE])
    return Adjustment(float(shift), max(float(scale), LEAST_SCALE), len(rows))


def logits(probabilities: np.ndarray) -> np.ndarray:
    clipped = np.clip(probabilities, EXTREME, 1 - EXTREME)
    return np.asarray(np.log(clipped / (1 - clipped)))
