"""Ordinary link prediction: a graph with its own train, valid and test triples, ranked in both directions.

Nothing few-shot about it: it shows that the embedding trainer is sound, where every library has been measured.
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

ROWS_AT_ONCE = 256


def read_splits(train: Path, valid: Path, test: Path) -> tuple[Graph, dict[str, np.ndarray]]:
    """The training graph, and all three splits as ids (n, 3); triples with names that training lacks are left out."""
    graph = compile_graph([train])
    splits = {"train": graph.triples()}
    for name, path in (("valid", valid), ("test", test)):
        other = compile_graph([path])
        entities = np.array([_or_none(graph.entities.find(n)) for n in other.entities])
        relations = np.array([_or_none(graph.relations.find(n)) for n in other.relations])
        heads, middles, tails = other.triples().T
        ids = np.stack([entities[heads], relations[middles], entities[tails]], 1)
        splits[name] = ids[(ids >= 0).all(1)].astype(np.int32)
        if not len(splits[name]):
            raise InputError(path, f"has no triple whose names all occur in {train}")
    return graph, splits


def _or_none(number: int | None) -> int:
    return -1 if number is None else number


@torch.no_grad()
def rank_links(embeddings: Embeddings, asked: np.ndarray, known: np.ndarray, split: str, seed: int = 0) -> Evaluation:
    """Ranks of both ends of the asked triples (n, 3) among all entities, other known triples filtered."""
    begun = time.monotonic()
    relations, entities = len(embeddings.relations) // 2, len(embeddings.entities)
    queries, answers = _both_ways(asked, relations), _both_ways(known, relations)
    keys = answers[:, 0] * (2 * relations) + answers[:, 1]
    order = np.argsort(keys, kind="stable")
    keys, tails = keys[order], answers[order, 2]
    wanted = queries[:, 0] * (2 * relations) + queries[:, 1]
    first, last = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, "right")
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
    return Evaluation(protocol, [whole], time.monotonic() - begun)


def _both_ways(triples: np.ndarray, relations: int) -> np.ndarray:
    triples = triples.astype(np.int64)
    return np.concatenate([triples, triples[:, ::-1] + np.array([0, relations, 0])])
