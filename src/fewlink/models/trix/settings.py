"""The settings of TRIX."""

from __future__ import annotations

from pydantic import Field

from fewlink.models.trix.network import TrixShape
from fewlink.models.ultra.settings import UltraSettings


class TrixSettings(UltraSettings):
    """The settings of TRIX, trained or fine-tuned; others are as in ULTRA."""

    model: str = Field(default="trix", description="a name of `fewlink models`")
    names: bool = Field(default=False, description="not used: TRIX reads no names")
    width: int = Field(default=32, ge=8, multiple_of=8, description="width of a state, a multiple of 8 (published: 32)")
    layers: int = Field(default=4, ge=1, description="layers over the entities that are scored (published: 4)")
    first_layers: int = Field(
        default=2, ge=1, description="layers over the entities between those over the relations (published: 2)"
    )
    relation_layers: int = Field(default=3, ge=2, description="layers over the graph of relations (published: 3)")

    @property
    def shape(self) -> TrixShape:
        return TrixShape(self.width, self.layers, self.first_layers, self.relation_layers)
