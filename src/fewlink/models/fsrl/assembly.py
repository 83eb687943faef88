"""Models with their inputs, and with the weights of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fewlink.core.seeds import derive
from fewlink.graph import Graph
from fewlink.models.embeddings.table import Embeddings
from fewlink.models.fsrl.model import FewShotModel, build
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.weights import check_weights

TUNED = ("entities", "relations")  # pretrained vectors; a run that tunes them saves them as `around.NAME`


def initial_model(dim: int, settings: FewShotSettings) -> FewShotModel:
    """A model with its initial parameters, which are a pure function of the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(settings.seed, "start"))
        return build(
            settings.model,
            dim,
            steps=settings.matching_steps,
            dropout=settings.dropout,
            pair_block=settings.pair_block,
        )


def inputs_of(graph: Graph, embeddings: Embeddings, settings: FewShotSettings) -> Neighbourhood:
    """The inputs of a model."""
    return Neighbourhood.of(
        graph,
        embeddings.single_precision() if settings.embedding_rate else embeddings,
        max_neighbours=settings.neighbours,
        rule=settings.neighbour_rule,
        seed=settings.seed,
        standardise=settings.standardise,
    )


def load_weights(model: FewShotModel, around: Neighbourhood, weights: dict[str, Tensor], run: Path) -> None:
    """Load the weights of a checkpoint into a model, and tuned vectors into its inputs."""
    for name in TUNED:
        if f"around.{name}" in weights:
            getattr(around, name).copy_(weights[f"around.{name}"])
    parameters = {name: weight for name, weight in weights.items() if not name.startswith("around.")}
    check_weights(model.state_dict(), parameters, run)
    model.load_state_dict(parameters)
