"""The settings that all models share, and types of settings that several families use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

from pydantic import Field

from fewlink.core.settings import Device, Seed, Settings

Shots = Annotated[int, Field(ge=1, description="references of each episode and each dev relation (K)")]
Relations = Annotated[int, Field(ge=1, description="episodes in a step, each of one relation; processes share them")]
LearningRate = Annotated[float, Field(gt=0, description="learning rate of the optimizer")]
Steps = Annotated[int, Field(ge=1, description="maximum number of steps")]
EvaluateEvery = Annotated[int, Field(ge=1, description="steps between evaluations on dev, which also save the run")]
Patience = Annotated[int, Field(ge=1, description="evaluations without a better dev MRR after which training stops")]
Candidates = Annotated[Literal["full", "paper"], Field(description="candidates on dev: full or paper")]
Dropout = Annotated[float, Field(ge=0, lt=1, description="dropout rate")]
EmbeddingRate = Annotated[float, Field(ge=0, description="learning rate of the pretrained vectors; 0 keeps them fixed")]


class ModelSettings(Settings, ABC):
    """The settings of every model that the trainer reads."""

    model: str = Field(description="a name of `fewlink models`")
    shots: Shots = 3
    relations: Relations = 1
    learning_rate: LearningRate = 1e-3
    steps: Steps = 10_000
    evaluate_every: EvaluateEvery = 500
    patience: Patience = 10
    evaluate_candidates: Candidates = "full"
    seed: Seed = 0
    device: Device = "cpu"

    @abstractmethod
    def decay_at(self, step: int) -> float:
        """The factor of the learning rate at a step, counted from 0."""
