"""The settings of MetaR."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from fewlink.core.errors import choose
from fewlink.models.settings import Dropout, EmbeddingRate, EvaluateEvery, ModelSettings, Patience, Relations, Steps

TRAIN_ONLY = "metar"
IN_TRAIN = "metar-in-train"
MODELS = {
    TRAIN_ONLY: "MetaR: computes a relation's vector from the references and improves it by one gradient step",
    IN_TRAIN: "MetaR that also learns from the background relations",
}


class MetaRSettings(ModelSettings):
    """The settings of MetaR; the defaults are those of its published program for NELL-One.

    `beta` and `scale` are not settings of that program. Dropout applies to the hidden layers.
    """

    model: str = Field(default=TRAIN_ONLY, description="a name of `fewlink models`")
    relations: Relations = 1024
    batch: int = Field(default=3, ge=1, description="queries in an episode")
    negatives: int = Field(default=1, ge=1, description="false tails of each reference and of each query")
    margin: float = Field(default=1.0, gt=0, description="margin of the hinge loss (γ)")
    beta: float = Field(default=1.0, ge=0, description="step size of the gradient step on the references' loss (β)")
    hidden_1: int = Field(default=500, ge=1, description="width of the first hidden layer")
    hidden_2: int = Field(default=200, ge=1, description="width of the second hidden layer")
    dropout: Dropout = 0.5
    start: Literal["vectors", "random"] = Field(
        default="vectors", description="initial vectors of entities: vectors (pretrained) or random"
    )
    scale: float = Field(default=1.0, ge=0, description="mean length to scale pretrained vectors to; 0 keeps them")
    embedding_rate: EmbeddingRate = 1e-3
    steps: Steps = 100_000
    evaluate_every: EvaluateEvery = 1000
    patience: Patience = 30

    @field_validator("model")
    @classmethod
    def _known_model(cls, model: str) -> str:
        choose("model", model, MODELS)
        return model

    def decay_at(self, step: int) -> float:
        """The learning rate is constant."""
        return 1.0
