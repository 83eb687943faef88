"""Everything that decides how TRAIL is trained, validated when it is created."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fewlink.training.family import ModelSettings


@dataclass(frozen=True)
class TrailSettings(ModelSettings):
    """How TRAIL is trained.

    model                a name of `fewlink models`
    also                 benchmarks or graphs to learn from beside the first, separated by commas
    shots                references of each dev relation
    width                numbers of a state, a multiple of 8
    layers               layers of propagation: how far apart head and tail may be
    relation_layers      layers among relations
    relations            episodes of a step; shared out where several processes train together
    queries              queries of an episode
    candidates           candidates of an episode, at least twice its queries
    learning_rate        of AdamW at its highest: it rises over the first twentieth of the steps and falls as a cosine
    weight_decay         of AdamW
    steps                steps in all, over which the learning rate is spread: more of them later is another course
    clip                 largest norm of the gradient
    average              share of the old average of weights that a step keeps: what answers is the average
    evaluate_every       steps between evaluations on dev; each one saves the run
    patience             not used: the last weights are kept, since dev relations are few
    evaluate_candidates  the candidates on dev: full or paper
    """

    model: str = "trail"
    also: str = ""
    shots: int = 3
    width: int = 32
    layers: int = 6
    relation_layers: int = 2
    relations: int = 4
    queries: int = 8
    candidates: int = 2048
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    steps: int = 6000
    clip: float = 1.0
    average: float = 0.998
    evaluate_every: int = 1000
    patience: int = 1_000_000
    evaluate_candidates: str = "full"
    seed: int = 0
    device: str = "cpu"

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {"evaluate_candidates": ("full", "paper")}
    AT_LEAST_ONE = (
        *("shots", "width", "layers", "relations", "queries", "candidates", "steps", "evaluate_every", "patience"),
    )
    POSITIVE = ("learning_rate", "clip")
    NOT_NEGATIVE = ("weight_decay", "relation_layers")

    def __post_init__(self) -> None:
        self.check()
        self.require("width", self.width % 8 == 0, "a multiple of 8")
        self.require("candidates", self.candidates >= 2 * self.queries, f"at least twice queries ({self.queries})")
        self.require("average", 0 <= self.average < 1, "0 or more and less than 1")

    def decay_at(self, step: int) -> float:
        """What the learning rate of a step, the first of which is 0, is multiplied with."""
        rise = min(1.0, (step + 1) / (0.05 * self.steps))
        return rise * (0.5 + 0.5 * math.cos(math.pi * step / self.steps))
