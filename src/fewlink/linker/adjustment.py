"""Adjust probabilities to the decisions of a project: a model can be too confident about a relation.

logit p' = logit p + shift + more · [the head already has a true tail]. Both numbers are fitted to the last decisions
and shrunk towards a prior, so that few decisions change little; the tails of a head keep their order. The shift is
never positive: curators decide the most probable pairs first and may pass over wrong ones, so accepted pairs do not
show that the others are more probable. They raise probabilities as references. For the same reason no slope is fitted.
The constants were chosen in simulations of curators (benchmarks/curation.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fewlink.curation.schema import KINDS, Decision
from fewlink.curation.store import ProjectFile
from fewlink.linker.logistic import fit_logistic

PRIOR_SHIFT = 0.0
PRIOR_MORE = -0.5  # a head with a true tail is less likely to have another
PRIOR_STRENGTHS = 2.5, 2.5  # ridge penalties on the differences from the prior
LAST = 20  # decisions that count: earlier probabilities are of a model with fewer references
MIN_PROBABILITY = 1e-6  # probabilities are clipped to this distance from 0 and 1


@dataclass(frozen=True)
class Adjustment:
    """Added to all logits (`shift`, at most 0) and to those of heads with a true tail (`more`); fitted to so many
    `decisions`."""

    shift: float
    more: float
    decisions: int

    def __call__(self, probabilities: np.ndarray, answered: np.ndarray) -> np.ndarray:
        """Adjust probabilities (n,); `answered` (n,) says whether the head of each pair already has a true tail."""
        logits = logits_of(probabilities) + self.shift + self.more * np.asarray(answered, float)
        return np.asarray(1 / (1 + np.exp(-logits)))

    def sentence(self, project: str = "") -> str:
        """The note that says what the probabilities are adjusted to."""
        decisions = f"the last {self.decisions:,} decisions" if self.decisions > 1 else "one decision"
        source = f"the project {project}" if project else "this project"
        return f"probabilities are adjusted to {decisions} of {source}"


@dataclass(frozen=True)
class ProjectReading:
    """The pairs of a project that a query uses, accepted ones among its `references`, and the adjustment that its
    decisions make to probabilities."""

    name: str
    references: tuple[tuple[str, str], ...]
    rejected: tuple[tuple[str, str], ...]
    adjustment: Adjustment | None
    lacking: tuple[tuple[str, str], ...] = ()  # pairs with entities that the graph lacks; not used

    def notes(self, adjusted: bool) -> list[str]:
        """Notes for the reader of answers; `adjusted` says whether their probabilities are adjusted."""
        notes = []
        if self.adjustment and adjusted:
            notes.append(self.adjustment.sentence(self.name))
        if self.lacking:
            notes.append(lacking_note(self.lacking))
        return notes

    def answered(self) -> set[str]:
        """The heads that have a true tail."""
        return {head for head, _ in self.references}

    @classmethod
    def of(cls, file: str | Path, name: str | None = None) -> ProjectReading:
        """Read a project; its name is needed if the file has several projects."""
        with ProjectFile(file, write=False) as opened:
            chosen = opened.only(name)
            states = opened.decisions(chosen)
        pairs = {kind: [state.pair for state in states if state.kind == kind] for kind in KINDS}
        references = (*pairs["reference"], *pairs["accepted"])
        return cls(chosen, references, tuple(pairs["rejected"]), adjustment_of(states))


def lacking_note(pairs: Sequence[tuple[str, str]]) -> str:
    """The note on decisions whose entities the graph lacks."""
    few = "; ".join(f"{head} → {tail}" for head, tail in pairs[:3]) + ("; …" if len(pairs) > 3 else "")
    if len(pairs) == 1:
        return f"1 decided pair names an entity that this graph lacks; it is kept but not used: {few}"
    return f"{len(pairs):,} decided pairs name entities that this graph lacks; they are kept but not used: {few}"


def adjustment_of(states: Iterable[Decision]) -> Adjustment | None:
    """Fit the adjustment to the current decisions with a stored probability; None if there are none."""
    rows: list[tuple[float, bool, bool]] = []
    answered: set[str] = set()
    for state in sorted(states, key=lambda state: state.number):
        if state.kind != "reference" and state.probability is not None:
            rows.append((state.probability, state.kind == "accepted", state.head in answered))
        if state.kind != "rejected":
            answered.add(state.head)
    return adjustment(rows)


def adjustment(decisions: Sequence[tuple[float, bool, bool]]) -> Adjustment | None:
    """Fit the adjustment to the last of these decisions; None if there are none.

    A decision consists of the model's unadjusted probability of the pair, whether the curator accepted the pair, and
    whether its head already had a true tail.
    """
    decisions = decisions[-LAST:]
    if not decisions:
        return None
    probabilities, accepted, answered = (np.array(column, float) for column in zip(*decisions, strict=True))
    scale = np.sqrt(PRIOR_STRENGTHS)
    features = np.stack([np.ones(len(decisions)), answered], 1) / scale
    prior = np.array([PRIOR_SHIFT, PRIOR_MORE]) * scale
    counts = np.ones(len(decisions))
    shift, more = fit_logistic(features, accepted, counts, 1.0, prior, logits_of(probabilities)) / scale
    return Adjustment(min(float(shift), 0.0), float(more), len(decisions))


def logits_of(probabilities: np.ndarray) -> np.ndarray:
    """The logits (n,) of probabilities (n,)."""
    clipped = np.clip(probabilities, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return np.asarray(np.log(clipped / (1 - clipped)))
