"""The few-shot family: how FSRL, its ablations and GMatching are trained and opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.memory import PROGRAM, Parts
from fewlink.core.recipes import Vectors
from fewlink.data.benchmark import Benchmark
from fewlink.embeddings import Embeddings
from fewlink.embeddings.table import check_fits
from fewlink.graph import Graph
from fewlink.models.family import Learner, Reporter, TrainedFamily
from fewlink.models.fsrl.learner import FewShotLearner, assemble, load_weights, sampler
from fewlink.models.fsrl.model import COMPOSITIONS, PARTS, FewShotScorer, FewShotSettings
from fewlink.models.vectors import fold_in, pretrain, pretraining_settings, trained_already

NEIGHBOUR = 4 + 4 + 4  # bytes of a neighbour: its relation, its entity, and in TRAIL 0.1 how many share it
SORTED_EDGE = 40  # bytes of an edge while neighbours are chosen


class OneTableFamily(TrainedFamily):
    """Models that read one table of vectors, which is pretrained on the triples of a benchmark."""

    def vectors_name(self, settings: Any, wanted: Vectors, benchmark: Benchmark) -> str:
        seen = "-with-train" if wanted.with_train_tasks else ""
        what = f"{wanted.recipe}{seen}-vectors"
        return "-".join([what, *wanted.set, benchmark.fingerprint[:8]]).replace("=", "-")

    def pretrain(
        self,
        benchmark: Benchmark,
        settings: Any,
        wanted: Vectors,
        folder: Path,
        on_epoch: Callable[[str], Reporter] | None = None,
    ) -> None:
        pretraining = pretraining_settings(wanted, settings.device)
        with_train_tasks = wanted.with_train_tasks
        if not trained_already(folder, benchmark, pretraining, {"with_train_tasks": with_train_tasks}, any_seed=True):
            reporter = on_epoch(f"{pretraining.model} vectors") if on_epoch else None
            pretrain(benchmark, pretraining, out=folder, with_train_tasks=with_train_tasks, on_epoch=reporter)

    def open_vectors(self, folder: Path, fingerprint: str | None = None, *, for_training: bool = True) -> Embeddings:
        return Embeddings.open(folder, fingerprint)

    def check_vectors(self, benchmark: Benchmark, vectors: Any) -> None:
        if not isinstance(vectors, Embeddings):
            raise FewlinkError(f"models of the family {self.name} take one table of vectors: see fewlink.pretrain")
        check_fits(vectors, len(benchmark.graph.entities), len(benchmark.graph.relations))
        if vectors.facts.get("with_train_tasks") and vectors.facts.get("benchmark") != benchmark.fingerprint:
            raise FewlinkError(
                f"the vectors were trained with the train relations of another benchmark than {benchmark.name}, and "
                "may have seen its answers: pretrain on this one"
            )

    def fold_in(self, vectors: Embeddings, benchmark: Benchmark, entities: int, relations: int) -> Embeddings:
        return fold_in(vectors, benchmark.graph, entities, relations, len(benchmark.graph.relations) - relations)


class FewShotFamily(OneTableFamily):
    """FSRL, its ablations, the authors' program and GMatching."""

    name = "fewshot"
    settings = FewShotSettings
    side_by_side = True
    memory_advice = "neighbours=10"

    @property
    def models(self) -> Mapping[str, str]:
        return {name: composition.about for name, composition in COMPOSITIONS.items()}

    def parts(self, model: str) -> dict[str, Any]:
        return {kind: getattr(COMPOSITIONS[model], kind).__name__ for kind in PARTS}

    def ablations(self) -> dict[str, list[str]]:
        return {"fsrl": ["fsrl", *(name for name in COMPOSITIONS if name.startswith("fsrl-as"))]}

    def part_texts(self) -> dict[str, str]:
        parts = dict.fromkeys(getattr(each, kind) for kind in PARTS for each in COMPOSITIONS.values())
        return {part.__name__: (part.__doc__ or "").splitlines()[0] for part in parts}

    def check(self, benchmark: Benchmark, settings: FewShotSettings) -> None:
        sampler(benchmark, settings, [settings.seed])

    def check_fold_in(self, run: Path, weights: Mapping[str, Tensor]) -> None:
        if any(name.startswith("around.") for name in weights):
            raise InputError(run, "trained its vectors with the model, and has none for new entities: train it again")

    def memory(
        self, graph: Graph, vectors: Embeddings, settings: FewShotSettings, *, runs: int = 1, training: bool = False
    ) -> Parts:
        """On the CPU vectors stay in their file, of which only rows that are used are read, unless they are tuned."""
        table = 4.0 * len(graph.entities) * vectors.dim
        copied, tuned = settings.device != "cpu" or settings.standardise, settings.embedding_rate > 0
        return {
            "vectors": table * (copied + 4 * tuned * runs),  # tuned ones have a gradient and two moments
            "neighbours": runs * neighbour_bytes(graph, settings.neighbours),
            "edges": SORTED_EDGE * 2.0 * graph.triple_count,
            "the program": PROGRAM,
        }

    def learner(
        self, benchmark: Benchmark, vectors: Embeddings, settings: FewShotSettings, seeds: Sequence[int]
    ) -> Learner:
        return FewShotLearner(benchmark, vectors, settings, seeds)

    def scorer(
        self,
        benchmark: Benchmark,
        vectors: Embeddings,
        settings: FewShotSettings,
        weights: dict[str, Tensor],
        *,
        parts: Mapping[str, Any],
        run: Path,
    ) -> FewShotScorer:
        model, neighbourhood = assemble(benchmark.graph, vectors, settings, settings.device)
        load_weights(model, neighbourhood, weights, run)
        return FewShotScorer(settings.model, model, neighbourhood)


def neighbour_bytes(graph: Graph, most: int) -> float:
    """Bytes of at most `most` neighbours of each entity, and of where they begin."""
    return float(NEIGHBOUR * np.minimum(graph.degrees, most).sum() + 8 * len(graph.entities))


FAMILY = FewShotFamily()
