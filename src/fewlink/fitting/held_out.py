"""Relations of a benchmark that are held out to see how well scorers do on new ones.

Held out are the dev relations and, if these are few, known relations too: they are in no graph that is read or learnt
from. All scorers get the same queries.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fewlink.core.progress import progress
from fewlink.data import Benchmark, Task
from fewlink.data.folds import fold_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.evaluation import Evaluation, Protocol, evaluate
from fewlink.evaluation.evaluator import summarise
from fewlink.fitting.time_plan import Plan, all_entities
from fewlink.scorers import Question, Scorer
from fewlink.scorers.cached import MAX_SCORES, CachedScorer

MAX_HIDDEN = 1 / 3  # share of the known triples that held-out relations have at most


def cut_tasks(tasks: Sequence[Task], plan: Plan, shots: int) -> list[Task]:
    """The first tasks, with their first pairs: the references and the queries."""
    pairs = shots + plan.queries
    return [dataclasses.replace(task, pairs=task.pairs[:pairs]) for task in tasks[: plan.relations]]


def cut_benchmark(benchmark: Benchmark, plan: Plan, shots: int) -> Benchmark:
    """A benchmark with fewer dev and test relations and queries; its known graph stays the same."""
    measured = {split: cut_tasks(benchmark.split(split), plan, shots) for split in ("dev", "test")}
    return dataclasses.replace(benchmark, tasks={**benchmark.tasks, **measured})


def hold_out(benchmark: Benchmark, plan: Plan, shots: int) -> Benchmark:
    """A benchmark whose dev relations are the held-out ones: those of dev, then known ones."""
    train, dev = benchmark.split("train"), list(benchmark.split("dev"))
    if len(dev) >= plan.relations:
        return dataclasses.replace(benchmark, tasks={"train": train, "dev": cut_tasks(dev, plan, shots), "test": []})
    fold, max_hidden = benchmark, MAX_HIDDEN * known_graph(benchmark).triple_count
    for more in range(plan.relations - len(dev), 0, -1):
        count = max(1, len(train) // more)
        of_train = len(range(0, len(train), count))
        fold = fold_benchmark(benchmark, 0, count, background=max(0, more - of_train))
        hidden = benchmark.graph.triple_count - fold.graph.triple_count
        hidden += sum(len(task.pairs) for task in train[::count])
        if hidden <= max_hidden:
            break
    degrees = known_graph(fold).degrees
    joined = [dataclasses.replace(t, pairs=t.pairs[(degrees[t.pairs] > 0).all(1)]) for t in dev]
    usable = [t for t in (*joined, *fold.split("dev")) if len(t.pairs) > shots]
    return dataclasses.replace(fold, tasks={**fold.tasks, "dev": cut_tasks(usable or dev, plan, shots)})


def measure(benchmark: Benchmark, scorer: Scorer, shots: int) -> Evaluation:
    """The ranks of the queries of the held-out relations, with the candidates that users get."""
    return evaluate(benchmark, scorer, Protocol("dev", shots, "open"))


def score_relations(
    benchmark: Benchmark, scorers: Sequence[CachedScorer], shots: int, splits: Sequence[str], until: float
) -> Benchmark:
    """Score all queries of these splits, relation by relation, until a time of the monotonic clock.

    The scorers keep their scores. Returns the benchmark with the relations that were scored: at least the first.
    """
    everything, scored, size = all_entities(benchmark), {split: list[Task]() for split in splits}, 0
    columns = [[(split, task) for task in benchmark.split(split)] for split in splits]
    order = [each for row in itertools.zip_longest(*columns) for each in row if each is not None]
    begin = time.monotonic()
    with progress("scoring", len(order)) as advance:
        for done, (split, task) in enumerate(order):
            references, queries = task.split(shots)
            question = Question(task.name, references, np.unique(queries[:, 0]), everything)
            size += len(question.heads) * len(everything)
            now = time.monotonic()
            if done and (size > MAX_SCORES or now + (now - begin) / done > until):
                break
            for scorer in scorers:
                scorer(question)
            scored[split].append(task)
            advance(done + 1, f"{done + 1} of {len(order)} relations")
    if all(len(scored[split]) == len(benchmark.split(split)) for split in splits):
        return benchmark
    return dataclasses.replace(benchmark, tasks={**benchmark.tasks, **scored})


def first_relations(held: Benchmark, relations: int) -> Benchmark:
    """A benchmark with the first of its dev relations."""
    if len(held.split("dev")) <= relations:
        return held
    return dataclasses.replace(held, tasks={**held.tasks, "dev": held.split("dev")[:relations]})


def figures_of(ranks: Sequence[ArrayLike]) -> dict[str, float]:
    """MRR, Hits@1 and Hits@10, means over relations, given the ranks of each relation's queries."""
    rows = [summarise(np.asarray(each), np.asarray(each)) for each in ranks]
    return {name: float(np.mean([row[name] for row in rows])) for name in ("mrr", "hits@1", "hits@10")}


def gain(before: Sequence[ArrayLike], after: Sequence[ArrayLike]) -> tuple[float, float]:
    """The gain in MRR, given the ranks of each relation's queries: the mean over relations, and its standard error.

    With a single relation, both are over its queries.
    """
    rises = [1 / np.asarray(b, float) - 1 / np.asarray(a, float) for a, b in zip(before, after, strict=True)]
    values = np.array([rise.mean() for rise in rises]) if len(rises) > 1 else rises[0]
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0
