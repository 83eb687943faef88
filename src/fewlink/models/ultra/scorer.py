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
from fewlink.models.trail.propagate import MessageEdges, Rows, every_row, rows_to
from fewlink.models.ultra.network import EncodedRelations, PublishedNetwork, PublishedTasks, reference_edges

LAYERS_TO = 3  # candidates: the layers before them compute most entities


class EncodedTask(NamedTuple):
    """A task and its encoding by the network."""

    key: bytes
    task: PublishedTasks
    encoded: EncodedRelations


class WaysTo(NamedTuple):
    """The `rows` that layers compute on a CPU for the states of a task's candidates (C,)."""

    key: bytes
    candidates: Tensor
    rows: list[Rows]


class PublishedScorer:
    """A network on a graph; it keeps what follows from the last task's references and candidates for further heads."""

    def __init__(self, name: str, network: PublishedNetwork, graph: ReadGraph) -> None:
        self.name = name
        self.network = network.eval()
        self.graph = graph
        self.device = graph.device
        self._known: EncodedTask | None = None
        self._ways: WaysTo | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_known": None, "_ways": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        if not len(question.heads) or not len(question.candidates):
            return torch.zeros(len(question.heads), len(question.candidates), device=self.device)
        candidates = self._ids(question.candidates)[None]
        with self._lock, torch_threads(1):  # results do not depend on the number of threads
            known = self._task(question.references)
            rows = self._rows(known, candidates[0]) if self.device.type == "cpu" else None

        def scores(heads: Tensor) -> Tensor:
            with torch.no_grad():  # holds for one thread only
                tasks = known.task._replace(heads=heads[None], candidates=candidates)
                return self.network.scores(self.graph, tasks, known.encoded, rows)[0]

        heads = self._ids(question.heads)
        if self.device.type == "cpu":
            return torch.cat(parallel_map(scores, heads.split(1)))  # states of several do not fit a cache
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
            encoded = self.network.encode(self.graph, task)
            if self.device.type == "cpu":
                without_head = self.network.first_model.without_head(self.graph, task, encoded)
                encoded = encoded._replace(without_head=without_head)
            self._known = EncodedTask(key, task, encoded)
        return self._known

    def _rows(self, known: EncodedTask, candidates: Tensor) -> list[Rows]:
        """What layers compute for the states of candidates (C,)."""
        ways = self._ways
        if ways is None or ways.key != known.key or not torch.equal(ways.candidates, candidates):
            edges = MessageEdges(self.graph.edges, reference_edges(known.task))
            layers = self.network.shape.layers
            last = rows_to(edges, candidates, min(LAYERS_TO, layers))
            ways = WaysTo(known.key, candidates, [every_row(edges)] * (layers - len(last)) + last)
            self._ways = ways
        return ways.rows

    def _ids(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self.device)
