"""The TRIX family, with runs and published weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fewlink.models.trix.network import TrixNetwork
from fewlink.models.trix.settings import TrixSettings
from fewlink.models.ultra.family import LAYER_STATES, PublishedFamily

RELATION_STATES = 24  # tensors of the size of the states that a layer over the relations keeps for its gradients


class TrixFamily(PublishedFamily[TrixSettings]):
    """TRIX."""

    name = "trix"
    settings = TrixSettings
    network_class = TrixNetwork
    checkpoint_models: ClassVar[tuple[str, ...]] = ("trix",)

    @property
    def models(self) -> Mapping[str, str]:
        return {"trix": "TRIX (Zhang et al. 2024): messages over relations and entities in turn; reads any graph"}

    def layer_states(self, settings: TrixSettings) -> float:
        layers = LAYER_STATES * (settings.layers + settings.first_layers)
        return layers + RELATION_STATES * settings.relation_layers


FAMILY = TrixFamily()
