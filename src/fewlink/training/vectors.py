"""Embedding models trained as any other: into a folder, which `fewlink evaluate` measures and other models read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewlink.core.errors import FewlinkError
from fewlink.core.files import is_folder_of, read_json
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.models.embeddings import Embeddings, EmbeddingSettings
from fewlink.models.embeddings.family import EmbeddingScorer
from fewlink.models.embeddings.table import FORMAT
from fewlink.models.family import Reporter
from fewlink.models.vectors import pretrain
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.training.trainer import RunResult


@dataclass(frozen=True)
class TrainedVectors:
    """A trained embedding model as a scorer, with the benchmark and the references that it was trained on."""

    benchmark: Benchmark
    scorer: EmbeddingScorer
    config: dict[str, Any]
    shots: int
    seed: int


def train_vectors(
    benchmark: Benchmark,
    settings: EmbeddingSettings,
    folder: Path,
    shots: int,
    on_epoch: Callable[[str], Reporter] | None = None,
) -> RunResult:
    """Train on the background, the train relations and K references of each dev and test relation, and measure on dev.

    With `shots` 0, only the background is read. Interrupted training continues.
    """
    begin = time.monotonic()
    reporter = on_epoch(settings.model) if on_epoch else None
    pretrain(benchmark, settings, out=folder, with_train_tasks=shots > 0, with_references=shots, on_epoch=reporter)
    trained = open_trained(folder, benchmark, settings.device)
    figures = evaluate(benchmark, trained.scorer, Protocol("dev", shots)).metrics()["micro"] if shots else {}
    epochs = trained.config["measured"]["epochs"]
    return RunResult(folder, epochs, epochs, figures, "steps", time.monotonic() - begin)


def is_trained(folder: Path) -> bool:
    """Whether a folder has the vectors of an embedding model."""
    return is_folder_of(folder, FORMAT)


def open_trained(folder: Path, bench: Benchmark | str | None = None, device: str = "cpu") -> TrainedVectors:
    """The embedding model in a folder; `bench` is its benchmark, if that has moved since training."""
    facts = Embeddings.open(folder).facts
    source = bench or facts.get("source")
    if not source:
        raise FewlinkError(f"{folder} does not say which benchmark it was trained on: give it with --bench BENCH")
    benchmark = source if isinstance(source, Benchmark) else open_benchmark(source)
    vectors = Embeddings.open(folder, benchmark.graph.fingerprint)
    scorer = EmbeddingScorer(vectors, read_json(folder / "relations.json"), device)
    config = {"settings": vectors.settings, "measured": facts}
    return TrainedVectors(benchmark, scorer, config, facts.get("with_references", 0), vectors.settings.get("seed", 0))
