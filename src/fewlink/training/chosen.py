"""A model's recipe, and the vectors it wants: found where they are, trained where they are not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fewlink.choices import choose
from fewlink.embeddings import INTERACTIONS, Embeddings, EmbeddingSettings
from fewlink.errors import FewlinkError
from fewlink.models import MODELS, TRAILS
from fewlink.recipes import OWN, Recipe, Vectors, model_of, recipe, recipe_texts
from fewlink.tasks.benchmark import Benchmark
from fewlink.training.pretraining import pretrain
from fewlink.training.settings import AnySettings, TrailSettings, settings_of
from fewlink.training.trail_vectors import TrailVectors, pretrain_views

Reporter = Callable[[dict[str, Any]], None]


def training_recipe(model: str | None, name: str | None = None) -> Recipe[AnySettings]:
    """The recipe asked for, or the model's own; a model without one is trained as the paper says."""
    if model is not None:
        choose("model", model, {**MODELS, **TRAILS})
    if name is None and (model or "fsrl") not in recipe_texts():
        return Recipe(model or "fsrl", "", "", settings_of(model or "fsrl")(model=model or "fsrl"))
    which = name or str(model)
    if model_of(which) in INTERACTIONS:
        raise FewlinkError(f"recipe '{which}' is for embeddings: fewlink pretrain takes it")
    found: Recipe[AnySettings] = recipe(which, settings_of(model_of(which)))  # type: ignore[arg-type]
    if model not in (None, found.settings.model):
        raise FewlinkError(f"recipe '{found.name}' is for {found.settings.model}, not for {model}")
    return found


def vectors_for(
    benchmark: Benchmark,
    settings: AnySettings,
    wanted: Vectors,
    place: Path,
    on_epoch: Callable[[str], Reporter] | None = None,
) -> Path:
    """The folder of the vectors a model was chosen with, at `place`; trained now where they are not there.

    `on_epoch` makes, from the title of each table, what is called after its epochs.
    """
    if isinstance(settings, TrailSettings):
        pretrain_views(benchmark, settings, out=place, on_epoch=on_epoch)
        return place
    pretraining = pretraining_settings(wanted, settings.device)
    if not place.exists():
        told = on_epoch(f"{pretraining.model} vectors") if on_epoch else None
        pretrain(benchmark, pretraining, out=place, with_train_tasks=wanted.with_train_tasks, on_epoch=told)
        return place
    found = Embeddings.open(place, benchmark.graph.fingerprint)
    same = all(found.settings.get(n) == v for n, v in pretraining.as_dict().items() if n not in OWN)
    if not same or found.facts.get("with_train_tasks") != wanted.with_train_tasks:
        raise FewlinkError(
            f"{place} holds {found.model} vectors that are not what the recipe wants ({pretraining.model}): remove the "
            "folder, or give --embeddings"
        )
    return place


def pretraining_settings(wanted: Vectors, device: str) -> EmbeddingSettings:
    """How the vectors that a recipe wants are pretrained."""
    settings = recipe(wanted.recipe, EmbeddingSettings).settings
    return dataclasses.replace(settings, seed=0, device=device).adjusted(wanted.set)


def open_vectors(folder: Path, benchmark: Benchmark, settings: AnySettings) -> Embeddings | TrailVectors:
    """The vectors in a folder, of the kind that a model looks at."""
    kind = TrailVectors if isinstance(settings, TrailSettings) else Embeddings
    return kind.open(folder, benchmark.graph.fingerprint)
