"""The contract of a kind of evidence, and what several kinds are made of."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fewlink.trail_0_1.context import Features, GraphContext, ModelInputs, Pairs, TaskContext


@dataclass(frozen=True)
class ExplainedPair:
    """One pair whose score is explained: its task, the model's inputs (1 head, 1 candidate) and its score.

    `rescore` gives the score with other features of one kind.
    """

    task: TaskContext
    inputs: ModelInputs
    score: float
    rescore: Callable[[str, Features], float]


class Evidence(nn.Module, ABC):
    """A kind of evidence about pairs of a head and a candidate.

    `kind`: its name; `words`: its name in explanations; `columns`: the names of what it reads about each pair;
    `width`: how many numbers about each pair it gives to be weighed. A kind is one file and one line in KINDS.

    `extract` and the two scores read the graph and learn nothing: all they read is made of similarities, chances and
    distances, never of which entity or relation it is, so that what was learnt on some relations holds for others.
    """

    kind: ClassVar[str]
    words: ClassVar[str]
    columns: ClassVar[tuple[str, ...]] = ()
    width: int

    @classmethod
    @abstractmethod
    def extract(cls, pairs: Pairs) -> Features:
        """What this kind reads about pairs: any tensors; floating-point ones may be kept in half precision."""

    @classmethod
    def single_score(cls, pairs: Pairs) -> Tensor | None:
        """A score (H, C) by this kind alone, without learning, to measure its reliability by; None if it has none."""
        return None

    @classmethod
    def negative_score(cls, pairs: Pairs) -> Tensor | None:
        """A score (H, C) whose best candidates are hard negatives; None, or no `single_score`: it proposes none."""
        return None

    @abstractmethod
    def fit_scale(self, features: Sequence[Features]) -> None:
        """Set the scale of the columns from the features of several episodes."""

    @abstractmethod
    def forward(self, inputs: ModelInputs, graph: GraphContext) -> Tensor:
        """The evidence to be weighed: (H, C, width)."""

    def candidate_state(self, task: TaskContext, candidates: Tensor) -> Tensor | None:
        """What was learnt about candidates (C,) whatever the head, (C, …), for scorers to keep; None if nothing."""
        return None

    def reasons(self, pair: ExplainedPair) -> dict[str, Any]:
        """What this kind adds to the `Reasons` of a score, each the strongest first; of two kinds the first counts.

        `paths` (relations, what it adds); `references`, the attention of each; `neighbours` ("head" or "tail",
        relation, entity, weight); `shared` (relation, entity, weight), edges that the tail has as references' tails do.
        """
        return {}


class Standardise(nn.Module):
    """Columns (…, n) scaled to mean 0 and deviation 1, as measured by `fit`."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def fit(self, columns: Sequence[Tensor]) -> None:
        """Measure mean and deviation of columns (…, n) of several episodes."""
        every = torch.cat([part.flatten(0, -2).float() for part in columns])
        self.mean.copy_(every.mean(0))
        self.deviation.copy_(every.std(0) + 1e-3)

    def forward(self, columns: Tensor) -> Tensor:
        return (columns.float() - self.mean) / self.deviation


class ColumnEvidence(Evidence):
    """A kind whose features are its columns (H, C, n) alone, standardised."""

    def __init__(self) -> None:
        super().__init__()
        self.width = len(self.columns)
        self.standard = Standardise(self.width)

    def fit_scale(self, features: Sequence[Features]) -> None:
        self.standard.fit([columns for columns, *_ in features])

    def forward(self, inputs: ModelInputs, graph: GraphContext) -> Tensor:
        standardised: Tensor = self.standard(inputs.features[self.kind][0])
        return standardised


def network(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
