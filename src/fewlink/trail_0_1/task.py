"""A task as TRAIL's evidence reads it: references, query heads and candidates, and what is derived from each.

Whatever a kind of evidence derives is a function of one of these objects and is computed once: `task.once(best_rules)`.
So kinds share what they have in common, and what follows from the references alone is not computed again for each head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewlink.base.memo import Memo
from fewlink.trail_0_1.context import GraphContext

OTHER_HEADS = 256  # heads that a candidate's scores are compared with
HELD_OUT = 5  # references that are held out in turn, at most
LEAST_CHANCE = 1e-4  # a chance under this counts as none

Features = tuple[Tensor, ...]


class TaskContext(Memo):
    """The references (K, 2) of one relation, on a graph."""

    def __init__(
        self, graph: GraphContext, references: Tensor, whole: TaskContext | None = None, left_out: int = -1
    ) -> None:
        self.graph, self.references = graph, references
        self.whole, self.left_out = whole, left_out  # the task that reference `left_out` was held out of

    @property
    def tails(self) -> Tensor:
        """The references' tails (K,)."""
        return self.references[:, 1]

    @property
    def held_out(self) -> int:
        """How many references are held out in turn: none if there is only one."""
        return min(len(self.references), HELD_OUT) if len(self.references) > 1 else 0

    def without(self, number: int) -> TaskContext:
        """The task with one reference held out; what is derived from it is freed with it."""
        rest = torch.cat([self.references[:number], self.references[number + 1 :]])
        return TaskContext(self.graph, rest, self, number)


class QueryHeads(Memo):
    """The heads (H,) of some queries of a task."""

    def __init__(self, task: TaskContext, ids: Tensor) -> None:
        self.task, self.ids = task, ids


class CandidateSet(Memo):
    """Candidates (C,) of a task, sorted."""

    def __init__(self, task: TaskContext, ids: Tensor) -> None:
        self.task, self.ids = task, ids


class Pairs(Memo):
    """Every head (H,) with every candidate (C,)."""

    def __init__(self, heads: QueryHeads, candidates: CandidateSet) -> None:
        self.task, self.heads, self.candidates = heads.task, heads, candidates

    @classmethod
    def of(cls, task: TaskContext, heads: Tensor, candidates: Tensor) -> Pairs:
        return cls(QueryHeads(task, heads), CandidateSet(task, candidates))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.heads.ids), len(self.candidates.ids)


class ModelInputs(NamedTuple):
    """What the model reads about heads (H,) and candidates (C,), given references (K, 2).

    `features`: what each kind of evidence extracted; `reliability` (2S + 2,), see `reliability`; `states`: what a kind
    has learnt about the candidates whatever the head, where it is known already.
    """

    references: Tensor
    heads: Tensor
    candidates: Tensor
    features: dict[str, Features]
    reliability: Tensor
    states: dict[str, Tensor] = {}  # noqa: RUF012

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.heads), len(self.candidates)

    def to(self, device: str) -> ModelInputs:
        features = {kind: tuple(part.to(device) for part in parts) for kind, parts in self.features.items()}
        references, heads, candidates = (ids.to(device) for ids in (self.references, self.heads, self.candidates))
        return ModelInputs(references, heads, candidates, features, self.reliability.to(device))


def other_heads(task: TaskContext) -> Tensor:
    """Heads of the references' type, to compare a candidate's scores with."""
    return task.graph.same_type(task.references[:, 0], OTHER_HEADS)


def is_reference_tail(candidates: CandidateSet) -> Tensor:
    """Whether each candidate is the tail of each reference: (C, K), 0 or 1."""
    return (candidates.ids.unsqueeze(1) == candidates.task.tails).float()


def log_chance(chances: Tensor) -> Tensor:
    """The log of chances, scaled to about 0 to 1; a chance under 0.0001 counts as none."""
    return (chances + LEAST_CHANCE).log() / 4 + 1
