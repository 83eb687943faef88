"""Episodes for meta-training (the paper's Algorithm 1, lines 2–6), each a pure function of the seed and the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fewlink.errors import FewlinkError
from fewlink.seeds import generator
from fewlink.tasks.benchmark import Task

TRIES = 16  # rounds of rejection before a stubborn negative is drawn from what is left


@dataclass(frozen=True)
class Episode:
    """One relation's lesson. Shapes: `references` (shots, 2), `queries` (batch, 2), `negatives` (batch, negatives)."""

    task: int
    references: np.ndarray
    queries: np.ndarray
    negatives: np.ndarray


class EpisodeSampler:
    """`sampler(step)` gives the step-th episode; tasks are shuffled anew on each pass over them.

    References and queries are disjoint. Queries repeat only where a relation has fewer pairs than the batch asks for.
    Negatives are tails of the relation's range that are not known answers of the query's head.
    """

    def __init__(
        self, tasks: Sequence[Task], entities: int, *, shots: int, batch: int = 128, negatives: int = 1, seed: int = 0
    ) -> None:
        for task in tasks:
            if len(task.pairs) <= shots:
                raise FewlinkError(
                    f"{task.name} has {len(task.pairs)} pairs, too few for {shots} references and a query"
                )
        if not tasks:
            raise FewlinkError("no training relations to sample episodes from")
        self.tasks, self.entities = tasks, entities
        self.shots, self.batch, self.negatives, self.seed = shots, batch, negatives, seed
        self._known = [np.sort(_keys(t.known[:, 0], t.known[:, 1], entities)) for t in tasks]

    def __call__(self, step: int, rank: int = 0) -> Episode:
        turn, place = divmod(step, len(self.tasks))
        order = generator(self.seed, "pass", turn).permutation(len(self.tasks))
        number = int(order[place])
        task, rng = self.tasks[number], generator(self.seed, "episode", step, rank)
        shuffled = task.pairs[rng.permutation(len(task.pairs))]
        references, rest = shuffled[: self.shots], shuffled[self.shots :]
        if len(rest) < self.batch:
            rest = np.concatenate([rest, rest[rng.integers(len(rest), size=self.batch - len(rest))]])
        queries = rest[: self.batch]
        return Episode(number, references, queries, self._pollute(number, queries[:, 0], rng))

    def _pollute(self, number: int, heads: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """False tails (batch, negatives) by rejection against the sorted keys of the known answers."""
        task, known = self.tasks[number], self._known[number]
        tails = rng.choice(task.range, size=(len(heads), self.negatives))
        for _ in range(TRIES):
            wrong = _member(_keys(heads[:, None], tails, self.entities), known)
            if not (count := int(wrong.sum())):
                return tails
            tails[wrong] = rng.choice(task.range, size=count)
        for row, column in np.argwhere(_member(_keys(heads[:, None], tails, self.entities), known)):
            tails[row, column] = rng.choice(self._false_tails(task, int(heads[row])))
        return tails

    def _false_tails(self, task: Task, head: int) -> np.ndarray:
        known = task.known_tails[head]
        left = np.setdiff1d(task.range, known)
        left = left if len(left) else np.setdiff1d(np.arange(self.entities), known)
        if not len(left):
            raise FewlinkError(f"{task.name}: every entity is a known tail of head {head}; no false tail exists")
        return left


def _keys(heads: np.ndarray, tails: np.ndarray, entities: int) -> np.ndarray:
    keys: np.ndarray = heads.astype(np.int64) * entities + tails
    return keys


def _member(keys: np.ndarray, sorted_keys: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
    found: np.ndarray = np.equal(sorted_keys[at], keys)
    return found
