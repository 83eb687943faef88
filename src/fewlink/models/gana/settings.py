"""The settings of GANA."""

from __future__ import annotations

from pydantic import Field

from fewlink.models.metar.settings import MetaLearnerSettings
from fewlink.models.settings import Patience

MODELS = {"gana": "GANA: like MetaR, with the neighbours of the references and a hyperplane for each relation"}


class GANASettings(MetaLearnerSettings):
    """The settings of GANA; dropout applies to the vectors of neighbours."""

    NAMES = tuple(MODELS)

    model: str = Field(default="gana", description="a name of `fewlink models`")
    patience: Patience = 10
    neighbours: int = Field(default=50, ge=1, description="maximum number of neighbours of an entity")
    hidden: int = Field(default=450, ge=1, description="width of the LSTM in each direction")
    layers: int = Field(default=2, ge=1, description="layers of the LSTM")
