"""The learner of ULTRA."""

from __future__ import annotations

import torch

from fewlink.models.trail.learner import TrailLearner
from fewlink.models.ultra.network import UltraNetwork
from fewlink.models.ultra.scorer import UltraScorer
from fewlink.models.ultra.settings import UltraSettings


class UltraLearner(TrailLearner):
    """Trains one run of ULTRA with the episodes, the loss and the optimizer of TRAIL."""

    settings: UltraSettings

    def new_network(self) -> UltraNetwork:
        return UltraNetwork(self.settings.shape)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def scorer(self, run: int) -> UltraScorer:
        network = self.new_network().to(self.device)
        network.load_state_dict(self.averaged)
        return UltraScorer(self.settings.model, network, self.graphs[0])
