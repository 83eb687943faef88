"""The ULTRA family, with runs and published weights."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from fewlink.core import machine
from fewlink.core.errors import InputError
from fewlink.core.machine import PROGRAM, Parts
from fewlink.graph import Graph
from fewlink.models.family import Learner, NoVectors, Prepared
from fewlink.models.trail.family import PropagationFamily, graphs_of
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.shipped import EDGE, PAIR
from fewlink.models.ultra.checkpoint import Checkpoint, read_checkpoint
from fewlink.models.ultra.learner import PublishedLearner
from fewlink.models.ultra.network import PublishedNetwork, UltraNetwork
from fewlink.models.ultra.scorer import PublishedScorer
from fewlink.models.ultra.settings import UltraSettings
from fewlink.models.weights import check_weights
from fewlink.tasks.benchmark import Benchmark

STATES = 10  # temporary tensors of the size of a head's states
LAYER_STATES = 5  # tensors of the size of the states that a layer keeps for its gradients

SettingsT = TypeVar("SettingsT", bound=UltraSettings)


class PublishedFamily(PropagationFamily[SettingsT]):
    """A model with published weights, which are used as they are or fine-tuned into runs.

    network_class  the class of its network
    """

    network_class: ClassVar[type[PublishedNetwork]]

    def read(self, file: Path | str) -> Checkpoint[PublishedNetwork]:
        """The weights in a file."""
        return read_checkpoint(file, self.network_class)

    def name_of(self, file: Path) -> str:
        """The name of a file of weights in results: `ultra-4g` for ultra_4g.pth."""
        name = re.sub(r"[\W_]+", "-", Path(file).stem.lower()).strip("-")
        return name if name.startswith(self.name) else f"{self.name}-{name}"

    def scorer_on(self, name: str, network: PublishedNetwork, graph: Graph, device: str) -> PublishedScorer:
        """A scorer with this network on a graph, on a device."""
        return PublishedScorer(name, network.to(device), ReadGraph.of(graph, names=False).to(device))

    @abstractmethod
    def layer_states(self, settings: SettingsT) -> float:
        """The number of tensors of the size of a head's states that all layers keep for their gradients."""

    def memory(
        self, graph: Graph, vectors: NoVectors, settings: SettingsT, *, runs: int = 1, training: bool = False
    ) -> Parts:
        kept = STATES + (self.layer_states(settings) if training else 0)
        states = 4.0 * len(graph.entities) * settings.width * kept
        heads = 2 if settings.device == "cpu" else self.network_class.heads_on_gpu
        if training:
            heads = settings.relations * settings.queries * runs
        return {
            "states": states * heads,
            "edges": EDGE * 2.0 * graph.triple_count,
            "relations": PAIR * (2.0 * len(graph.relations)) ** 2 * (settings.relations * runs if training else 1),
            "the program": PROGRAM,
        }

    def training_facts(self, benchmark: Benchmark, settings: SettingsT) -> dict[str, Any]:
        start = {"start": self.read(settings.start).facts} if settings.start else {}
        return {**super().training_facts(benchmark, settings), **start}

    def check(self, benchmark: Benchmark, settings: SettingsT) -> None:
        super().check(benchmark, settings)
        if settings.start and (shape := self.read(settings.start).shape) != settings.shape:
            options = " ".join(f"--set {name}={value}" for name, value in vars(shape).items())
            raise InputError(settings.start, f"has weights of another shape: train with {options}")

    def learner(self, benchmark: Benchmark, vectors: NoVectors, settings: SettingsT, seeds: Sequence[int]) -> Learner:
        (seed,) = seeds
        graphs = graphs_of(benchmark, settings)
        start = self.read(settings.start).weights if settings.start else None
        return PublishedLearner(self.network_class, graphs, settings.adjusted([f"seed={seed}"]), start)

    def scorer(
        self, benchmark: Benchmark, vectors: NoVectors, settings: SettingsT, weights: dict[str, Tensor], *, run: Path
    ) -> PublishedScorer:
        network = self.network_class(settings.shape)
        check_weights(network.state_dict(), weights, run)
        network.load_state_dict(weights)
        return self.scorer_on(settings.model, network, benchmark.known_graph, settings.device)

    def from_checkpoint(self, model: str, benchmark: Benchmark, file: Path, device: str) -> Prepared:
        graph = benchmark.known_graph
        checkpoint = self.read(file)
        settings = self.settings(**vars(checkpoint.shape), device=device)
        machine.ensure(model, self.memory(graph, NoVectors(), settings), device)
        scorer = self.scorer_on(self.name_of(file), checkpoint.network(), graph, device)
        return Prepared(scorer, {"checkpoint": checkpoint.facts})


class UltraFamily(PublishedFamily[UltraSettings]):
    """ULTRA."""

    name = "ultra"
    settings = UltraSettings
    network_class = UltraNetwork
    checkpoint_models: ClassVar[tuple[str, ...]] = ("ultra",)

    @property
    def models(self) -> Mapping[str, str]:
        return {"ultra": "ULTRA (Galkin et al. 2024): message passing over relations, then entities; reads any graph"}

    def layer_states(self, settings: UltraSettings) -> float:
        return LAYER_STATES * settings.layers


FAMILY = UltraFamily()
