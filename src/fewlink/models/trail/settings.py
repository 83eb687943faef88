"""The settings of TRAIL."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from fewlink.models.settings import EvaluateEvery, ModelSettings, Relations


class TrailSettings(ModelSettings):
    """How TRAIL is trained."""

    model: str = Field(default="trail", description="a name of `fewlink models`")
    also: str = Field(default="", description="further benchmarks or graphs to learn from, separated by commas")
    shots: int = Field(default=3, ge=1, description="references of each dev relation")
    width: int = Field(default=32, ge=8, multiple_of=8, description="width of a state, a multiple of 8")
    layers: int = Field(default=6, ge=1, description="layers of propagation, the largest distance from head to tail")
    relation_layers: int = Field(default=2, ge=0, description="layers of propagation among relations")
    names: bool = Field(default=True, description="read names as relations of the graph, if they say something")
    without_names: float = Field(default=0.3, ge=0, le=1, description="share of episodes that do not see names")
    most_references: int = Field(default=4096, ge=1, description="largest number of references of an episode")
    many: float = Field(default=0.5, ge=0, le=1, description="share of steps with more than 16 references an episode")
    every: float = Field(default=0.3, ge=0, le=1, description="share of their episodes with all pairs as references")
    skewed: float = Field(default=0.25, ge=0, le=1, description="share of episodes with a skewed set of references")
    draws: Literal["uniform", "root", "triples"] = Field(
        default="root",
        description="how episodes with many references draw relations: alike, or by (the root of) their pairs",
    )
    relations: Relations = 4
    queries: int = Field(default=8, ge=1, description="queries of an episode")
    candidates: int = Field(default=2048, ge=1, description="candidates of an episode, at least twice its queries")
    learning_rate: float = Field(
        default=2e-3,
        gt=0,
        description="peak of AdamW's rate, which rises over the first twentieth of the steps and falls as a cosine",
    )
    weight_decay: float = Field(default=1e-4, ge=0, description="weight decay of AdamW")
    steps: int = Field(
        default=6000,
        ge=1,
        description="number of steps, which sets the course of the learning rate",
    )
    clip: float = Field(default=1.0, gt=0, description="largest norm of the gradient")
    average: float = Field(
        default=0.998,
        ge=0,
        lt=1,
        description="share of the averaged weights that a step keeps; the average is used",
    )
    evaluate_every: EvaluateEvery = 1000
    patience: int = Field(default=1_000_000, ge=1, description="not used: the last weights are kept")

    @field_validator("candidates")
    @classmethod
    def _twice_the_queries(cls, candidates: int, info: ValidationInfo) -> int:
        if candidates < 2 * info.data.get("queries", 1):
            raise ValueError(f"it must be at least twice queries ({info.data['queries']})")
        return candidates

    def decay_at(self, step: int) -> float:
        """The factor of the learning rate at a step, counted from 0."""
        rise = min(1.0, (step + 1) / (0.05 * self.steps))
        return rise * (0.5 + 0.5 * math.cos(math.pi * step / self.steps))
