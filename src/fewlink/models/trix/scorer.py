"""TRIX as a scorer."""

from __future__ import annotations

import torch
from torch import Tensor

from fewlink.models.trix.network import TrixNetwork
from fewlink.models.ultra.propagation import CpuPropagation
from fewlink.models.ultra.scorer import KnownTask, PublishedScorer

HEADS = 8  # scored at once on a GPU


class TrixScorer(PublishedScorer[TrixNetwork]):
    """TRIX on a graph."""

    network_class = TrixNetwork
    heads_at_once = HEADS

    def score_head(
        self, propagations: tuple[CpuPropagation, ...], known: KnownTask, head: int, candidates: Tensor
    ) -> Tensor:
        first, second = propagations
        _, task, encoded, unlabelled = known
        assert unlabelled is not None
        everyone = torch.arange(self.graph.edges.nodes)
        states = first.states_of(task, encoded, unlabelled, head, everyone)
        encoded = self.network.encode_heads(self.graph, task, encoded, states.unsqueeze(1))
        states = second.states_of(task, encoded, second.before_messages(), head, candidates)
        return self.network.entity_model.score(states, encoded.task)
