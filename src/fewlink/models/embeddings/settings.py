"""Settings of the embedding trainer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from fewlink.core.machine import PROGRAM
from fewlink.core.settings import Device, Seed, Settings
from fewlink.models.embeddings.interactions import interaction

MAX_DENSE_ENTITIES = 20_000  # with more, a step scores a sample of them: scoring all takes longer than it helps
SCORES_BYTES = 1 << 30  # of scores that are computed together on a GPU


class EmbeddingSettings(Settings):
    """Settings of an embedding model and its training."""

    model: str = Field(default="complex", description="rescal, transe, distmult or complex")
    dim: int = Field(default=100, ge=1, description="real numbers per entity; complex has dim/2 complex numbers")
    regime: Literal["sampled", "one-vs-all", "k-vs-all"] = Field(
        default="sampled",
        description="sampled: against random entities, updating only the rows that it reads; one-vs-all: against every "
        "entity; k-vs-all: the same loss, with all tails of a head and relation in one step",
    )
    negatives: int = Field(default=8192, ge=1, description="random entities that the examples of a batch share")
    batch_size: int = Field(
        default=2048,
        ge=1,
        description="examples per step: triples in a direction, or heads with a relation",
    )
    epochs: int = Field(default=15, ge=1, description="passes over all triples, each in both directions")
    learning_rate: float = Field(default=0.1, gt=0, description="initial learning rate")
    schedule: Literal["constant", "linear"] = Field(
        default="constant", description="learning rate schedule: constant, or decreasing linearly to zero"
    )
    n3: float = Field(
        default=0.05, ge=0, description="weight of the mean Σ|x|³ of head, relation and tail over a batch"
    )
    norm: int = Field(default=2, ge=1, le=2, description="p of TransE's distance, 1 or 2")
    init_scale: float = Field(default=1e-3, gt=0, description="standard deviation of the initial vectors")
    seed: Seed = 0
    device: Device = "cpu"
    mixed_precision: bool = Field(default=False, description="bfloat16 products; needs a cuda device")

    @field_validator("dim")
    @classmethod
    def _dim_fits_model(cls, dim: int, info: ValidationInfo) -> int:
        interaction(info.data["model"]).check_dim(dim)
        return dim

    @field_validator("mixed_precision")
    @classmethod
    def _on_gpu(cls, mixed_precision: bool, info: ValidationInfo) -> bool:
        if mixed_precision and info.data.get("device") == "cpu":
            raise ValueError("it must be false on the cpu: it needs a cuda device")
        return mixed_precision

    @property
    def dense(self) -> bool:
        """Whether each step scores and updates every entity."""
        return self.regime != "sampled"

    def needs(self, entities: int, relations: int, triples: int, device: str = "cpu") -> dict[str, float]:
        """The bytes of a device's memory that training needs, by purpose.

        Training on a GPU also needs memory of the CPU, where vectors are made and saved.
        """
        table = 4.0 * entities * self.dim
        others = 4.0 * 2 * relations * interaction(self.model).relation_width(self.dim)
        needs = {"vectors": table + others, "the optimizer": table + others + 8.0 * entities}
        if device == self.device:
            needs["gradients"] = 2 * others + 3 * table * self.dense
        if device == "cpu":  # triples as passed in, as trained on, and their order
            return {**needs, "triples": 60.0 * triples, "the program": PROGRAM}
        columns = entities if self.dense else self.negatives
        score = interaction(self.model, self.norm).bytes_per_score(self.dim)
        scores = min(1.0 * self.batch_size * columns * score, SCORES_BYTES)
        gathered = 8.0 * self.batch_size * self.dim
        return {**needs, "triples": 12.0 * triples, "a step": 3 * scores + 8 * gathered}

    def rate_at(self, step: int, steps: int) -> float:
        """The learning rate at one of `steps` steps."""
        return self.learning_rate * (1 - step / steps if self.schedule == "linear" else 1)
