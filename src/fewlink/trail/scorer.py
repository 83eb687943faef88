"""TRAIL as a scorer of the common evaluator."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.graph import Graph
from fewlink.propagation.parts import GraphPart, graph_part
from fewlink.scorers import Question, Reasons
from fewlink.trail.answering import CpuPropagation
from fewlink.trail.explanation import EVIDENCE, encode_without_each, explain
from fewlink.trail.network import Encoded, TrailNetwork
from fewlink.trail.reading import MOST_REFERENCES, ReadGraph, Tasks, read_tasks

QUERIES = 8  # heads of a block on a GPU
BLOCKS = 4  # blocks at once
MOST_TASKS = 16  # tasks that are remembered
WHOLE = 1_500_000  # edges, inverse ones included, up to which a CPU reads the whole graph
PART = 50_000  # edges that a part of a larger graph is grown to


class RememberedTask(NamedTuple):
    """A task, in ids of the whole graph, and what the network made of its references."""

    task: Tasks
    encoded: Encoded


class TrailScorer:
    """A trained TRAIL on a graph. What follows from references is kept for further heads; several tasks are remembered.

    On a CPU, heads are answered one by one. Of a graph with more than `WHOLE` edges only the neighbourhood of the head
    and the references is read; tails outside of it have the same, low score.
    """

    def __init__(self, name: str, network: TrailNetwork, graph: ReadGraph, source: Graph | None = None) -> None:
        self.name, self.network, self.graph, self.evidence = name, network.eval(), graph, EVIDENCE
        self.device, self.named = graph.device, source
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.source = source if source and self.device.type == "cpu" and 2 * source.triple_count > WHOLE else None
        self._tasks: dict[bytes, RememberedTask] = {}  # the last used last
        self._whole: CpuPropagation | None = None

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        task, encoded = self._remembered(question.references)
        if self.device.type == "cuda":
            return self._on_gpu(task, encoded, question)
        return torch.stack([self._one_head(task, encoded, int(h), question.candidates) for h in question.heads])

    @torch.no_grad()
    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """What carried the score of one pair, given references (K, 2)."""
        task, encoded = self._remembered(references)
        graph, local, part = self._read(task, head, tail)
        without_each = encode_without_each(self.network, graph, local)
        nodes = None if part is None else part.nodes
        head, tail = (head, tail) if part is None else part.places(np.array([head, tail])).tolist()
        reasons = explain(self.network, graph, local, encoded, without_each, head, tail, most, nodes)
        return dataclasses.replace(reasons, graph=self.named)

    def task(self, references: np.ndarray) -> Tasks:
        """One task with these references (K, 2), and no queries yet."""
        shots = min(len(references), MOST_REFERENCES)
        size = shots if self.device.type == "cpu" else 8 if shots <= 8 else 16
        padded = np.zeros((1, size, 2), np.int64)
        padded[0, :shots] = references[:shots]
        weights = torch.from_numpy((np.arange(size) < shots).astype(np.float32)[None]).to(self.device)
        visible = torch.ones(1, self.graph.relations, device=self.device)
        nothing = torch.zeros(1, 0, dtype=torch.long, device=self.device)
        return Tasks(self._ids(padded), weights, visible, nothing, nothing)

    def _remembered(self, references: np.ndarray) -> RememberedTask:
        """The task with these references, new or remembered; of too many the one used longest ago is forgotten."""
        key = references.astype(np.int64).tobytes()
        known = self._tasks.pop(key, None)
        if known is None:
            task = self.task(references)
            graph, local, _ = self._read(task)
            known = RememberedTask(task, self.network.encode(graph, local, read_tasks(graph, local)))
        self._tasks[key] = known
        if len(self._tasks) > MOST_TASKS:
            del self._tasks[next(iter(self._tasks))]
        return known

    def _read(self, task: Tasks, *more: int) -> tuple[ReadGraph, Tasks, GraphPart | None]:
        """The graph, or the part of it around the references and `more` entities, and the task in its ids."""
        if self.source is None:
            return self.graph, task, None
        ends = task.references[0].numpy()
        part = graph_part(self.source, np.append(ends.reshape(-1), more), PART)
        local = task._replace(references=torch.from_numpy(part.places(ends))[None])
        return self.graph.part(part.edges, part.nodes), local, part

    def _one_head(self, task: Tasks, encoded: Encoded, head: int, candidates: np.ndarray) -> Tensor:
        """Scores (C,) of candidates on a CPU."""
        graph, local, part = self._read(task, head)
        if part is None:
            self._whole = self._whole or CpuPropagation(self.network, graph.edges)
            states = self._whole.states_of(local, encoded, head, self._ids(candidates))
            return self.network.score(states, encoded.task)
        places = part.places(candidates)
        inside = places >= 0
        states = torch.zeros(len(candidates), self.network.shape.width)
        propagation = CpuPropagation(self.network, graph.edges)
        head = int(part.places(np.array([head]))[0])
        states[torch.from_numpy(inside)] = propagation.states_of(local, encoded, head, torch.from_numpy(places[inside]))
        return self.network.score(states, encoded.task)

    def _on_gpu(self, task: Tasks, encoded: Encoded, question: Question) -> Tensor:
        """Scores (H, C) on a GPU, several heads at once."""
        candidates = self._ids(question.candidates).expand(BLOCKS, -1)
        task = Tasks(*(part.expand(BLOCKS, *part.shape[1:]) for part in task))
        encoded = Encoded(
            encoded.relations.expand(-1, BLOCKS, -1, -1),
            encoded.new.expand(-1, BLOCKS, -1, -1),
            encoded.task.expand(BLOCKS, -1),
        )
        scores = []
        for some in self._ids(question.heads).split(BLOCKS * QUERIES):
            padding = some[-1:].expand(-len(some) % (BLOCKS * QUERIES))
            asked = task._replace(heads=torch.cat([some, padding]).view(BLOCKS, QUERIES), candidates=candidates)
            states = self.network.propagate(self.graph, asked, encoded, self.dtype)
            scores.append(self.network.scores(states, encoded, candidates).flatten(0, 1)[: len(some)])
        return torch.cat(scores)

    def _ids(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self.device)
