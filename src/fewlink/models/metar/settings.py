"""The settings of MetaR, and those that GANA shares."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from fewlink.core.errors import choose
from fewlink.models.settings import Dropout, EmbeddingRate, EvaluateEvery, ModelSettings, Patience, Relations, Steps

TRAIN_ONLY, IN_TRAIN = "metar", "metar-in-train"
MODELS = {
    TRAIN_ONLY: "MetaR: the references give a relation's vector, which one gradient step improves",
    IN_TRAIN: "MetaR that learns from the relations of the background as well",
}


class MetaLearnerSettings(ModelSettings):
    """What MetaR and GANA share; the defaults are those of MetaR's published program for NELL-One.

    `beta` and `scale` are not settings of that program.
    """

    NAMES: ClassVar[tuple[str, ...]]  # of the models with these settings

    relations: Relations = 1024
    batch: int = Field(default=3, ge=1, description="queries of an episode")
    negatives: int = Field(default=1, ge=1, description="false tails of each reference and of each query")
    margin: float = Field(default=1.0, gt=0, description="γ of the hinge loss")
    beta: float = Field(
        default=1.0, ge=0, description="β: length of the step along the gradient of the references' loss"
    )
    dropout: Dropout = 0.5
    scale: float = Field(default=1.0, ge=0, description="mean length to scale the pretrained vectors to; 0 keeps them")
    embedding_rate: EmbeddingRate = 1e-3
    steps: Steps = 100_000
    evaluate_every: EvaluateEvery = 1000
    patience: Patience = 30

    @field_validator("model", check_fields=False)
    @classmethod
    def _known_model(cls, model: str) -> str:
        choose("model", model, dict.fromkeys(cls.NAMES))
        return model

    def decay_at(self, step: int) -> float:
        """The learning rate is constant."""
        return 1.0


class MetaRSettings(MetaLearnerSettings):
    """How MetaR is trained; dropout applies to the hidden layers."""

    NAMES = tuple(MODELS)

    model: str = Field(default=TRAIN_ONLY, description="a name of `fewlink models`")
    hidden_1: int = Field(default=500, ge=1, description="width of the first hidden layer")
    hidden_2: int = Field(default=200, ge=1, description="width of the second hidden layer")
    start: Literal["vectors", "random"] = Field(
        default="vectors", description="initial vectors of entities: vectors (the pretrained ones) or random"
    )
