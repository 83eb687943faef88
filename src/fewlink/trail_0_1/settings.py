"""Everything that decides how TRAIL is trained, validated when it is created."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fewlink.base.resolver import choose
from fewlink.trail_0_1.model import compositions
from fewlink.training.family import ModelSettings


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
    steps                steps in all, over which the learning rate is spread: more of them later is another course
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
