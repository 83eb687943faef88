"""The TRAIL family: how TRAIL is trained, opened and shipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.core.files import exists
from fewlink.core.machine import Parts
from fewlink.graph import Graph
from fewlink.models.family import Learner, NoVectors, Prepared, TrainedFamily
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.settings import TrailSettings
from fewlink.models.trail.shipped import STATES, answering_memory, shipped, shipped_scorer
from fewlink.models.weights import check_weights
from fewlink.tasks.benchmark import Benchmark
from fewlink.tasks.catalogue import open_graph

if TYPE_CHECKING:
    from fewlink.models.trail.mixture import MixedScorer

WITHOUT_NAMES = "trail-no-names"

SettingsT = TypeVar("SettingsT", bound=TrailSettings)


class PropagationFamily(TrainedFamily[SettingsT]):
    """Models that pass messages over the graph and are trained as TRAIL is, on one or several graphs."""

    any_shots = True
    any_graph = True
    last_is_best = True
    several_graphs = True
    memory_advice = "queries=4"

    def training_facts(self, benchmark: Benchmark, settings: SettingsT) -> dict[str, Any]:
        others = graphs_of(benchmark, settings)[1:]
        return {"graphs": [graph.fingerprint for graph in others]} if others else {}

    def check(self, benchmark: Benchmark, settings: SettingsT) -> None:
        from fewlink.models.trail.learn import SMALLEST, relation_pairs

        names = [benchmark.name, *(name for name in settings.also.split(",") if name)]
        for name, graph in zip(names, graphs_of(benchmark, settings), strict=True):
            if not relation_pairs(graph):
                raise FewlinkError(
                    f"{name} has no relation to learn from: none has {SMALLEST} pairs "
                    "of entities that other relations join as well"
                )

    def training_memory(self, benchmark: Benchmark, vectors: NoVectors, settings: SettingsT, *, runs: int = 1) -> Parts:
        """The states of the largest graph, since a step reads one graph, and the edges of all."""
        graphs = graphs_of(benchmark, settings)
        needs = [self.memory(graph, vectors, settings, runs=runs, training=True) for graph in graphs]
        most = {part: max(need[part] for need in needs) for part in needs[0]}
        return {**most, **{part: sum(need[part] for need in needs) for part in ("edges", "relations")}}


class TrailFamily(PropagationFamily[TrailSettings]):
    """TRAIL."""

    name = "trail"
    settings = TrailSettings
    shipped_models: ClassVar[tuple[str, ...]] = ("trail", WITHOUT_NAMES)

    @property
    def models(self) -> Mapping[str, str]:
        return {"trail": "TRAIL: message passing over the graph, conditioned on the references; reads any graph"}

    def memory(
        self, graph: Graph, vectors: NoVectors, settings: TrailSettings, *, runs: int = 1, training: bool = False
    ) -> Parts:
        needs = answering_memory(graph, settings.width, settings.device, whole=training)
        if not training:
            return needs
        kept = 2 * settings.layers + STATES
        states = needs["states"] / STATES * kept * settings.relations * settings.queries * runs
        return {**needs, "states": states}

    def open_vectors(self, folder: Path, fingerprint: str | None = None) -> NoVectors:
        """The mixture that a run was deployed with, if there is one."""
        from fewlink.models.trail.mixture import Mixture

        return Mixture.open(folder) if exists(folder) else NoVectors()

    def learner(
        self, benchmark: Benchmark, vectors: NoVectors, settings: TrailSettings, seeds: Sequence[int]
    ) -> Learner:
        from fewlink.models.trail.learn import TrailLearner

        (seed,) = seeds
        return TrailLearner(graphs_of(benchmark, settings), settings.adjusted([f"seed={seed}"]))

    def scorer(
        self,
        benchmark: Benchmark,
        vectors: NoVectors,
        settings: TrailSettings,
        weights: dict[str, Tensor],
        *,
        run: Path,
    ) -> TrailScorer | MixedScorer:
        from fewlink.models.trail.learn import network_of
        from fewlink.models.trail.mixture import MixedScorer, Mixture

        network = network_of(settings).to(settings.device)
        check_weights(network.state_dict(), weights, run)
        network.load_state_dict(weights)
        graph = benchmark.known_graph
        read = ReadGraph.of(graph, names=settings.names)
        scorer = TrailScorer(settings.model, network, read.to(settings.device))
        return MixedScorer(scorer, vectors, graph) if isinstance(vectors, Mixture) else scorer

    def shipped(self, model: str, benchmark: Benchmark, device: str) -> Prepared:
        scorer = shipped_scorer(benchmark.known_graph, device, names=model != WITHOUT_NAMES)
        scorer.name = f"{model}-built-in"  # in results, beside `trail` as a run has trained it
        return Prepared(scorer, {"weights": shipped().facts})


def graphs_of(benchmark: Benchmark, settings: TrailSettings) -> list[Graph]:
    """The graphs that a run learns from: the known graphs of the benchmark and of those in `also`."""
    return [benchmark.known_graph, *benchmark.once(_other_graphs, settings.also)]


def _other_graphs(benchmark: Benchmark, also: str) -> list[Graph]:
    return [open_graph(name).known_graph for name in also.split(",") if name]


FAMILY = TrailFamily()
