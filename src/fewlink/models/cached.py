"""A scorer that keeps its scores."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from fewlink.models.contract import Question, Scorer, capabilities

MAX_SCORES = 1 << 26  # 256 MB of float32


class CachedScorer:
    """Caches the scores of another scorer by relation, references and head.

    A score does not depend on the other candidates, so cached scores also answer questions with fewer candidates. If
    the number of `entities` is given, all of them are scored at once, for questions with several sets of candidates.
    """

    def __init__(self, scorer: Scorer, entities: int | None = None) -> None:
        self.name = scorer.name
        self.scorer = scorer
        self._size = 0
        self.capabilities = dataclasses.replace(capabilities(scorer), thread_safe=False)
        self._all_entities = None if entities is None else np.arange(entities, dtype=np.int32)
        self._cache: dict[tuple[str, bytes], tuple[np.ndarray, dict[int, np.ndarray]]] = {}

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray:
        key = question.relation, question.references.tobytes()
        columns, rows = self._cache.get(key, (np.zeros(0, question.candidates.dtype), {}))
        heads = question.heads.tolist()
        if heads and all(h in rows for h in heads) and np.isin(question.candidates, columns).all():
            positions = np.searchsorted(columns, question.candidates)
            return np.stack([rows[h][positions] for h in heads])
        if self._all_entities is None:
            scores = self.scorer(question)
            self._store(key, question, scores)
            return scores
        larger = dataclasses.replace(question, candidates=self._all_entities)
        scores = self.scorer(larger)
        self._store(key, larger, scores)
        return scores[:, question.candidates.copy()]  # torch warns about an index that is read-only

    def _store(self, key: tuple[str, bytes], question: Question, scores: torch.Tensor | np.ndarray) -> None:
        columns = np.sort(question.candidates)
        cached, rows = self._cache.get(key, (columns, {}))
        if not np.array_equal(cached, columns) or self._size + scores.shape[0] * scores.shape[1] > MAX_SCORES:
            return
        array = scores.cpu().numpy() if isinstance(scores, torch.Tensor) else np.asarray(scores)
        ordered = array[:, np.argsort(question.candidates, kind="stable")]
        rows.update(zip(question.heads.tolist(), ordered, strict=True))
        self._cache[key] = columns, rows
        self._size += array.size
