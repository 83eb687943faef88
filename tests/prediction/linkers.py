"""Tiny trained runs shared by the tests of prediction: trained once, and never changed by a test."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch
from tests.conftest import quickly

from fewlink.data import Benchmark, open_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.embeddings import Embeddings
from fewlink.fewshot.model import FewShotSettings
from fewlink.prediction import Linker
from fewlink.trail_0_1.learner import Trail01Vectors
from fewlink.trail_0_1.model import Trail01Settings
from fewlink.training.trainer import train_run

FOLDER = tempfile.TemporaryDirectory()
REFERENCES = [("virus", "cell"), ("fungus", "plant")]


@functools.cache
def umls() -> Benchmark:
    return open_benchmark("umls")


@functools.cache
def trail_run() -> Path:
    """TRAIL after a few steps on random vectors: sufficient for everything but quality."""
    random, graph = torch.Generator().manual_seed(0), known_graph(umls())

    def table(model: str) -> Embeddings:
        sizes = (len(graph.entities), 8), (2 * len(graph.relations), 8)
        facts = {"benchmark": umls().fingerprint}
        return Embeddings(*(torch.randn(size, generator=random) for size in sizes), model, facts=facts)

    pairs = [(table("complex"), table("transe")) for _ in range(3)]
    small = {"steps": 4, "evaluate_every": 4, "lessons": 1, "queries": 4, "candidates": 20, "hard": 5}
    run = Path(FOLDER.name) / "trail-0.1"
    with quickly():
        train_run(
            umls(), Trail01Vectors(pairs[0], tuple(pairs[1:])), Trail01Settings(views=2, relations=2, **small), run
        )
    return run


@functools.cache
def fsrl_run(model: str = "fsrl") -> Path:
    """FSRL or one of its variants after a few steps on random vectors."""
    random, graph = torch.Generator().manual_seed(0), umls().graph
    sizes = (len(graph.entities), 8), (2 * len(graph.relations), 8)
    vectors = Embeddings(*(torch.randn(size, generator=random) for size in sizes), "transe")
    run = Path(FOLDER.name) / model
    with quickly():
        train_run(umls(), vectors, FewShotSettings(model, batch=8, steps=2, evaluate_every=2, neighbours=4), run)
    return run


@functools.cache
def trail() -> Linker:
    return Linker.load(trail_run())


@functools.cache
def fsrl(model: str = "fsrl") -> Linker:
    return Linker.load(fsrl_run(model))
