"""Ordinary link prediction with embeddings: settings for the size of a graph, and a search for one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.errors import FewlinkError
from fewlink.models.embeddings import Embeddings, EmbeddingSettings
from fewlink.models.embeddings.settings import MAX_DENSE_ENTITIES
from fewlink.models.embeddings.trainer import train
from fewlink.models.family import Reporter

DIMS = {"rescal": 100}  # 512 for all other models
GRID = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)  # values of the searched setting
TRIAL_EPOCHS = 5


def link_settings(model: str, entities: int, seed: int = 0, device: str = "cpu") -> EmbeddingSettings:
    """Settings for link prediction on a graph with this number of entities; `train_links` searches for one of them."""
    dense: dict[str, Any] = {"regime": "k-vs-all", "batch_size": 200} if entities <= MAX_DENSE_ENTITIES else {}
    return EmbeddingSettings(
        model=model,
        dim=DIMS.get(model, 512),
        epochs=20,
        patience=5,
        n3=0.0 if model == "transe" else 0.01,
        **dense,
        seed=seed,
        device=device,
    )


def searched_setting(model: str) -> str:
    """The setting that `train_links` searches for: the weight of N3, or the learning rate of TransE."""
    return "learning_rate" if model == "transe" else "n3"


def train_links(
    train_on: np.ndarray,
    valid: np.ndarray,
    entities: int,
    relations: int,
    settings: EmbeddingSettings,
    folder: Path,
    *,
    reporter: Callable[[str], Reporter | None] = lambda title: None,
) -> tuple[Embeddings, dict[float, float]]:
    """Train on triples (n, 3) with early stopping and the value of `searched_setting` that is best on valid (m, 3).

    The search climbs on `GRID` from the value in the settings with `TRIAL_EPOCHS` epochs for each trial, and trains the
    best trial to the end. `folder` stores the state of each trial, so that an interrupted search continues. `reporter`
    makes `on_epoch` from a title. Also returns the MRR on valid of each trial, by value.
    """
    name = searched_setting(settings.model)
    trials: dict[float, float] = {}

    def trained(value: float, epochs: int) -> Embeddings:
        suffix = "" if settings.schedule == "constant" else f"-{epochs}"  # only a constant rate can be continued
        changes: dict[str, Any] = {name: value, "epochs": epochs}
        return train(
            train_on,
            entities,
            relations,
            settings.replace(**changes),
            resume=folder / f"{name}-{value:g}{suffix}.safetensors",
            on_epoch=reporter(f"{settings.model} {name}={value:g}"),
            validation=valid,
        )

    def score(place: int) -> float:
        value = GRID[place]
        if value not in trials:
            try:
                vectors = trained(value, min(TRIAL_EPOCHS, settings.epochs))
                measured = [trace["held_out_mrr"] for trace in vectors.trace[:TRIAL_EPOCHS]]
                trials[value] = max(mrr for mrr in measured if mrr is not None)  # None: not evaluated
            except FewlinkError:  # the learning rate is too high: training diverged
                trials[value] = 0.0
        return trials[value]

    start = max(getattr(settings, name), GRID[0])  # N3 may be 0
    best = min(range(len(GRID)), key=lambda place: abs(np.log(GRID[place] / start)))
    while True:
        near = [place for place in (best, best - 1, best + 1) if 0 <= place < len(GRID)]
        higher = max(near, key=score)
        if higher == best:
            return trained(GRID[best], settings.epochs), trials
        best = higher
