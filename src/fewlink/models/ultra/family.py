"""ULTRA as a family: its scorer, how it is tuned on episodes, and how published weights and runs are opened."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fewlink.core import memory
from fewlink.core.errors import InputError
from fewlink.core.memory import PROGRAM, Parts
from fewlink.core.threads import parallel_map, torch_threads
from fewlink.data.benchmark import Benchmark
from fewlink.data.training_graph import known_graph
from fewlink.graph import Graph
from fewlink.models.family import Learner, NoVectors, Prepared
from fewlink.models.trail.episodes import Batch
from fewlink.models.trail.family import EDGE, PAIR, PropagationFamily, graphs_of
from fewlink.models.trail.learner import TrailLearner
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.ultra.network import Encoded, EntityLayer, Tasks, UltraNetwork, read_checkpoint
from fewlink.models.ultra.settings import UltraSettings
from fewlink.models.weights import check_weights
from fewlink.propagation.edges import EdgeTable
from fewlink.propagation.product import Norms, chunk_sums, edge_sums
from fewlink.scorers import Question

HEADS = 16  # answered at once on a GPU
FEW = 0.15  # share of all edges up to which a layer goes along the edges of changed entities only
SOME = 0.4  # share up to which the last layer computes asked tails only
STATES = 4  # tensors of the size of the states that answering needs beside what a task's heads have in common
LEARNT = 5  # tensors of the size of the states that a layer keeps for its gradients


class Unlabelled(NamedTuple):
    """What all heads of a task have in common: states (nodes, W) before each layer and after the last, and the sums of
    messages in each layer, without a label at a head. A label changes only what it reaches."""

    states: list[Tensor]
    sums: list[Tensor]


class KnownTask(NamedTuple):
    """A task and what the network made of its references; on a CPU also what its heads have in common."""

    key: bytes
    task: Tasks
    encoded: Encoded
    unlabelled: Unlabelled | None


class UltraScorer:
    """ULTRA on a graph; what follows from references is kept until others are given.

    On a CPU, heads are answered one by one, two at a time where there are several.
    """

    def __init__(self, name: str, network: UltraNetwork, graph: ReadGraph) -> None:
        self.name, self.network, self.graph = name, network.eval(), graph
        self.device = graph.device
        self._known: KnownTask | None = None
        self._idle: list[CpuPropagation] = []  # each used by one thread at a time
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_known": None, "_idle": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        if not len(question.heads):
            return torch.zeros(0, len(question.candidates), device=self.device)
        with self._lock:
            known, candidates = self._task(question.references), self._ids(question.candidates)
        if known.unlabelled is None:
            return self._on_gpu(known, self._ids(question.heads), candidates)
        heads = question.heads.tolist()
        return torch.stack(parallel_map(lambda head: self._one_head(known, head, candidates), heads))

    def _task(self, references: np.ndarray) -> KnownTask:
        """The task with these references (K, 2)."""
        key = references.astype(np.int64).tobytes()
        if self._known is None or self._known.key != key:
            self._known = None  # free its memory first
            pairs = self._ids(references)[None]
            visible, nothing = torch.ones(1, self.graph.relations, device=self.device), pairs.new_zeros(1, 0)
            weights = torch.ones(1, len(references), device=self.device)
            task = Tasks(pairs, weights, visible, nothing, nothing)
            encoded, unlabelled = self.network.encode(self.graph, task), None
            if self.device.type == "cpu":
                with torch_threads(1):  # results do not depend on the number of threads
                    unlabelled = CpuPropagation(self.network, self.graph.edges).unlabelled(task, encoded)
            self._known = KnownTask(key, task, encoded, unlabelled)
        return self._known

    def _one_head(self, known: KnownTask, head: int, candidates: Tensor) -> Tensor:
        """Scores (C,) on a CPU."""
        assert known.unlabelled is not None
        with torch.no_grad():  # a switch of each thread
            try:
                propagation = self._idle.pop()
            except IndexError:
                propagation = CpuPropagation(self.network, self.graph.edges)
            states = propagation.states_of(known.task, known.encoded, known.unlabelled, head, candidates)
            self._idle.append(propagation)
            return self.network.score(states, known.encoded.task)

    def _on_gpu(self, known: KnownTask, heads: Tensor, candidates: Tensor) -> Tensor:
        """Scores (H, C) on a GPU, several heads at once."""
        scores = []
        for some in heads.split(HEADS):
            asked = torch.cat([some, some[-1:].expand(HEADS - len(some))])[None]
            states = self.network.propagate(self.graph, known.task._replace(heads=asked), known.encoded)
            scores.append(self.network.scores(states, known.encoded, candidates[None])[0, : len(some)])
        return torch.cat(scores)

    def _ids(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self.device)


class CpuPropagation:
    """Propagation over one graph for one head; its buffers are used again for each head."""

    def __init__(self, network: UltraNetwork, edges: EdgeTable) -> None:
        self.network, self.edges = network, edges
        self.states = torch.zeros(edges.nodes, network.shape.width)
        self.moved = torch.zeros_like(self.states)

    def unlabelled(self, task: Tasks, encoded: Encoded) -> Unlabelled:
        """The states and sums of messages of all entities, without a label at a head."""
        states, sums = [torch.zeros_like(self.states)], []
        for layer, w, new in self._layers(encoded):
            sums.append(torch.empty_like(self.states))
            moved = torch.empty_like(self.states)
            self._all(layer, w, states[-1], moved, *self._over(task, new, states[-1]), keep=sums[-1])
            states.append(moved)
        return Unlabelled(states, sums)

    def states_of(self, task: Tasks, encoded: Encoded, common: Unlabelled, head: int, rows: Tensor) -> Tensor:
        """States (n, W) of entities `rows` (n,) after the last layer, given one task and one head."""
        label = encoded.task  # (1, W)
        changed, x = torch.tensor([head]), label
        layers, everywhere = self._layers(encoded), False
        for number, (layer, w, new) in enumerate(layers):
            if not everywhere:
                at = self.edges.by_head.edges_of(changed)
                if len(at) <= FEW * self.edges.edges:
                    before = common.states[number], common.sums[number]
                    changed, x = self._spread(layer, w, new, task, before, changed, x, at, label, head)
                    continue
                everywhere = True
                self.states.copy_(common.states[number])
                self.states[changed] = x
            targets, messages = self._over(task, new, self.states)
            targets, messages = torch.cat([targets, targets.new_tensor([head])]), torch.cat([messages, label])
            if number == len(layers) - 1:
                return self._some(layer, w, targets, messages, rows)
            self._all(layer, w, self.states, self.moved, targets, messages)
            self.states, self.moved = self.moved, self.states
        self.states.copy_(common.states[-1])
        self.states[changed] = x
        return self.states[rows]

    def _layers(self, encoded: Encoded) -> list[tuple[EntityLayer, Tensor, Tensor]]:
        """Each layer with the weights of relations (2R, W), and of the new one and its inverse (2, W)."""
        return list(zip(self.network.layers, encoded.relations[:, 0], encoded.new[:, 0], strict=True))

    def _over(self, task: Tasks, new: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The messages over the references: their targets (2K,) and values (2K, W)."""
        heads, tails = task.references[0].unbind(1)
        return torch.cat([tails, heads]), torch.cat([x[heads] * new[0], x[tails] * new[1]])

    def _spread(
        self,
        layer: EntityLayer,
        w: Tensor,
        new: Tensor,
        task: Tasks,
        common: tuple[Tensor, Tensor],
        changed: Tensor,
        x: Tensor,
        at: Tensor,
        label: Tensor,
        head: int,
    ) -> tuple[Tensor, Tensor]:
        """The entities that a label at the head has changed after a layer, and their states; `at`: the places of the
        edges of those changed before it, whose states are x."""
        order, (states, sums) = self.edges.by_head, common
        places = torch.full((self.edges.nodes,), -1)
        places[changed] = torch.arange(len(changed))
        gaps = x - states[changed]
        messages = [gaps[places[order.row[at]]] * w[order.second[at]]]
        targets = [order.first[at].long()]
        heads, tails = task.references[0].unbind(1)
        for sources, ends, weight in ((heads, tails, new[0]), (tails, heads, new[1])):
            inside = places[sources] >= 0
            messages.append(gaps[places[sources[inside]]] * weight)
            targets.append(ends[inside])
        reached = torch.cat([changed, *targets]).unique()
        own = states[reached]
        places[reached] = torch.arange(len(reached))
        own[places[changed]] = x
        total = sums[reached].index_add_(0, places[torch.cat(targets)], torch.cat(messages))
        total[places[head]] += label[0]
        return reached, layer.updated(own, total)

    def _all(
        self,
        layer: EntityLayer,
        w: Tensor,
        x: Tensor,
        moved: Tensor,
        targets: Tensor,
        messages: Tensor,
        keep: Tensor | None = None,
    ) -> None:
        """Write the states after a layer into `moved`, and the sums of messages into `keep`; `messages` (m, W) to
        `targets` (m,) are added to those over the edges."""
        order = self.edges.by_tail
        for chunk in order.chunks(False):
            sums = chunk_sums(order, chunk, x[:, None], w, Norms.ONE)[:, 0]
            inside = (targets >= chunk.rows.start) & (targets < chunk.rows.stop)
            sums.index_add_(0, targets[inside] - chunk.rows.start, messages[inside])
            moved[chunk.rows] = layer.updated(x[chunk.rows], sums)
            if keep is not None:
                keep[chunk.rows] = sums

    def _some(self, layer: EntityLayer, w: Tensor, targets: Tensor, messages: Tensor, rows: Tensor) -> Tensor:
        """The states of `rows` only after a layer."""
        order, (rows, back) = self.edges.by_tail, rows.unique(return_inverse=True)
        at = order.edges_of(rows)
        if len(at) > SOME * self.edges.edges:
            self._all(layer, w, self.states, self.moved, targets, messages)
            return self.moved[rows[back]]
        over = self.states.index_select(0, order.first[at]).mul_(w.index_select(0, order.second[at]))
        sums = edge_sums(order, rows, over)
        places = torch.full((self.edges.nodes,), -1)
        places[rows] = torch.arange(len(rows))
        inside = places[targets] >= 0
        sums.index_add_(0, places[targets[inside]], messages[inside])
        return layer.updated(self.states[rows], sums)[back]


