"""Ordinary link prediction: the ranks of both ends of triples among all entities."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch

from fewlink.core.errors import InputError
from fewlink.embeddings import Embeddings
from fewlink.embeddings.held_out import FilteredQueries
from fewlink.evaluation.evaluator import Evaluation, Protocol, TaskRanks, realistic_ranks
from fewlink.graph import Graph, compile_graph

ROWS_AT_ONCE = 256  # queries scored together


def read_splits(train: Path, valid: Path, test: Path) -> tuple[Graph, dict[str, np.ndarray]]:
    """The training graph, and all three splits as ids (n, 3); triples with names unknown to training are dropped."""
    graph = compile_graph([train])
    splits = {"train": graph.triples()}
    for split, path in (("valid", valid), ("test", test)):
        other = compile_graph([path])
        entities, relations = (  # the ids in training, -1 where it has none
            np.array([-1 if (known := names.find(name)) is None else known for name in others])
            for names, others in ((graph.entities, other.entities), (graph.relations, other.relations))
        )
        heads, middles, tails = other.triples().T
        ids = np.stack([entities[heads], relations[middles], entities[tails]], 1)
        splits[split] = ids[(ids >= 0).all(1)].astype(np.int32)
        if not len(splits[split]):
            raise InputError(path, f"has no triple whose names all occur in {train}")
    return graph, splits


@torch.no_grad()
def rank_links(embeddings: Embeddings, triples: np.ndarray, known: np.ndarray, split: str, seed: int = 0) -> Evaluation:
    """Ranks of both ends of triples (n, 3) among all entities, other known triples (m, 3) filtered."""
    start = time.monotonic()
    device, filtered = embeddings.entities.device, FilteredQueries(triples, known, len(embeddings.relations) // 2)
    ranks, counts = [], []
    for begin in range(0, len(filtered.queries), ROWS_AT_ONCE):
        part = slice(begin, begin + ROWS_AT_ONCE)
        heads, relations, true = (torch.as_tensor(filtered.queries[part, i], device=device) for i in range(3))
        scores = embeddings.score_all(heads, relations)  # (rows, entities)
        owners, tails = (torch.as_tensor(ids, device=device) for ids in filtered.known_tails(part))
        rank, count = realistic_ranks(scores, torch.arange(len(heads), device=device), true, (owners, tails))
        ranks.append(rank.cpu().numpy())
        counts.append(count.cpu().numpy())
    pairs, entities = filtered.queries[:, [0, 2]], len(embeddings.entities)
    task = TaskRanks("all relations", pairs, np.concatenate(ranks), np.concatenate(counts), entities)
    protocol = Protocol(split=split, shots=1, candidates="all", seed=seed)
    return Evaluation(protocol, [task], time.monotonic() - start)
