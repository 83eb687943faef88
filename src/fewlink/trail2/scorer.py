"""TRAIL as a scorer of the common evaluator."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fewlink.scorers import Question
from fewlink.trail2.network import Encoded, TrailNetwork
from fewlink.trail2.reading import MOST_REFERENCES, ReadGraph, Tasks, read_tasks

QUERIES = 8  # heads of a block
BLOCKS = 4  # blocks at once on a GPU


class TrailScorer:
    """A trained TRAIL on a graph."""

    def __init__(self, name: str, network: TrailNetwork, graph: ReadGraph) -> None:
        self.name, self.network, self.graph = name, network.eval(), graph

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.graph.edges.device.type == "cuda" else torch.float32

    @torch.no_grad()
    def __call__(self, question: Question) -> Tensor:
        device = self.graph.edges.device
        task = self.task(question.references)
        encoded = self.network.encode(self.graph, task, read_tasks(self.graph, task))
        pairs = self.network.reference_states(self.graph, task, encoded, self.dtype)
        heads = torch.from_numpy(question.heads.astype(np.int64)).to(device)
        candidates = torch.from_numpy(question.candidates.astype(np.int64)).to(device)
        blocks, queries = (BLOCKS, QUERIES) if device.type == "cuda" else (1, 1)
        scores = []
        for some in heads.split(blocks * queries):
            grid = torch.cat([some, some[-1:].expand(-len(some) % (blocks * queries))]).view(blocks, queries)
            copies = Encoded(encoded.relations.expand(-1, blocks, -1, -1), encoded.new.expand(-1, blocks, -1, -1), encoded.task.expand(blocks, -1), encoded.profile.expand(blocks, -1, -1))
            tasks = Tasks(task.references.expand(blocks, -1, -1), task.weights.expand(blocks, -1), task.visible.expand(blocks, -1), grid, candidates.expand(blocks, -1))
            states = self.network.propagate(self.graph, tasks, copies, self.dtype)
            scores.append(self.network.scores(self.graph, tasks, states, copies, pairs.expand(blocks, -1)).flatten(0, 1)[: len(some)])
        return torch.cat(scores)

    def task(self, references: np.ndarray) -> Tasks:
        """One task with these references (K, 2), and no queries yet."""
        device, shots = self.graph.edges.device, min(len(references), MOST_REFERENCES)
        size = shots if device.type == "cpu" else 8 if shots <= 8 else 16
        padded = np.zeros((1, size, 2), np.int64)
        padded[0, :shots] = references[:shots]
        weights = (np.arange(size) < shots).astype(np.float32)[None]
        visible = torch.ones(1, self.graph.edges.relations, device=device)
        nothing = torch.zeros(1, 0, dtype=torch.long, device=device)
        return Tasks(torch.from_numpy(padded).to(device), torch.from_numpy(weights).to(device), visible, nothing, nothing)
