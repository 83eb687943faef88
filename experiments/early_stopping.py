"""Link prediction with early stopping: training ends when the MRR of held-out triples is no better."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fewlink.core.seeds import generator
from fewlink.models.contract import realistic_rank
from fewlink.models.embeddings import Embeddings, EmbeddingSettings, Interaction
from fewlink.models.embeddings.trainer import EmbeddingTrainer

PATIENCE = 5  # epochs without a better MRR of held-out triples before training stops
MAX_RANKED = 2000  # held-out triples; ranking more would take time and change little
TRIPLES_PER_PIECE = 1 << 16  # known triples searched at a time
SCORES_AT_ONCE = 1 << 24


def train_with_validation(
    train_on: np.ndarray, valid: np.ndarray, entities: int, relations: int, settings: EmbeddingSettings
) -> tuple[Embeddings, list[float]]:
    """Train until the MRR on valid is no better for `PATIENCE` epochs; the best vectors, and the MRR of each epoch."""
    held = HeldOut(valid, np.concatenate([train_on, valid]), relations, settings.seed)
    trainer = EmbeddingTrainer(train_on, entities, relations, settings)
    best: dict[str, Tensor] = {}
    measured: list[float] = []
    while not trainer.finished and len(measured) <= PATIENCE + best_epoch(measured):
        trainer.epoch()
        measured.append(held.mrr(trainer.rule, **trainer.vectors))
        if best_epoch(measured) == len(measured) - 1:
            best = {name: table.clone() for name, table in trainer.vectors.items()}
    trainer.vectors = best
    return trainer.result(), measured


def best_epoch(measured: list[float]) -> int:
    """The first epoch with the highest MRR, counted from 0."""
    return measured.index(max(measured)) if measured else 0


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


class HeldOut(FilteredQueries):
    """The mean reciprocal rank of held-out triples (m, 3) in both directions, ties at their mean rank."""

    def __init__(self, held: np.ndarray, known: np.ndarray, relations: int, seed: int) -> None:
        if len(held) > MAX_RANKED:
            held = held[np.sort(generator(seed, "held-out", "ranked").choice(len(held), MAX_RANKED, replace=False))]
        super().__init__(held, known, relations)

    @torch.no_grad()
    def mrr(self, interaction: Interaction, entities: Tensor, relations: Tensor) -> float:
        """The mean reciprocal rank with tables (E, d) and (2R, w)."""
        device = entities.device
        rows = max(1, SCORES_AT_ONCE // len(entities))
        total = 0.0
        for start in range(0, len(self.queries), rows):
            run = slice(start, start + rows)
            heads, middles, tails = (torch.from_numpy(self.queries[run, i]).to(device) for i in range(3))
            queries = interaction.query(entities.index_select(0, heads), relations[middles])  # (rows, d)
            scores = interaction.against(queries, entities)  # (rows, E)
            true = scores.gather(1, tails.unsqueeze(1))  # (rows, 1)
            owners, known = (torch.from_numpy(ids).to(device) for ids in self.known_tails(run))
            scores[owners, known] = -torch.inf
            higher = (scores > true).sum(1)
            tied = (scores == true).sum(1)
            total += float((1 / realistic_rank(higher, tied)).sum())
        return total / len(self.queries)
