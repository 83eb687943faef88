"""Pretrained vectors of a benchmark's own triples, in a folder; no dev or test pair is ever seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fewlink.base import distributed
from fewlink.base.errors import FewlinkError
from fewlink.base.recipes import OWN, Vectors, recipe
from fewlink.data.benchmark import Benchmark
from fewlink.data.training_graph import training_triples
from fewlink.embeddings import Embeddings, EmbeddingSettings, train
from fewlink.embeddings.checkpoint import remove_state
from fewlink.training.family import Reporter


def pretrain(
    benchmark: Benchmark,
    settings: EmbeddingSettings | None = None,
    *,
    out: Path | str,
    with_train_tasks: bool = False,
    half: bool = False,
    on_epoch: Reporter | None = None,
) -> Embeddings:
    """Train embeddings on the background, and on the train relations if asked for, into a folder.

    Without settings they are those of the recipe `complex`. Training that was stopped continues from its last saved
    epoch. With `half` the entities' vectors are kept in half precision. Several processes train as one; the first
    writes the folder, which all of them must see.
    """
    data = training_triples(benchmark, with_train_tasks=with_train_tasks)
    return train_into(
        Path(out),
        benchmark,
        data.triples,
        data.relations,
        settings or recipe("complex", EmbeddingSettings).settings,
        facts={"with_train_tasks": with_train_tasks},
        protected=~data.background,
        half=half,
        on_epoch=on_epoch,
    )


def train_into(
    folder: Path,
    benchmark: Benchmark,
    triples: np.ndarray,
    relations: list[str],
    settings: EmbeddingSettings,
    *,
    facts: Mapping[str, Any],
    protected: np.ndarray | None = None,
    half: bool = False,
    on_epoch: Reporter | None = None,
) -> Embeddings:
    """Train vectors of a benchmark's entities and of these relations into a folder; what was stopped continues.

    Shapes: `triples` (n, 3); `protected` (n,) bool, triples that are never held out.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    state = folder.with_name(f".{folder.name}.state.safetensors")
    sizes = len(benchmark.graph.entities), len(relations)
    vectors = train(triples, *sizes, settings, resume=state, on_epoch=on_epoch, protected=protected)
    vectors = vectors.half_precision() if half else vectors
    vectors.facts.update(benchmark=benchmark.fingerprint, **facts)
    graph = benchmark.graph.fingerprint
    distributed.from_first(lambda: vectors.save(folder, graph, graph=benchmark.name, relation_names=relations))
    remove_state(state)
    return vectors if distributed.count() == 1 else Embeddings.open(folder)


def trained_already(
    folder: Path,
    benchmark: Benchmark,
    settings: EmbeddingSettings,
    facts: Mapping[str, Any],
    *,
    half: bool = False,
    any_seed: bool = False,
) -> bool:
    """Whether a folder holds the vectors that these settings give; raises if it holds others."""
    if not folder.exists():
        return False
    saved = Embeddings.open(folder, benchmark.graph.fingerprint)
    free = OWN if any_seed else ("device",)
    same = all(saved.settings.get(name) == value for name, value in settings.as_dict().items() if name not in free)
    same = same and all(saved.facts.get(name, value) == value for name, value in facts.items())
    if not same or (saved.entities.dtype == torch.float16) != half:
        raise FewlinkError(
            f"{folder} holds {saved.model} vectors of other settings or of another benchmark: remove the folder, or "
            "give --embeddings"
        )
    return True


def pretraining_settings(wanted: Vectors, device: str) -> EmbeddingSettings:
    """How the vectors that a recipe names are pretrained."""
    settings = recipe(wanted.recipe, EmbeddingSettings).settings
    return dataclasses.replace(settings, seed=0, device=device).adjusted(wanted.set)
