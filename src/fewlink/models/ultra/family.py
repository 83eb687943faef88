"""The ULTRA family, with runs and published weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from fewlink.core import memory
from fewlink.core.errors import InputError
from fewlink.core.memory import PROGRAM, Parts
from fewlink.data.benchmark import Benchmark
from fewlink.data.training_graph import known_graph
from fewlink.graph import Graph
from fewlink.models.family import Learner, NoVectors, Prepared
from fewlink.models.trail.family import EDGE, PAIR, PropagationFamily, graphs_of
from fewlink.models.ultra.learner import UltraLearner
from fewlink.models.ultra.network import UltraNetwork, read_checkpoint
from fewlink.models.ultra.scorer import HEADS, UltraScorer, scorer_on
from fewlink.models.ultra.settings import UltraSettings
from fewlink.models.weights import check_weights

STATES = 4  # temporary tensors of the size of the states
LAYER_STATES = 5  # tensors of the size of the states that a layer keeps for its gradients


class UltraFamily(PropagationFamily[UltraSettings]):
    """ULTRA."""

    name = "ultra"
    settings = UltraSettings
    checkpoint_models: ClassVar[tuple[str, ...]] = ("ultra",)

    @property
    def models(self) -> Mapping[str, str]:
        return {"ultra": "ULTRA (Galkin et al. 2024): message passing over relations, then entities; reads any graph"}

    def training_facts(self, benchmark: Benchmark, settings: UltraSettings) -> dict[str, Any]:
        start = {"start": read_checkpoint(settings.start).facts} if settings.start else {}
        return {**super().training_facts(benchmark, settings), **start}

    def check(self, benchmark: Benchmark, settings: UltraSettings) -> None:
        super().check(benchmark, settings)
        if settings.start and (shape := read_checkpoint(settings.start).shape) != settings.shape:
            options = " ".join(f"--set {name}={value}" for name, value in vars(shape).items())
            raise InputError(settings.start, f"has weights of another shape: train with {options}")

    def memory(
        self, graph: Graph, vectors: NoVectors, settings: UltraSettings, *, runs: int = 1, training: bool = False
    ) -> Parts:
        states = 4.0 * len(graph.entities) * settings.width
        if training:
            states *= settings.relations * settings.queries * runs * (LAYER_STATES * settings.layers + STATES)
        elif settings.device == "cpu":
            states *= 2 * settings.layers + 1 + STATES
        else:
            states *= HEADS * STATES
        return {
            "states": states,
            "edges": EDGE * 2.0 * graph.triple_count,
            "relations": PAIR * (2.0 * len(graph.relations)) ** 2 * (settings.relations * runs if training else 1),
            "the program": PROGRAM,
        }

    def learner(
        self, benchmark: Benchmark, vectors: NoVectors, settings: UltraSettings, seeds: Sequence[int]
    ) -> Learner:
        (seed,) = seeds
        graphs = graphs_of(benchmark, settings)
        start = read_checkpoint(settings.start).weights if settings.start else None
        return UltraLearner(graphs, settings.adjusted([f"seed={seed}"]), start)

    def scorer(
        self,
        benchmark: Benchmark,
        vectors: NoVectors,
        settings: UltraSettings,
        weights: dict[str, Tensor],
        *,
        run: Path,
    ) -> UltraScorer:
        network = UltraNetwork(settings.shape)
        check_weights(network.state_dict(), weights, run)
        network.load_state_dict(weights)
        return scorer_on(settings.model, network, known_graph(benchmark), settings.device)

    def from_checkpoint(self, model: str, benchmark: Benchmark, file: Path, device: str) -> Prepared:
        graph, checkpoint = known_graph(benchmark), read_checkpoint(file)
        settings = UltraSettings(**vars(checkpoint.shape), device=device)
        memory.ensure(model, self.memory(graph, NoVectors(), settings), device)
        scorer = scorer_on(name_of(file), checkpoint.network(), graph, device)
        return Prepared(scorer, {"checkpoint": checkpoint.facts})


def name_of(file: Path) -> str:
    """The name of a file of weights in results: `ultra-4g` for ultra_4g.pth."""
    name = re.sub(r"[\W_]+", "-", Path(file).stem.lower()).strip("-")
    return name if name.startswith("ultra") else f"ultra-{name}"


FAMILY = UltraFamily()
