"""Examples of an evaluation: queries answered right and wrong, with their best tails by name."""

from __future__ import annotations

import numpy as np

from fewlink.evaluation.evaluator import Evaluation, TaskRanks
from fewlink.models.contract import Question, Scorer, best_tails
from fewlink.tasks import Benchmark, Candidates, Task, candidates_of

MAX_LISTED_TAILS = 5  # best tails of an example

Example = dict[str, str | float | list[str]]


def example_predictions(benchmark: Benchmark, scorer: Scorer, evaluation: Evaluation) -> list[Example]:
    """For each relation, the first query with a rank below 2 and the median of the others, with names."""
    protocol = evaluation.protocol
    examples: list[Example] = []
    for ranked in evaluation.tasks:
        task = benchmark.task(ranked.relation)
        references, _ = task.split(protocol.shots, protocol.draw, protocol.seed)
        pool = candidates_of(protocol.candidates, task, references, benchmark.graph)
        for query in _example_queries(ranked):
            best = _best_names(benchmark, scorer, task, references, pool, ranked.queries[query])
            head, tail = (benchmark.graph.name(int(e)) for e in ranked.queries[query])
            rank = float(ranked.ranks[query])
            examples.append({"relation": task.name, "head": head, "tail": tail, "rank": rank, "best": best})
    return examples


def _example_queries(ranked: TaskRanks) -> list[int]:
    right = np.flatnonzero(ranked.ranks < 2)
    wrong = np.flatnonzero(ranked.ranks >= 2)
    by_rank = wrong[np.argsort(ranked.ranks[wrong], kind="stable")]
    return [int(i) for i in (*right[:1], *by_rank[len(by_rank) // 2 :][:1])]


def _best_names(
    benchmark: Benchmark, scorer: Scorer, task: Task, references: np.ndarray, pool: Candidates, query: np.ndarray
) -> list[str]:
    """The names of the best tails of a query (2,), without its other known answers."""
    others = [t for t in task.known_tails[int(query[0])] if t != query[1]]
    question = Question(task.name, references, query[:1], pool.ids)
    best = best_tails(scorer, question, MAX_LISTED_TAILS + len(others))[0]
    return [benchmark.graph.name(t) for t, _ in best if t not in others][:MAX_LISTED_TAILS]
