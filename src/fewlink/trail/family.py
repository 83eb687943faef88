"""The TRAIL family: how TRAIL is trained, opened and shipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fewlink.base.errors import FewlinkError
from fewlink.base.memory import PROGRAM, Parts
from fewlink.data.benchmark import Benchmark
from fewlink.data.catalogue import open_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.graph import Graph
from fewlink.trail.episodes import LARGEST, SMALLEST, relation_pairs
from fewlink.trail.learner import TrailLearner, network_of
from fewlink.trail.reading import ReadGraph
from fewlink.trail.scorer import TrailScorer
from fewlink.trail.settings import TrailSettings
from fewlink.training.family import Learner, VectorFreeFamily
from fewlink.training.run import check_weights

EDGE = 60  # bytes of an edge in three orders
STATES = 6  # tensors of the size of the states that answering needs at once


class TrailFamily(VectorFreeFamily):
    """TRAIL."""

    name = "trail"
    settings = TrailSettings
    any_shots = True
    any_graph = True
    last_is_best = True
    memory_advice = "queries=4"

    @property
    def models(self) -> Mapping[str, str]:
        return {"trail": "TRAIL: message passing over the graph, conditioned on the references; reads any graph"}

    def check(self, benchmark: Benchmark, settings: TrailSettings) -> None:
        for each in benchmarks_of(benchmark, settings):
            if not relation_pairs(known_graph(each)):
                raise FewlinkError(
                    f"{each.name} has nothing to learn on: no relation has {SMALLEST} to {LARGEST:,} pairs "
                    "of entities that other relations join as well"
                )

    def memory(
        self, graph: Graph, vectors: Any, settings: TrailSettings, *, runs: int = 1, training: bool = False
    ) -> Parts:
        number = 4 if settings.device == "cpu" else 2
        states = float(len(graph.entities)) * settings.width * number
        if training:
            states *= settings.relations * settings.queries
        return {
            "states": states * (2 * settings.layers + STATES if training else STATES),
            "edges": EDGE * 2.0 * graph.triple_count,
            "the program": PROGRAM,
        }

    def learner(self, benchmark: Benchmark, vectors: Any, settings: TrailSettings, seeds: Sequence[int]) -> Learner:
        (seed,) = seeds
        return TrailLearner(graphs_of(benchmark, settings), settings.adjusted([f"seed={seed}"]))

    def scorer(
        self,
        benchmark: Benchmark,
        vectors: Any,
        settings: TrailSettings,
        weights: dict[str, Tensor],
        *,
        parts: Mapping[str, Any],
        run: Path,
    ) -> TrailScorer:
        network = network_of(settings).to(settings.device)
        check_weights(network.state_dict(), weights, run)
        network.load_state_dict(weights)
        return TrailScorer(settings.model, network, ReadGraph.of(known_graph(benchmark)).to(settings.device))


def benchmarks_of(benchmark: Benchmark, settings: TrailSettings) -> list[Benchmark]:
    """What a run learns from: its benchmark, and those of `also`."""
    return [benchmark, *(open_benchmark(name) for name in settings.also.split(",") if name)]


def graphs_of(benchmark: Benchmark, settings: TrailSettings) -> list[Graph]:
    """The graphs that a run learns from."""
    return [known_graph(each) for each in benchmarks_of(benchmark, settings)]


FAMILY = TrailFamily()
