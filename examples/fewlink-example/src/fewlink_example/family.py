"""A family of one model with a setting, prepared for each benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from fewlink.core.settings import Device, Settings
from fewlink.graph import Graph
from fewlink.models.contract import Question
from fewlink.models.family import BaselineFamily, Prepared, Reporter
from fewlink.tasks import Benchmark


class ProfileSettings(Settings):
    """The setting of the model; `model` and `device` are set by fewlink."""

    model: str = Field(default="relation-profile", description="a name of `fewlink models`")
    power: float = Field(default=1.0, ge=0, description="power of the candidate's profile")
    device: Device = "cpu"


class ProfileScorer:
    """⟨profile of the candidate, mean profile of the references' tails⟩, whatever the head."""

    name = "relation-profile"

    def __init__(self, graph: Graph, power: float) -> None:
        self.graph, self.power = graph, power

    def __call__(self, question: Question) -> np.ndarray:
        expected = self.profiles(question.references[:, 1]).mean(0)  # (2R,)
        scores = (self.profiles(question.candidates) ** self.power * expected).sum(1)  # (c,)
        return np.broadcast_to(scores, (len(question.heads), len(scores)))

    def profiles(self, entities: np.ndarray) -> np.ndarray:
        """log(1 + edges of each relation, inverse ones included) of entities (n,): (n, 2R)."""
        edges, owners = self.graph.edges_of(entities)
        counts = np.zeros((len(entities), 2 * len(self.graph.relations)))
        np.add.at(counts, (owners, self.graph.relation_ids[edges]), 1)
        return np.log1p(counts)


class ProfileFamily(BaselineFamily):
    """Models that compare relation profiles."""

    name = "profiles"
    settings = ProfileSettings
    seeded = False
    any_shots = True

    @property
    def models(self) -> Mapping[str, str]:
        return {"relation-profile": "how like the references' tails a candidate is by its relations"}

    def prepare(
        self,
        model: str,
        benchmark: Benchmark,
        settings: Any,
        *,
        shots: int,
        draw: int = 0,
        seed: int = 0,
        on_epoch: Reporter | None = None,
    ) -> Prepared:
        return Prepared(ProfileScorer(benchmark.graph, settings.power), {"settings": settings.as_dict()})
