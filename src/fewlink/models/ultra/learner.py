"""The learner of ULTRA, and of other networks with published weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fewlink.graph import Graph
from fewlink.models.trail.learn import Batch, TrailLearner
from fewlink.models.ultra.network import PublishedNetwork, PublishedTasks
from fewlink.models.ultra.scorer import PublishedScorer
from fewlink.models.ultra.settings import UltraSettings


class PublishedLearner(TrailLearner):
    """Trains one run of a network with the episodes, the loss and the optimizer of TRAIL."""

    settings: UltraSettings

    def __init__(
        self,
        network_class: type[PublishedNetwork],
        graphs: Sequence[Graph],
        settings: UltraSettings,
        start: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.network_class = network_class
        super().__init__(graphs, settings, start)

    def new_network(self) -> PublishedNetwork:
        network = self.network_class(self.settings.shape)
        return network

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def loss(self, batch: Batch) -> Tensor:
        references, heads, candidates = batch.tasks
        tasks = PublishedTasks(references.entities, references.used, references.visible, heads, candidates)
        scores = self.network(self.graphs[batch.graph], tasks).masked_fill(batch.excluded, -torch.inf)
        return cross_entropy(scores.flatten(0, 1), batch.answers.flatten())

    def scorer(self, run: int) -> PublishedScorer:
        network = self.new_network().to(self.device)
        network.load_state_dict(self.averaged)
        return PublishedScorer(self.settings.model, network, self.graphs[0])
