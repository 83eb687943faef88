"""Tiny trained runs shared by the tests of prediction: trained once, and never changed by a test."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch
from tests.conftest import quickly

from fewlink.linker import Linker
from fewlink.linker.query import id_texts
from fewlink.models.embeddings import Embeddings
from fewlink.models.family import NoVectors
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.trail.settings import TrailSettings
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.training.trainer import train_run

FOLDER = tempfile.TemporaryDirectory()
REFERENCES = [("virus", "cell"), ("fungus", "plant")]


@functools.cache
def umls() -> Benchmark:
    return open_benchmark("umls")


@functools.cache
def trail_run() -> Path:
    """TRAIL after one step: sufficient for everything but quality."""
    settings = TrailSettings(
        width=8, layers=2, relation_layers=1, steps=1, relations=1, queries=2, candidates=32, evaluate_every=1
    )
    run = Path(FOLDER.name) / "trail"
    with quickly():
        train_run(umls(), NoVectors(), settings, run)
    return run


@functools.cache
def fsrl_run(model: str = "fsrl") -> Path:
    """FSRL or one of its variants after a few steps on random vectors."""
    random, graph = torch.Generator().manual_seed(0), umls().graph
    sizes = (len(graph.entities), 8), (2 * len(graph.relations), 8)
    vectors = Embeddings(*(torch.randn(size, generator=random) for size in sizes), "transe")
    run = Path(FOLDER.name) / model
    with quickly():
        train_run(umls(), vectors, FewShotSettings(model=model, batch=8, steps=2, evaluate_every=2, neighbours=4), run)
    return run


@functools.cache
def trail() -> Linker:
    return Linker.load(trail_run())


@functools.cache
def fsrl(model: str = "fsrl") -> Linker:
    return Linker.load(fsrl_run(model))


def references_of(linker: Linker, relation: str, shots: int | None = None) -> list[tuple[str, str]]:
    """The references of a query that names only a relation."""
    return id_texts(linker.graph, linker.find_references(None, relation, shots).pairs)
