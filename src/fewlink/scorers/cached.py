"""A cache of scores."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from fewlink.scorers.base import Question, Scorer

MAX_SCORES = 1 << 26  # 256 MB of float32


class CachedScorer:
    """Another scorer whose scores are cached by relation, references and head.

    A score does not depend on the other candidates, so the scores of some candidates are columns of those of all. With
    the number of `entities`, all of them are scored at once, for questions with several sets of candidates.
    """

    def __init__(self, scorer: Scorer, entities: int | None = None) -> None:
        self.name, self.scorer, self._size = scorer.name, scorer, 0
        self._everyone = None if entities is None else np.arange(entities, dtype=np.int32)
        self._cache: dict[tuple[str, bytes], tuple[np.ndarray, dict[int, np.ndarray]]] = {}

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray:
        key = question.relation, question.references.tobytes()
        columns, rows = self._cache.get(key, (np.zeros(0, question.candidates.dtype), {}))
        heads = question.heads.tolist()
        if heads and all(h in rows for h in heads) and np.isin(question.candidates, columns).all():
            at = np.searchsorted(columns, question.candidates)
            return np.stack([rows[h][at] for h in heads])
        everyone = question.candidates if self._everyone is None else self._everyone
        scores = self.scorer(dataclasses.replace(question, candidates=everyone))
        self._store(key, dataclasses.replace(question, candidates=everyone), scores)
        if self._everyone is None:
            return scores
        return scores[:, question.candidates.copy()]  # torch warns of an index that cannot be written

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
