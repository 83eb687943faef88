"""Values that are made once and kept within a bound, and a scorer that keeps its scores."""

from __future__ import annotations

import dataclasses
import mmap
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from fewlink.models.contract import Question, Scorer, capabilities

MAX_SCORES = 1 << 26  # 256 MB of float32


class Sized(Protocol):
    """A value that tells how much memory it takes."""

    def bytes(self) -> int: ...


V = TypeVar("V", bound=Sized)


class Remembered:
    """Values by key, each made once. Beyond `most_bytes`, those used longest ago are forgotten."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._values: dict[Any, Future[Any]] = {}  # the last used last
        self._lock = threading.Lock()  # nothing is made with it held

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: object, make: Callable[[], V]) -> V:
        """The value of a key; if it is not known, `make()`. Threads that ask for it meanwhile wait."""
        with self._lock:
            known = self._values.pop(key, None)
            value = self._values[key] = Future() if known is None else known
        if known is None:
            try:
                value.set_result(make())
            except BaseException as error:
                with self._lock:
                    self._values.pop(key, None)
                value.set_exception(error)
                raise
            self._forget()
        return value.result()  # type: ignore[no-any-return]

    def _forget(self) -> None:
        with self._lock:
            sizes = {key: each.result().bytes() for key, each in self._values.items() if each.done()}
            for key in list(sizes)[:-1]:
                if sum(sizes.values()) <= self.most_bytes:
                    break
                del self._values[key]
                del sizes[key]


def apart(tensor: Tensor) -> Tensor:
    """A copy on the CPU in memory pages of its own, which return to the system as soon as it is freed."""
    if not tensor.nbytes:
        return tensor.clone()
    pages = mmap.mmap(-1, tensor.nbytes)
    return torch.frombuffer(pages, dtype=tensor.dtype).view(tensor.shape).copy_(tensor)


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
