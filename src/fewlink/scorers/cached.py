"""A scorer that is asked about the same heads again, against fewer candidates, and does not work them out twice."""

from __future__ import annotations

import numpy as np
import torch

from fewlink.scorers.base import Question, Scorer

REMEMBERED = 1 << 26  # scores kept at most: 256 MB of float32


class CachedScorer:
    """The scores of another scorer, kept by relation, references and head.

    Scores do not depend on what else is asked, so those of some candidates are columns of those of all.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.name, self.scorer, self._size = scorer.name, scorer, 0
        self._kept: dict[tuple[str, bytes], tuple[np.ndarray, dict[int, np.ndarray]]] = {}

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray:
        key = question.relation, question.references.tobytes()
        columns, rows = self._kept.get(key, (np.zeros(0, question.candidates.dtype), {}))
        heads = question.heads.tolist()
        if len(columns) and all(h in rows for h in heads) and np.isin(question.candidates, columns).all():
            at = np.searchsorted(columns, question.candidates)
            return np.stack([rows[h][at] for h in heads])
        scores = self.scorer(question)
        self._keep(key, question, scores)
        return scores

    def _keep(self, key: tuple[str, bytes], question: Question, scores: torch.Tensor | np.ndarray) -> None:
        columns = np.sort(question.candidates)
        before, rows = self._kept.get(key, (columns, {}))
        if not np.array_equal(before, columns) or self._size + scores.shape[0] * scores.shape[1] > REMEMBERED:
            return
        array = scores.cpu().numpy() if isinstance(scores, torch.Tensor) else np.asarray(scores)
        ordered = array[:, np.argsort(question.candidates, kind="stable")]
        rows.update(zip(question.heads.tolist(), ordered, strict=True))
        self._kept[key] = columns, rows
        self._size += array.size
