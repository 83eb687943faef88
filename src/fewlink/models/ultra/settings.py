"""The settings of ULTRA."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from fewlink.models.settings import EvaluateEvery
from fewlink.models.trail.settings import TrailSettings
from fewlink.models.ultra.network import UltraShape


class UltraSettings(TrailSettings):
    """The settings of ULTRA, trained or fine-tuned; others are as in TRAIL."""

    model: str = Field(default="ultra", description="a name of `fewlink models`")
    names: bool = Field(default=False, description="not used: ULTRA reads no names")
    most_references: int = Field(default=16, ge=1, description="largest number of references of an episode")
    start: str = Field(
        default="", description="file of initial weights, .pth as published or .safetensors; empty for random weights"
    )
    width: int = Field(default=64, ge=8, multiple_of=8, description="width of a state, a multiple of 8 (published: 64)")
    layers: int = Field(default=6, ge=1, description="layers over the entities (published: 6)")
    relation_layers: int = Field(default=6, ge=1, description="layers over the graph of relations (published: 6)")
    learning_rate: float = Field(
        default=5e-4,
        gt=0,
        description="peak learning rate of AdamW, with a linear warm-up over 5 % of the steps and a cosine decay",
    )
    steps: int = Field(
        default=2000,
        ge=1,
        description="number of steps, which determines the schedule of the learning rate",
    )
    evaluate_every: EvaluateEvery = 500

    @property
    def shape(self) -> Any:
        return UltraShape(self.width, self.layers, self.relation_layers)
