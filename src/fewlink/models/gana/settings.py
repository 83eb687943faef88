"""The settings of GANA."""

from __future__ import annotations

from pydantic import Field

from fewlink.models.metar.settings import MetaLearnerSettings
from fewlink.models.settings import Patience

MODELS = {"gana": "GANA: references with their neighbours give a relation's vector; it and a hyperplane take a step"}


class GANASettings(MetaLearnerSettings):
    """How GANA is trained; dropout applies where neighbours are read."""

    NAMES = tuple(MODELS)

    model: str = Field(default="gana", description="a name of `fewlink models`")
    patience: Patience = 10
    neighbours: int = Field(default=50, ge=1, description="largest number of neighbours of an entity")
    hidden: int = Field(default=450, ge=1, description="width of an LSTM state, in each direction")
    layers: int = Field(default=2, ge=1, description="layers of the LSTM")
