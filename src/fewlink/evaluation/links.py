"""Ordinary (not few-shot) link prediction: train, valid and test triples of one graph, ranked in both directions.

It compares the embedding trainer with the published figures of other libraries.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch

from fewlink.base.errors import InputError
from fewlink.embeddings import Embeddings
from fewlink.evaluation.evaluator import Evaluation, Protocol, TaskRanks
from fewlink.evaluation.ranks import realistic_ranks
from fewlink.graph import Graph, compile_graph

ROWS_AT_ONCE = 256  # queries scored together


def read_splits(train: Path, valid: Path, test: Path) -> tuple[Graph, dict[str, np.ndarray]]:
    """The training graph, and all three splits as ids (n, 3); triples with names unknown to training are dropped."""
    graph = compile_graph([train])
    splits = {"train": graph.triples()}
    for name, path in (("valid", valid), ("test", test)):
        other = compile_graph([path])
        entities = np.array([_id(graph.entities.find(n)) for n in other.entities])
        relations = np.array([_id(graph.relations.find(n)) for n in other.relations])
        heads, middles, tails = other.triples().T
        ids = np.stack([entities[heads], relations[middles], entities[tails]], 1)
        splits[name] = ids[(ids >= 0).all(1)].astype(np.int32)
        if not len(splits[name]):
            raise InputError(path, f"has no triple whose names all occur in {train}")
    return graph, splits


def _id(found: int | None) -> int:
    return -1 if found is None else found


@torch.no_grad()
def rank_links(embeddings: Embeddings, triples: np.ndarray, known: np.ndarray, split: str, seed: int = 0) -> Evaluation:
    """Ranks of both ends of triples (n, 3) among all entities, other known triples (m, 3) filtered."""
    start = time.monotonic()
    relations, entities = len(embeddings.relations) // 2, len(embeddings.entities)
    queries, answers = _both_ways(triples, relations), _both_ways(known, relations)
    keys = answers[:, 0] * (2 * relations) + answers[:, 1]
    order = np.argsort(keys, kind="stable")
    keys, tails = keys[order], answers[order, 2]
    query_keys = queries[:, 0] * (2 * relations) + queries[:, 1]
    first, last = (np.searchsorted(keys, query_keys, side) for side in ("left", "right"))
    device = embeddings.entities.device
    ranks, counts = [], []
    for begin in range(0, len(queries), ROWS_AT_ONCE):
        part = slice(begin, begin + ROWS_AT_ONCE)
        heads, middles, true = (torch.as_tensor(queries[part, i], device=device) for i in range(3))
        scores = embeddings.score_all(heads, middles)  # (rows, entities)
        owners = np.repeat(np.arange(len(heads)), last[part] - first[part])
        others = np.concatenate([tails[a:b] for a, b in zip(first[part], last[part], strict=True)])
        excluded = (torch.as_tensor(owners, device=device), torch.as_tensor(others, device=device))
        rank, count = realistic_ranks(scores, torch.arange(len(heads), device=device), true, excluded)
        ranks.append(rank.cpu().numpy())
        counts.append(count.cpu().numpy())
    pairs = queries[:, [0, 2]]
    whole = TaskRanks("all relations", pairs, np.concatenate(ranks), np.concatenate(counts), entities)
    protocol = Protocol(split=split, shots=1, candidates="all", seed=seed)
    return Evaluation(protocol, [whole], time.monotonic() - start)


def _both_ways(triples: np.ndarray, relations: int) -> np.ndarray:
    triples = triples.astype(np.int64)
    return np.concatenate([triples, triples[:, ::-1] + np.array([0, relations, 0])])
