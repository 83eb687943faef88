"""The vectors that TRAIL reads: ComplEx and TransE, of the known graph and of each masked view."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewlink.base.errors import FewlinkError
from fewlink.base.recipes import recipe
from fewlink.base.storage import new_folder
from fewlink.data.benchmark import Benchmark
from fewlink.data.training_graph import known_graph, masked_views
from fewlink.embeddings import Embeddings, EmbeddingSettings
from fewlink.graph import Graph
from fewlink.trail_0_1.model import Trail01Settings
from fewlink.training.family import Reporter
from fewlink.training.vectors import train_into, trained_already

MODELS = ("complex", "transe")
KNOWN, FORMAT = "known", "fewlink-trail-vectors/1"
Tables = tuple[Embeddings, Embeddings]  # ComplEx and TransE


@dataclass(frozen=True)
class Trail01Vectors:
    """`known` are the vectors that answer questions; those of the `views` are for training alone."""

    known: Tables
    views: tuple[Tables, ...]

    @property
    def model(self) -> str:
        return "+".join(MODELS)

    @property
    def dim(self) -> int:
        return self.known[0].dim

    def digest(self) -> str:
        """The sha256 of all tables with their shapes."""
        parts = [table.digest() for pair in (self.known, *self.views) for table in pair]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    def save(self, folder: Path, fingerprint: str, *, graph: str = "") -> None:
        """Write all tables into one folder, whole or not at all."""
        with new_folder(Path(folder), FORMAT, {"views": len(self.views)}) as beside:
            for pair, place in zip((self.known, *self.views), _places(beside, len(self.views)), strict=True):
                for table in pair:
                    table.save(place / table.model, fingerprint, graph=graph)

    @classmethod
    def open(cls, folder: Path, fingerprint: str | None = None, *, for_training: bool = True) -> Trail01Vectors:
        """What `save` or `pretrain_views` wrote; the views' vectors only where they are needed."""
        count = sum(1 for _ in Path(folder).glob("view-*")) if for_training else 0
        known, *views = (
            (Embeddings.open(place / MODELS[0], fingerprint), Embeddings.open(place / MODELS[1], fingerprint))
            for place in _places(Path(folder), count)
        )
        return cls(known, tuple(views))

    def check(self, benchmark: Benchmark) -> None:
        """Raises if the vectors are of another benchmark: they may have seen the answers of this one."""
        for table in (table for pair in (self.known, *self.views) for table in pair):
            if table.facts.get("benchmark") != benchmark.fingerprint:
                raise FewlinkError(
                    f"the vectors were not trained on the views of {benchmark.name}: fewlink train makes them where "
                    "no --embeddings are given"
                )


def pretrain_views(
    benchmark: Benchmark,
    settings: Trail01Settings,
    *,
    out: Path | str,
    on_epoch: Callable[[str], Reporter] | None = None,
) -> Trail01Vectors:
    """Train the vectors that TRAIL reads into a folder, for runs of any seed; what is there is not trained again.

    `on_epoch` makes, from the title of each table, what is called after its epochs.
    """
    graphs = [known_graph(benchmark), *(view.graph for view in masked_views(benchmark, settings.views))]
    for graph, place in zip(graphs, _places(Path(out), settings.views), strict=True):
        for model in MODELS:
            reporter = on_epoch(f"{model} vectors, {place.name}") if on_epoch else None
            train_table(benchmark, graph, vector_settings(settings, model), place / model, reporter, half=settings.half)
    return Trail01Vectors.open(Path(out), benchmark.graph.fingerprint)


def vector_settings(settings: Trail01Settings, model: str) -> EmbeddingSettings:
    """How one of the two tables is trained: its recipe, with the epochs that TRAIL asks for."""
    epochs = {"complex": settings.complex_epochs, "transe": settings.transe_epochs}[model]
    changes = {"dim": settings.dim, "epochs": epochs, "negatives": settings.negatives, "device": settings.device}
    return EmbeddingSettings(**{**recipe(model, EmbeddingSettings).settings.as_dict(), **changes})


def train_table(
    benchmark: Benchmark,
    graph: Graph,
    settings: EmbeddingSettings,
    folder: Path,
    on_epoch: Reporter | None,
    *,
    half: bool = False,
) -> None:
    """Train vectors of a graph that a benchmark knows, or of a part of it, into a folder, unless they are there."""
    facts = {"with_train_tasks": True, "trained_on": graph.fingerprint}
    if not trained_already(folder, benchmark, settings, {"benchmark": benchmark.fingerprint, **facts}, half=half):
        more: dict[str, Any] = {"facts": facts, "half": half, "on_epoch": on_epoch}
        train_into(folder, benchmark, graph.triples(), list(graph.relations), settings, **more)


def _places(folder: Path, count: int) -> Iterator[Path]:
    yield folder / KNOWN
    yield from (folder / f"view-{index}" for index in range(count))
