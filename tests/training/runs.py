"""A quick benchmark and settings to train with, and what of a run folder must not depend on how it came about."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import quickly

from fewlink.models.embeddings import Embeddings
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.scorer import initial_model, inputs_of
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.training.trainer import Trainer

SMALL: dict[str, Any] = {"batch": 8, "steps": 6, "evaluate_every": 2, "neighbours": 4}


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with quickly():
        yield


@functools.cache
def umls() -> Benchmark:
    return open_benchmark("umls")


@functools.cache
def vectors(seed: int = 0, dim: int = 8, dtype: torch.dtype = torch.float32) -> Embeddings:
    """Random vectors: enough for everything but quality."""
    graph, random = umls().graph, torch.Generator().manual_seed(seed)
    sizes = (len(graph.entities), dim), (2 * len(graph.relations), dim)
    return Embeddings(*(torch.randn(size, generator=random, dtype=torch.float32).to(dtype) for size in sizes), "transe")


def small(**changes: Any) -> FewShotSettings:
    return FewShotSettings(**{**SMALL, **changes})


def assembled(settings: FewShotSettings) -> tuple[FewShotModel, Neighbourhood]:
    """A model with its initial parameters, and its inputs."""
    return initial_model(vectors().dim, settings), inputs_of(umls().graph, vectors(), settings)


def doubled(settings: FewShotSettings, *seeds: int) -> Trainer:
    """A trainer that works in double precision: Adam blows up the rounding of gradients that are zero."""
    trainer = Trainer(umls(), vectors(), settings, seeds)
    for weight in trainer.learner.weights.values():
        weight.data = weight.data.double()
    trainer.learner.module.double()
    return trainer


def lines_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def timeless(run: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k not in ("seconds", "steps_per_second")} for line in lines_of(run)]


def saved(run: Path) -> list[bytes]:
    """Everything of a run that must not depend on how often it was stopped."""
    files = ("last/weights", "last/optimizer", "best/weights")
    return [(run / f"{file}.safetensors").read_bytes() for file in files]


def everything(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """When each file was written and what it holds."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
