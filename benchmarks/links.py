"""Ordinary link prediction: the ranks of head and tail of triples among all entities."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch

from fewlink.core.errors import InputError
from fewlink.evaluation.evaluator import Evaluation, Protocol, TaskRanks, realistic_ranks
from fewlink.graph import Graph, Vocabulary, compile_graph
from fewlink.models.embeddings import Embeddings

QUERIES_AT_ONCE = 256  # queries scored together
TRIPLES_PER_PIECE = 1 << 16  # known triples searched at a time


def read_splits(train: Path, valid: Path, test: Path) -> tuple[Graph, dict[str, np.ndarray]]:
    """Read the training graph and all three splits as ids (n, 3), dropping triples with names that training lacks."""
    graph = compile_graph([train], literals="keep")
    splits = {"train": graph.triples()}
    for split, path in (("valid", valid), ("test", test)):
        other = compile_graph([path], literals="keep")
        entities = _training_ids(graph.entities, other.entities)
        relations = _training_ids(graph.relations, other.relations)
        heads, middles, tails = other.triples().T
        ids = np.stack([entities[heads], relations[middles], entities[tails]], 1)
        splits[split] = ids[(ids >= 0).all(1)].astype(np.int32)
        if not len(splits[split]):
            raise InputError(
                path, f"has no triple whose names all occur in {train}: check that both use the same names"
            )
    return graph, splits


def _training_ids(training: Vocabulary, names: Vocabulary) -> np.ndarray:
    """The training id of each name, -1 if it has none."""
    ids = (training.find(name) for name in names)
    return np.array([-1 if number is None else number for number in ids])


class FilteredQueries:
    """Triples (m, 3) as queries in both directions (2m, 3), with the known tails of each, which do not compete.

    `known` (n, 3) are all known triples; relation r + `relations` is the inverse of r.
    """

    def __init__(self, triples: np.ndarray, known: np.ndarray, relations: int) -> None:
        self.relations = relations
        self.queries = self._both_directions(triples)
        query_keys = self._keys(self.queries)
        known = self._answers(known, np.unique(query_keys))
        keys = self._keys(known)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        tails = known[order, 2]
        first, last = (np.searchsorted(keys, query_keys, side) for side in ("left", "right"))
        self.sizes = last - first  # known tails of each query, (2m,)
        self.ends = np.cumsum(self.sizes)
        places = np.repeat(last - self.ends, self.sizes) + np.arange(self.ends[-1])
        self.tails = tails[places]  # of all queries, in order

    def known_tails(self, run: slice) -> tuple[np.ndarray, np.ndarray]:
        """The known tails (x,) of a run of queries: the index of each tail's query in the run, and the tails."""
        sizes = self.sizes[run]
        ends = self.ends[run]
        return np.repeat(np.arange(len(sizes)), sizes), self.tails[ends[0] - sizes[0] : ends[-1]]

    def _answers(self, known: np.ndarray, query_keys: np.ndarray) -> np.ndarray:
        """The known triples (n, 3), in both directions, that have the head and relation of a query."""
        answers = []
        for first in range(0, len(known), TRIPLES_PER_PIECE):
            both = self._both_directions(known[first : first + TRIPLES_PER_PIECE])
            answers.append(both[np.isin(self._keys(both), query_keys)])
        return np.concatenate(answers)

    def _both_directions(self, triples: np.ndarray) -> np.ndarray:
        backwards = triples[:, ::-1] + np.array([0, self.relations, 0])
        return np.concatenate([triples, backwards]).astype(np.int64)

    def _keys(self, triples: np.ndarray) -> np.ndarray:
        keys: np.ndarray = triples[:, 0].astype(np.int64) * (2 * self.relations) + triples[:, 1]
        return keys


@torch.no_grad()
def rank_links(embeddings: Embeddings, triples: np.ndarray, known: np.ndarray, split: str, seed: int = 0) -> Evaluation:
    """Rank head and tail of triples (n, 3) among all entities, filtering other known triples (m, 3)."""
    start = time.monotonic()
    device = embeddings.entities.device
    filtered = FilteredQueries(triples, known, len(embeddings.relations) // 2)
    ranks = []
    counts = []
    for begin in range(0, len(filtered.queries), QUERIES_AT_ONCE):
        run = slice(begin, begin + QUERIES_AT_ONCE)
        heads, relations, true = (torch.as_tensor(filtered.queries[run, i], device=device) for i in range(3))
        scores = embeddings.score_all(heads, relations)  # (rows, entities)
        owners, tails = (torch.as_tensor(ids, device=device) for ids in filtered.known_tails(run))
        rank, count = realistic_ranks(scores, torch.arange(len(heads), device=device), true, (owners, tails))
        ranks.append(rank.cpu().numpy())
        counts.append(count.cpu().numpy())
    pairs = filtered.queries[:, [0, 2]]
    entities = len(embeddings.entities)
    task = TaskRanks("all relations", pairs, np.concatenate(ranks), np.concatenate(counts), entities)
    protocol = Protocol(split=split, shots=1, candidates="all", seed=seed)
    return Evaluation(protocol, [task], time.monotonic() - start)