class UltraLearner(TrailLearner):
    """One run of ULTRA, on the episodes and with the loss and the optimizer of TRAIL."""

    settings: UltraSettings

    def new_network(self) -> Any:
        return UltraNetwork(self.settings.shape)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def loss(self, batch: Batch) -> Tensor:
        references, heads, candidates = batch.tasks
        tasks = Tasks(references.entities, references.used, references.visible, heads, candidates)
        scores = self.network(self.graphs[batch.graph], tasks).masked_fill(batch.excluded, -torch.inf)
        return cross_entropy(scores.flatten(0, 1), batch.answers.flatten())

    def scorer(self, run: int) -> Any:
        network = self.new_network().to(self.device)
        network.load_state_dict(self.averaged)
        return UltraScorer(self.settings.model, network, self.graphs[0])


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
            wanted = " ".join(f"--set {name}={value}" for name, value in vars(shape).items())
            raise InputError(settings.start, f"holds weights of another shape: train with {wanted}")

    def memory(
        self, graph: Graph, vectors: NoVectors, settings: UltraSettings, *, runs: int = 1, training: bool = False
    ) -> Parts:
        states = 4.0 * len(graph.entities) * settings.width
        if training:
            states *= settings.relations * settings.queries * runs * (LEARNT * settings.layers + STATES)
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
        graphs, start = graphs_of(benchmark, settings), None
        if settings.start:
            start = read_checkpoint(settings.start).weights
        (seed,) = seeds
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


def scorer_on(name: str, network: UltraNetwork, graph: Graph, device: str) -> UltraScorer:
    """A network on a graph as a scorer on a device."""
    return UltraScorer(name, network.to(device), ReadGraph.of(graph, names=False).to(device))


def name_of(file: Path) -> str:
    """The name of weights in results: `ultra-4g` for ultra_4g.pth."""
    name = re.sub(r"[\W_]+", "-", Path(file).stem.lower()).strip("-")
    return name if name.startswith("ultra") else f"ultra-{name}"


FAMILY = UltraFamily()
