"""ULTRA as a scorer."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.core.threads import parallel_map, torch_threads
from fewlink.graph import Graph
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.ultra.network import Encoded, Tasks, UltraNetwork
from fewlink.models.ultra.propagation import CpuPropagation, Unlabelled
from fewlink.scorers import Question

HEADS = 16  # scored at once on a GPU


class KnownTask(NamedTuple):
    """A task, its encoding by the network and, on a CPU, the propagation that its heads share."""

    key: bytes
    task: Tasks
    encoded: Encoded
    unlabelled: Unlabelled | None


class UltraScorer:
    """ULTRA on a graph; it caches the encoding of the last task's references for further heads.

    On a CPU, several threads score the heads, one head at a time.
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
        with torch.no_grad():  # holds for one thread only
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
            padded = torch.cat([some, some[-1:].expand(HEADS - len(some))])[None]
            states = self.network.propagate(self.graph, known.task._replace(heads=padded), known.encoded)
            scores.append(self.network.scores(states, known.encoded, candidates[None])[0, : len(some)])
        return torch.cat(scores)

    def _ids(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self.device)


def scorer_on(name: str, network: UltraNetwork, graph: Graph, device: str) -> UltraScorer:
    """A scorer with this network on a graph, on a device."""
    return UltraScorer(name, network.to(device), ReadGraph.of(graph, names=False).to(device))
