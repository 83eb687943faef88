"""Models with their inputs: initial parameters, and weights of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fewlink.core.errors import InputError
from fewlink.core.seeds import derive
from fewlink.graph import Graph
from fewlink.models.embeddings.table import Embeddings
from fewlink.models.fsrl.compositions import COMPOSITIONS, build
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.names import ngram_vectors, read_vectors
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.weights import check_weights


def names_width(settings: FewShotSettings) -> int:
    """The number of numbers that stand for a name; 0 for a model that does not read names."""
    if not COMPOSITIONS[settings.model].encoder.reads_names:
        return 0
    return read_vectors(settings.name_vectors).shape[1] if settings.name_vectors else settings.name_numbers


def vectors_of_names(graph: Graph, settings: FewShotSettings) -> np.ndarray:
    """A vector (E, names) of each entity's name: those in the user's file, or character n-grams."""
    if not settings.name_vectors:
        return graph.once(ngram_vectors, settings.name_numbers)
    vectors = read_vectors(settings.name_vectors)
    if len(vectors) != len(graph.entities):
        raise InputError(
            Path(settings.name_vectors),
            f"has {len(vectors):,} vectors, and the graph has {len(graph.entities):,} entities: give one for each",
        )
    return np.ascontiguousarray(vectors, np.float32)


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
            names=names_width(settings),
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
        names=torch.from_numpy(vectors_of_names(graph, settings)) if names_width(settings) else None,
    )


def assemble(
    graph: Graph, embeddings: Embeddings, settings: FewShotSettings, device: str
) -> tuple[FewShotModel, Neighbourhood]:
    """A model with its initial parameters, and its inputs, on a device."""
    return initial_model(embeddings.dim, settings).to(device), inputs_of(graph, embeddings, settings).to(device)


def load_weights(model: FewShotModel, around: Neighbourhood, weights: dict[str, Tensor], run: Path) -> None:
    """Load the weights of a checkpoint into a model, and tuned vectors into its inputs."""
    for name in TUNED:
        if f"around.{name}" in weights:
            getattr(around, name).copy_(weights[f"around.{name}"])
    parameters = {name: weight for name, weight in weights.items() if not name.startswith("around.")}
    check_weights(model.state_dict(), parameters, run)
    model.load_state_dict(parameters)
