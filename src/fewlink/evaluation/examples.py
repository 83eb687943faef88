"""A few right and wrong predictions of each relation, in readable names, for people to look at."""

from __future__ import annotations

import numpy as np

from fewlink.data import Benchmark, Candidates, Task, candidates_of
from fewlink.evaluation.evaluator import Evaluation, TaskRanks
from fewlink.scorers import Question, Scorer, best_tails

Example = dict[str, str | float | list[str]]
BEST = 5


def examples(benchmark: Benchmark, scorer: Scorer, evaluation: Evaluation) -> list[Example]:
    """Of each relation the first query whose tail came first, and the one in the middle of those that came later."""
    protocol = evaluation.protocol
    told: list[Example] = []
    for ranked in evaluation.tasks:
        task = benchmark.task(ranked.relation)
        references, _ = task.split(protocol.shots, protocol.draw, protocol.seed)
        pool = candidates_of(protocol.candidates, task, references, benchmark.graph)
        for query in _chosen(ranked):
            best = _best(benchmark, scorer, task, references, pool, ranked.queries[query])
            head, tail = (benchmark.graph.name(int(e)) for e in ranked.queries[query])
            rank = float(ranked.ranks[query])
            told.append({"relation": task.name, "head": head, "tail": tail, "rank": rank, "best": best})
    return told


def _chosen(ranked: TaskRanks) -> list[int]:
    right, wrong = np.flatnonzero(ranked.ranks < 2), np.flatnonzero(ranked.ranks >= 2)
    by_rank = wrong[np.argsort(ranked.ranks[wrong], kind="stable")]
    return [int(i) for i in (*right[:1], *by_rank[len(by_rank) // 2 :][:1])]


def _best(
    benchmark: Benchmark, scorer: Scorer, task: Task, references: np.ndarray, pool: Candidates, query: np.ndarray
) -> list[str]:
    """The names of the best tails, other known answers left out."""
    others = [t for t in task.known_tails[int(query[0])] if t != query[1]]
    question = Question(task.name, references, query[:1], pool.ids)
    found = best_tails(scorer, question, BEST + len(others))[0]
    return [benchmark.graph.name(t) for t, _ in found if t not in others][:BEST]
