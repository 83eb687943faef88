"""ULTRA as a scorer, and what scorers with published weights have in common."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fewlink.core.threads import parallel_map, torch_threads
from fewlink.models.contract import Question
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.ultra.network import Encoded, PublishedNetwork, Tasks, UltraNetwork
from fewlink.models.ultra.propagation import CpuPropagation, Unlabelled

HEADS = 16  # scored at once on a GPU

NetworkT = TypeVar("NetworkT", bound=PublishedNetwork)


class KnownTask(NamedTuple):
    """A task, its encoding by the network and, on a CPU, the propagation that its heads share."""

    key: bytes
    task: Tasks
    encoded: Encoded
    unlabelled: Unlabelled | None


class PublishedScorer(ABC, Generic[NetworkT]):
    """A network on a graph; it caches the encoding of the last task's references for further heads.

    On a CPU, several threads score the heads, one head at a time.
    """

    network_class: ClassVar[type[PublishedNetwork]]
    heads_at_once: ClassVar[int]  # on a GPU

    def __init__(self, name: str, network: NetworkT, graph: ReadGraph) -> None:
        self.name = name
        self.network = network.eval()
        self.graph = graph
        self.device = graph.device
        self._known: KnownTask | None = None
        self._idle: list[tuple[CpuPropagation, ...]] = []  # each used by one thread at a time
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
            known = self._task(question.references)
            candidates = self._ids(question.candidates)
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
            visible = torch.ones(1, self.graph.relations, device=self.device)
            nothing = pairs.new_zeros(1, 0)
            weights = torch.ones(1, len(references), device=self.device)
            task = Tasks(pairs, weights, visible, nothing, nothing)
            encoded = self.network.encode(self.graph, task)
            unlabelled = None
            if self.device.type == "cpu":
                with torch_threads(1):  # results do not depend on the number of threads
                    unlabelled = self._propagations()[0].unlabelled(task, encoded)
            self._known = KnownTask(key, task, encoded, unlabelled)
        return self._known

    def _propagations(self) -> tuple[CpuPropagation, ...]:
        """The propagation through each of the network's models of entities, with buffers of its own."""
        return tuple(CpuPropagation(model, self.graph.edges) for model in self.network.entity_models)

    def _one_head(self, known: KnownTask, head: int, candidates: Tensor) -> Tensor:
        """Scores (C,) on a CPU."""
        with torch.no_grad():  # holds for one thread only
            try:
                propagations = self._idle.pop()
            except IndexError:
                propagations = self._propagations()
            scores = self.score_head(propagations, known, head, candidates)
            self._idle.append(propagations)
            return scores

    def _on_gpu(self, known: KnownTask, heads: Tensor, candidates: Tensor) -> Tensor:
        """Scores (H, C) on a GPU, several heads at once."""
        scores = []
        count = self.heads_at_once
        for some in heads.split(count):
            padded = torch.cat([some, some[-1:].expand(count - len(some))])[None]
            tasks = known.task._replace(heads=padded, candidates=candidates[None])
            scores.append(self.network.scores(self.graph, tasks, known.encoded)[0, : len(some)])
        return torch.cat(scores)

    def _ids(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self.device)

    @abstractmethod
    def score_head(
        self, propagations: tuple[CpuPropagation, ...], known: KnownTask, head: int, candidates: Tensor
    ) -> Tensor:
        """Scores (C,) on a CPU with the buffers of some propagations."""


class UltraScorer(PublishedScorer[UltraNetwork]):
    """ULTRA on a graph."""

    network_class = UltraNetwork
    heads_at_once = HEADS

    def score_head(
        self, propagations: tuple[CpuPropagation, ...], known: KnownTask, head: int, candidates: Tensor
    ) -> Tensor:
        assert known.unlabelled is not None
        states = propagations[0].states_of(known.task, known.encoded, known.unlabelled, head, candidates)
        return self.network.entity_model.score(states, known.encoded.task)
