"""The settings of FSRL, its ablations and GMatching."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from fewlink.core.errors import choose
from fewlink.models.fsrl.model import COMPOSITIONS
from fewlink.models.settings import Dropout, EmbeddingRate, LearningRate, ModelSettings

# Run folders of version 0.3 also state these settings, which only models that are gone read.
UNREAD = ("name_numbers", "name_vectors", "adaptation_steps", "adaptation_rate", "adaptation_negatives")


class FewShotSettings(ModelSettings):
    """The settings of few-shot models; the defaults are the paper's."""

    model: str = Field(default="fsrl", description="a name of `fewlink models`")
    batch: int = Field(default=128, ge=1, description="queries in an episode")
    negatives: int = Field(default=1, ge=1, description="false tails for each query")
    negatives_from: Literal["full", "paper", "released"] = Field(
        default="full", description="candidates that false tails are drawn from: full, paper or released"
    )
    shared_negatives: bool = Field(default=False, description="whether the queries of an episode share their negatives")
    smallest_range: int = Field(default=0, ge=0, description="minimum range of the relations to train on")
    loss: Literal["hinge", "softmax"] = Field(
        default="hinge", description="hinge (Eq. 9), or softmax over the true tail and the negatives"
    )
    margin: float = Field(default=5.0, gt=0, description="margin of the hinge loss (ξ)")
    temperature: float = Field(default=1.0, gt=0, description="divisor of the scores in the loss")
    reconstruction: float = Field(default=1e-4, ge=0, description="weight of the reconstruction loss (γ in Eq. 10)")
    learning_rate: LearningRate = 1e-3
    decay: float = Field(default=0.25, gt=0, le=1, description="factor of the learning rate every `decay_every` steps")
    decay_every: int = Field(default=10_000, ge=1, description="steps between two decays of the learning rate")
    decays: int = Field(default=1000, ge=0, description="maximum number of decays")
    embedding_rate: EmbeddingRate = 0.0
    clip: float = Field(default=0.0, ge=0, description="maximum norm of the gradient; 0 does not clip it")
    dropout: Dropout = 0.0
    standardise: bool = Field(default=False, description="scale each pretrained vector to mean 0 and deviation 1")
    neighbours: int = Field(default=30, ge=1, description="maximum number of neighbours of an entity (N)")
    neighbour_rule: Literal["sampled", "first"] = Field(
        default="sampled", description="how to choose neighbours if there are more: sampled, or the first in the file"
    )
    pair_block: bool = Field(
        default=False,
        description="feed-forward block and layer norm on pairs, as in the programs of FSRL and GMatching",
    )
    matching_steps: int = Field(default=2, ge=1, description="matching steps (T in Eq. 8)")
    mixed_precision: bool = Field(default=False, description="bfloat16 products on a GPU")

    @model_validator(mode="before")
    @classmethod
    def _without_unread(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in UNREAD}

    @field_validator("model")
    @classmethod
    def _known_model(cls, model: str) -> str:
        choose("model", model, COMPOSITIONS)
        return model

    def decay_at(self, step: int) -> float:
        """The factor of the learning rates at a step, counted from 0."""
        return float(self.decay ** min(step // self.decay_every, self.decays))
