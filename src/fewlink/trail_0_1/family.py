"""The family of TRAIL 0.1: how TRAIL and its ablations are trained and opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fewlink.base.errors import FewlinkError
from fewlink.base.memory import PROGRAM, Parts
from fewlink.base.recipes import Vectors
from fewlink.data.benchmark import Benchmark
from fewlink.data.training_graph import known_graph, masked_views
from fewlink.fewshot.family import neighbour_bytes
from fewlink.graph import Graph
from fewlink.trail_0_1.context import NEIGHBOURS
from fewlink.trail_0_1.learner import Trail01Learner, Trail01Vectors, graph_context, pretrain_views
from fewlink.trail_0_1.model import Trail, Trail01Settings, TrailComposition, compositions
from fewlink.trail_0_1.scorer import Trail01Scorer
from fewlink.training.checkpoints import check_weights
from fewlink.training.family import Learner, Reporter, TrainedFamily
from fewlink.training.vectors import fold_in

EDGE = 90  # bytes of an edge in TRAIL's arrays, those of its graph and those while they are made
SHARED = ("views", "dim", "half", "complex_epochs", "transe_epochs")  # settings that decide the vectors


class Trail01Family(TrainedFamily):
    """TRAIL, and TRAIL without a kind of evidence or without reliability."""

    name = "trail-0.1"
    settings = Trail01Settings
    any_shots = True
    own_benchmark_only = True
    memory_advice = "views=1"

    @property
    def models(self) -> Mapping[str, str]:
        return {name: composition.about for name, composition in compositions().items()}

    def parts(self, model: str) -> dict[str, Any]:
        return {"evidence": list(compositions()[model].kinds), "scoring": list(compositions()[model].scoring)}

    def parts_of_0_1(self, model: str) -> dict[str, Any]:
        kinds = ["paths", "bilinear", "translation", "profile", "matching"]
        evidence = [kind for kind in kinds if model != f"trail-0.1-no-{kind}"]
        return {"evidence": evidence, "scoring": kinds[:-1]}

    def ablations(self) -> dict[str, list[str]]:
        return {"trail-0.1": list(self.models)}

    def check(self, benchmark: Benchmark, settings: Trail01Settings) -> None:
        masked_views(benchmark, settings.views)

    def vectors_name(self, settings: Trail01Settings, wanted: Vectors, benchmark: Benchmark) -> str:
        shared = [{name: getattr(settings, name) for name in SHARED}, benchmark.fingerprint]
        return f"trail-vectors-{hashlib.sha256(json.dumps(shared).encode()).hexdigest()[:8]}"

    def pretrain(
        self,
        benchmark: Benchmark,
        settings: Trail01Settings,
        wanted: Vectors,
        folder: Path,
        on_epoch: Callable[[str], Reporter] | None = None,
    ) -> None:
        pretrain_views(benchmark, settings, out=folder, on_epoch=on_epoch)

    def open_vectors(
        self, folder: Path, fingerprint: str | None = None, *, for_training: bool = True
    ) -> Trail01Vectors:
        return Trail01Vectors.open(folder, fingerprint, for_training=for_training)

    def answering_digest(self, vectors: Trail01Vectors) -> str:
        return Trail01Vectors(vectors.known, ()).digest()

    def check_vectors(self, benchmark: Benchmark, vectors: Any) -> None:
        if not isinstance(vectors, Trail01Vectors):
            raise FewlinkError("trail-0.1 takes vectors of the known graph and of each view: fewlink.train makes them")
        vectors.check(benchmark)

    def fold_in(self, vectors: Trail01Vectors, benchmark: Benchmark, entities: int, relations: int) -> Trail01Vectors:
        known, later = known_graph(benchmark), len(benchmark.graph.relations) - relations
        first, second = (fold_in(table, known, entities, relations, later) for table in vectors.known)
        for table in (first, second):
            table.facts["benchmark"] = benchmark.fingerprint
        return Trail01Vectors((first, second), ())

    def upgraded(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        names = {name: name.replace("parts.trails.near.", "parts.trails.") for name in tensors}  # version 0.1
        return {names[name].replace("parts.trails.", "parts.paths."): tensor for name, tensor in tensors.items()}

    def memory(
        self, graph: Graph, vectors: Trail01Vectors, settings: Trail01Settings, *, runs: int = 1, training: bool = False
    ) -> Parts:
        """On the CPU vectors stay in their files, of which only rows that are used are read."""
        graphs = 1 + settings.views * training
        table = 4.0 * len(graph.entities) * sum(part.dim for part in vectors.known)
        return {
            "vectors": graphs * table * (settings.device != "cpu"),
            "neighbours": graphs * neighbour_bytes(graph, NEIGHBOURS),
            "edges": graphs * EDGE * 2.0 * graph.triple_count,
            "the program": PROGRAM,
        }

    def learner(
        self, benchmark: Benchmark, vectors: Trail01Vectors, settings: Trail01Settings, seeds: Sequence[int]
    ) -> Learner:
        return Trail01Learner(benchmark, vectors, settings, seeds)

    def scorer(
        self,
        benchmark: Benchmark,
        vectors: Trail01Vectors,
        settings: Trail01Settings,
        weights: dict[str, Tensor],
        *,
        parts: Mapping[str, Any],
        run: Path,
    ) -> Trail01Scorer:
        named = compositions()[settings.model]
        trained = TrailComposition(tuple(parts["evidence"]), tuple(parts["scoring"]), named.weighing, named.about)
        trail = Trail(trained).to(settings.device)
        check_weights(trail.state_dict(), weights, run)
        trail.load_state_dict(weights)
        return Trail01Scorer(settings.model, trail, graph_context(benchmark, vectors).to(settings.device))


FAMILY = Trail01Family()
