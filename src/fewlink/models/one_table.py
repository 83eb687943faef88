"""The base of families whose models read one table of pretrained vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from fewlink.core.errors import FewlinkError
from fewlink.core.recipes import Vectors
from fewlink.models.embeddings import Embeddings
from fewlink.models.embeddings.table import check_fits
from fewlink.models.family import PretrainedVectors, Reporter, SettingsT, TrainedFamily
from fewlink.models.vectors import fold_in, pretrain, pretraining_settings, trained_already
from fewlink.tasks.benchmark import Benchmark


def references_seen(vectors: Embeddings) -> int:
    """The number of pairs of each dev and test relation that the vectors were trained on."""
    return int(vectors.facts.get("with_references", 0))


class OneTableFamily(TrainedFamily[SettingsT]):
    """Models that read one table of vectors, pretrained on the triples of a benchmark.

    knows_seen_references  whether the models' scorers declare that their vectors have seen references of dev and test
    """

    reads_vectors = True
    knows_seen_references: ClassVar[bool] = False

    def vectors_name(self, settings: SettingsT, wanted: Vectors, benchmark: Benchmark) -> str:
        with_train = "-with-train" if wanted.with_train_tasks else ""
        with_references = f"-with-{wanted.with_references}-references" if wanted.with_references else ""
        name = f"{wanted.recipe}{with_train}{with_references}-vectors"
        return "-".join([name, *wanted.set, benchmark.fingerprint[:8]]).replace("=", "-")

    def pretrain(
        self,
        benchmark: Benchmark,
        settings: SettingsT,
        wanted: Vectors,
        folder: Path,
        on_epoch: Callable[[str], Reporter] | None = None,
    ) -> None:
        pretraining = pretraining_settings(wanted, settings.device)
        seen = {"with_train_tasks": wanted.with_train_tasks, "with_references": wanted.with_references}
        if not trained_already(folder, benchmark, pretraining, seen, any_seed=True):
            reporter = on_epoch(f"{pretraining.model} vectors") if on_epoch else None
            pretrain(
                benchmark,
                pretraining,
                out=folder,
                with_train_tasks=wanted.with_train_tasks,
                with_references=wanted.with_references,
                on_epoch=reporter,
            )

    def open_vectors(self, folder: Path, fingerprint: str | None = None) -> Embeddings:
        return Embeddings.open(folder, fingerprint)

    def check_vectors(self, benchmark: Benchmark, vectors: PretrainedVectors) -> None:
        if not isinstance(vectors, Embeddings):
            raise FewlinkError(
                f"{self.name} models need one table of vectors: train an embedding model, such as complex"
            )
        check_fits(vectors, len(benchmark.graph.entities), len(benchmark.graph.relations))
        tasks_seen = vectors.facts.get("with_train_tasks") or references_seen(vectors)
        if tasks_seen and vectors.facts.get("benchmark") != benchmark.fingerprint:
            raise FewlinkError(
                f"the vectors were trained with task relations of a benchmark other than {benchmark.name} and may "
                f"have seen its answers: pretrain on {benchmark.name}"
            )
        if references_seen(vectors) and not self.knows_seen_references:
            raise FewlinkError(
                f"the vectors were trained with references of dev and test relations, which {self.name} models do not "
                "take: pretrain them without"
            )

    def fold_in(self, vectors: Embeddings, benchmark: Benchmark, entities: int, relations: int) -> Embeddings:
        return fold_in(vectors, benchmark.graph, entities, relations, len(benchmark.graph.relations) - relations)
