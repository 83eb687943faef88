"""(h, ?, t), few-shot: which of several relations, each given by K references, holds between two entities.

Every query pair of a split's relations is asked about with the references of each of them. Relations are ranked by the
score of the pair, or by the rank that the tail has among the candidates of each relation, which makes relations whose
scores have other scales comparable. Other relations that are known to hold between the two do not compete.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fewlink.core.errors import FewlinkError
from fewlink.core.metrics import realistic_rank
from fewlink.core.progress import progress
from fewlink.core.seeds import generator
from fewlink.evaluation.evaluator import MAX_SCORES, Protocol, average, check_unseen, summarise
from fewlink.evaluation.records import BetweenRecord
from fewlink.models.contract import Question, Scorer
from fewlink.tasks.benchmark import Benchmark, Task
from fewlink.tasks.candidates import open_candidates

RANKED_BY = ("rank", "score")
MAX_QUERIES = 100  # of each relation


def relations_between(
    benchmark: Benchmark,
    scorer: Scorer,
    *,
    model: str,
    split: str = "test",
    shots: int = 3,
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
    max_queries: int = MAX_QUERIES,
) -> list[BetweenRecord]:
    """Rank the relations of a split for query pairs of each of them; a record for each of `RANKED_BY`."""
    began = time.monotonic()
    check_unseen(scorer, Protocol(split, shots))
    tasks = benchmark.split(split)
    if len(tasks) < 2:
        raise FewlinkError(f"{benchmark.name} has fewer than two {split} relations: choose another split")
    queries = [queries_of(task, shots, max_queries) for task in tasks]
    pairs = np.concatenate(queries)
    true = np.repeat(np.arange(len(tasks)), [len(each) for each in queries])
    measures = [measure(benchmark, scorer, task, shots, pairs) for task in _watched(tasks)]  # (2, P) each
    holds = np.stack([known_in(task, pairs) for task in tasks], 1)  # (P, T)
    seconds = round(time.monotonic() - began, 3)
    records = []
    for ranked_by, columns in zip(RANKED_BY, zip(*measures, strict=True), strict=True):
        ranks, counts = rank_relations(np.stack(columns, 1), true, holds)
        rows = {
            task.name: {"queries": int((true == i).sum()), **summarise(ranks[true == i], counts[true == i])}
            for i, task in enumerate(tasks)
        }
        records.append(
            BetweenRecord(
                benchmark=benchmark.name,
                model=model,
                split=split,
                shots=shots,
                seed=seed,
                ranked_by=ranked_by,
                queries=len(pairs),
                metrics={"micro": summarise(ranks, counts), "macro": average(list(rows.values()))},
                relations=rows,
                config=dict(config or {}),
                data_sha256=benchmark.fingerprint,
                seconds=seconds,
            )
        )
    return records


def _watched(tasks: Sequence[Task]) -> Iterator[Task]:
    """The tasks, with progress."""
    with progress("relations", len(tasks)) as advance:
        for number, task in enumerate(tasks):
            advance(number, task.name)
            yield task


def queries_of(task: Task, shots: int, max_queries: int) -> np.ndarray:
    """At most `max_queries` query pairs (q, 2) of a relation, in the benchmark's order."""
    _, queries = task.split(shots)
    chosen = generator(0, "relations between", task.name).permutation(len(queries))[:max_queries]
    sample: np.ndarray = queries[np.sort(chosen)]
    return sample


def measure(
    benchmark: Benchmark, scorer: Scorer, task: Task, shots: int, pairs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How well a relation fits pairs (P, 2): minus the rank of the tail among its candidates, and the score: (P,) each.

    The candidates are those of the protocol `open`; a tail that is not one of them ranks in the middle of all others.
    """
    references, _ = task.split(shots)
    candidates = open_candidates(benchmark.graph, references)
    ids = np.union1d(candidates, pairs[:, 1]).astype(np.int32)
    competes = torch.from_numpy(np.isin(ids, candidates))
    columns = np.searchsorted(ids, pairs[:, 1])
    within = np.isin(pairs[:, 1], candidates)
    others = len(benchmark.graph.entities) - len(candidates) - 1
    last = realistic_rank(np.array(float(len(candidates))), np.array(float(others)))  # of a tail that is no candidate
    ranks = np.zeros(len(pairs))
    scores = np.zeros(len(pairs))
    order = np.argsort(pairs[:, 0], kind="stable")
    heads, begins = np.unique(pairs[order, 0], return_index=True)
    size = max(1, MAX_SCORES // len(ids))
    for first in range(0, len(heads), size):
        some = heads[first : first + size].astype(np.int32)
        grid = torch.as_tensor(scorer(Question(task.name, references, some, ids))).cpu()
        end = begins[first + size] if first + size < len(heads) else len(order)
        own = order[begins[first] : end]
        rows = torch.from_numpy(np.searchsorted(some, pairs[own, 0]))
        true = grid[rows, torch.from_numpy(columns[own])]  # (p,)
        among = grid[rows][:, competes]  # (p, c)
        above = (among > true[:, None]).sum(1).double().numpy()
        level = (among == true[:, None]).sum(1).double().numpy() - within[own]
        inside = realistic_rank(above, level)
        ranks[own] = np.where(within[own], inside, last)
        scores[own] = true.double().numpy()
    return -ranks, scores


def known_in(task: Task, pairs: np.ndarray) -> np.ndarray:
    """Whether each of the pairs (P, 2) is known to be one of the relation: (P,)."""
    none = np.zeros(0, np.int32)
    return np.array([tail in task.known_tails.get(int(head), none) for head, tail in pairs], bool)


def rank_relations(values: np.ndarray, true: np.ndarray, holds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rank of the true relation of each pair, and among how many: (P,) each.

    Shapes: values (P, T), higher is better; true (P,); holds (P, T), relations that are known to hold, which do not
    compete with the true one.
    """
    rows = np.arange(len(values))
    competes = ~holds
    competes[rows, true] = False
    own = values[rows, true][:, None]
    above = ((values > own) & competes).sum(1)
    level = ((values == own) & competes).sum(1)
    return np.asarray(realistic_rank(above.astype(float), level.astype(float))), competes.sum(1) + 1
