"""TRAIL as a scorer of the common evaluator."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from fewlink.graph import Graph
from fewlink.scorers import Question, Reasons
from fewlink.trail.explanation import EVIDENCE, encode_without_each, explain
from fewlink.trail.network import Encoded, TrailNetwork
from fewlink.trail.reading import MOST_REFERENCES, ReadGraph, Tasks, read_tasks

QUERIES = 8  # heads of a block on a GPU
BLOCKS = 4  # blocks at once


class TrailScorer:
    """A trained TRAIL on a graph."""

    def __init__(self, name: str, network: TrailNetwork, graph: ReadGraph, source: Graph | None = None) -> None:
        self.name, self.network, self.graph, self.named = name, network.eval(), graph, source
        self.device, self.evidence = graph.edges.device, EVIDENCE
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        task = self.task(question.references)
        encoded = self.network.encode(self.graph, task, read_tasks(self.graph, task))
        heads, candidates = self._ids(question.heads), self._ids(question.candidates)
        blocks, queries = (BLOCKS, QUERIES) if self.device.type == "cuda" else (1, 1)
        encoded = Encoded(
            encoded.relations.expand(-1, blocks, -1, -1),
            encoded.new.expand(-1, blocks, -1, -1),
            encoded.task.expand(blocks, -1),
        )
        task = Tasks(*(part.expand(blocks, *part.shape[1:]) for part in task))
        scores = []
        for some in heads.split(blocks * queries):
            padding = some[-1:].expand(-len(some) % (blocks * queries))
            grid = torch.cat([some, padding]).view(blocks, queries)
            asked = task._replace(heads=grid, candidates=candidates.expand(blocks, -1))
            states = self.network.propagate(self.graph, asked, encoded, self.dtype)
            scores.append(self.network.scores(states, encoded, asked.candidates).flatten(0, 1)[: len(some)])
        return torch.cat(scores)

    @torch.no_grad()
    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """What carried the score of one pair, given references (K, 2)."""
        task = self.task(references)
        encoded = self.network.encode(self.graph, task, read_tasks(self.graph, task))
        without_each = encode_without_each(self.network, self.graph, task)
        reasons = explain(self.network, self.graph, task, encoded, without_each, head, tail, most)
        return dataclasses.replace(reasons, graph=self.named)

    def task(self, references: np.ndarray) -> Tasks:
        """One task with these references (K, 2), and no queries yet."""
        shots = min(len(references), MOST_REFERENCES)
        size = shots if self.device.type == "cpu" else 8 if shots <= 8 else 16
        padded = np.zeros((1, size, 2), np.int64)
        padded[0, :shots] = references[:shots]
        weights = torch.from_numpy((np.arange(size) < shots).astype(np.float32)[None]).to(self.device)
        visible = torch.ones(1, self.graph.edges.relations, device=self.device)
        nothing = torch.zeros(1, 0, dtype=torch.long, device=self.device)
        return Tasks(self._ids(padded), weights, visible, nothing, nothing)

    def _ids(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self.device)
