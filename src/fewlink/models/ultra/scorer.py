"""A network with published weights as a scorer."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.core.threads import parallel_map, torch_threads
from fewlink.models.contract import Question
from fewlink.models.trail.features import ReadGraph
from fewlink.models.ultra.network import EncodedRelations, PublishedNetwork, PublishedTasks

HEADS = 4  # scored at once on a CPU


class EncodedTask(NamedTuple):
    """A task and its encoding by the network."""

    key: bytes
    task: PublishedTasks
    encoded: EncodedRelations


class PublishedScorer:
    """A network on a graph; it keeps the encoding of the last task's references for further heads."""

    def __init__(self, name: str, network: PublishedNetwork, graph: ReadGraph) -> None:
        self.name = name
        self.network = network.eval()
        self.graph = graph
        self.device = graph.device
        self._known: EncodedTask | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_known": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        if not len(question.heads):
            return torch.zeros(0, len(question.candidates), device=self.device)
        with self._lock:
            known = self._task(question.references)
        candidates = self._ids(question.candidates)[None]

        def scores(heads: Tensor) -> Tensor:
            with torch.no_grad():  # holds for one thread only
                tasks = known.task._replace(heads=heads[None], candidates=candidates)
                return self.network.scores(self.graph, tasks, known.encoded)[0]

        heads = self._ids(question.heads)
        if self.device.type == "cpu":
            return torch.cat(parallel_map(scores, heads.split(HEADS)))
        count = self.network.heads_on_gpu
        padded = torch.cat([heads, heads[-1:].expand(-len(heads) % count)])  # always as many: kernels are compiled once
        return torch.cat([scores(some) for some in padded.split(count)])[: len(heads)]

    def _task(self, references: np.ndarray) -> EncodedTask:
        """The task with these references (K, 2)."""
        key = references.astype(np.int64).tobytes()
        if self._known is None or self._known.key != key:
            self._known = None  # free its memory first
            pairs = self._ids(references)[None]
            visible = torch.ones(1, self.graph.relations, device=self.device)
            nothing = pairs.new_zeros(1, 0)
            weights = torch.ones(1, len(references), device=self.device)
            task = PublishedTasks(pairs, weights, visible, nothing, nothing)
            with torch_threads(1):  # results do not depend on the number of threads
                self._known = EncodedTask(key, task, self.network.encode(self.graph, task))
        return self._known

    def _ids(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self.device)
