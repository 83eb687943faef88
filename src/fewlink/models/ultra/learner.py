"""The learner of ULTRA."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fewlink.models.trail.episodes import Batch
from fewlink.models.trail.learner import TrailLearner
from fewlink.models.ultra.network import Tasks, UltraNetwork
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

    def loss(self, batch: Batch) -> Tensor:
        references, heads, candidates = batch.tasks
        tasks = Tasks(references.entities, references.used, references.visible, heads, candidates)
        scores = self.network(self.graphs[batch.graph], tasks).masked_fill(batch.excluded, -torch.inf)
        return cross_entropy(scores.flatten(0, 1), batch.answers.flatten())

    def scorer(self, run: int) -> UltraScorer:
        network = self.new_network().to(self.device)
        network.load_state_dict(self.averaged)
        return UltraScorer(self.settings.model, network, self.graphs[0])
