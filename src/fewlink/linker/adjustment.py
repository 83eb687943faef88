"""Probabilities adjusted by decisions: a model that is too sure or too cautious about a relation is corrected.

logit p' = logit p + shift + more · [the head has a true tail already]. Both numbers are fitted to the decisions of a
project and drawn towards what is usual, so that few decisions change little. Within a head the order of tails stays.
The strengths were chosen in simulations on held-out relations (benchmarks/recalibration.py). There is no slope: it
would be fitted to pairs of high probability, which curators decide first, and be wrong for all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fewlink.curation.schema import KINDS, Decision
from fewlink.curation.store import ProjectFile
from fewlink.linker.logistic import fit_logistic

SHIFT, MORE = 0.0, -0.5  # what is usual: a head with a tail less often has another one
STRENGTHS = 10.0, 2.5  # how firmly both are drawn there
EXTREME = 1e-6  # probabilities nearer to 0 or 1 count as this


@dataclass(frozen=True)
class Adjustment:
    """What is added to logits, fitted to a number of decisions: to all, and to those of heads with a true tail."""

    shift: float
    more: float
    decisions: int

    def __call__(self, probabilities: np.ndarray, answered: np.ndarray) -> np.ndarray:
        """Adjusted probabilities (n,); `answered` (n,): whether the head of each pair has a true tail already."""
        logits = logits_of(probabilities) + self.shift + self.more * np.asarray(answered, float)
        return np.asarray(1 / (1 + np.exp(-logits)))

    def sentence(self, project: str = "") -> str:
        count = f"the {self.decisions:,} decisions" if self.decisions > 1 else "one decision"
        return f"probabilities are adjusted by {count} of {f'the project {project}' if project else 'this project'}"


@dataclass(frozen=True)
class ProjectReading:
    """What a query takes from a project: true pairs, wrong pairs, and how its decisions adjust probabilities.

    References come first, then accepted pairs, newest first: a model may read only the first ones.
    """

    name: str
    references: tuple[tuple[str, str], ...]
    rejected: tuple[tuple[str, str], ...]
    adjustment: Adjustment | None
    lacking: tuple[tuple[str, str], ...] = ()  # pairs of entities that a graph lacks: they are not read

    def notes(self, adjusted: bool) -> list[str]:
        """Notes for the reader of answers; `adjusted`: whether these have adjusted probabilities."""
        sentences = [self.adjustment.sentence(self.name)] if self.adjustment and adjusted else []
        return [*sentences, *([lacking_note(self.lacking)] if self.lacking else [])]

    def answered(self) -> set[str]:
        """The heads that have a true tail."""
        return {head for head, _ in self.references}

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
        return f"1 decided pair names an entity that this graph lacks; it is kept but not used: {few}"
    return f"{len(pairs):,} decided pairs name entities that this graph lacks; they are kept but not used: {few}"


def adjustment_of(states: Iterable[Decision]) -> Adjustment | None:
    """What the decisions that count say, of pairs whose probability is known; None if there are none."""
    rows, answered = list[tuple[float, bool, bool]](), set[str]()
    for state in sorted(states, key=lambda state: state.number):
        if state.kind != "reference" and state.probability is not None:
            rows.append((state.probability, state.kind == "accepted", state.head in answered))
        if state.kind != "rejected":
            answered.add(state.head)
    return adjustment(rows)


def adjustment(decisions: Sequence[tuple[float, bool, bool]]) -> Adjustment | None:
    """What decisions say: the model's probability of a pair, not adjusted, whether it was accepted, and whether its
    head had a true tail then. None if there are no decisions."""
    if not decisions:
        return None
    probabilities, accepted, answered = (np.array(column, float) for column in zip(*decisions, strict=True))
    features = np.stack([np.ones(len(decisions)), answered], 1) / np.sqrt(STRENGTHS)
    usual = np.array([SHIFT, MORE]) * np.sqrt(STRENGTHS)
    counts = np.ones(len(decisions))
    shift, more = fit_logistic(features, accepted, counts, 1.0, usual, logits_of(probabilities)) / np.sqrt(STRENGTHS)
    return Adjustment(float(shift), float(more), len(decisions))


def logits_of(probabilities: np.ndarray) -> np.ndarray:
    clipped = np.clip(probabilities, EXTREME, 1 - EXTREME)
    return np.asarray(np.log(clipped / (1 - clipped)))
