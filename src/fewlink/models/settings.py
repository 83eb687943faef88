"""The settings that all models share, and the types of settings that several families have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

from pydantic import Field

from fewlink.core.settings import Device, Seed, Settings

Shots = Annotated[int, Field(ge=1, description="references of an episode (K), and of each dev relation")]
Relations = Annotated[int, Field(ge=1, description="relations of a step, an episode each; processes share them")]
LearningRate = Annotated[float, Field(gt=0, description="learning rate of the optimizer")]
Steps = Annotated[int, Field(ge=1, description="largest number of steps")]
EvaluateEvery = Annotated[int, Field(ge=1, description="steps between evaluations on dev; each one saves the run")]
Patience = Annotated[int, Field(ge=1, description="evaluations without a better dev MRR before training stops")]
Candidates = Annotated[Literal["full", "paper"], Field(description="the candidates on dev: full or paper")]
Dropout = Annotated[float, Field(ge=0, lt=1, description="share of numbers dropped during training")]
EmbeddingRate = Annotated[
    float, Field(ge=0, description="learning rate of the pretrained vectors; 0 does not train them")
]


class ModelSettings(Settings, ABC):
    """The settings that the trainer reads of every model."""

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
