"""Relations of a benchmark that are held out to see how well scorers do on new ones, in limited time.

Held out are the dev relations and, where these are few, known relations too: they are in no graph that is read or
learnt from. All scorers get the same queries.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from fewlink.core.progress import progress
from fewlink.data import Benchmark, Task
from fewlink.data.folds import fold_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.evaluation import Evaluation, Protocol, evaluate
from fewlink.evaluation.evaluator import summarise
from fewlink.models.baselines.learning_free import learning_free
from fewlink.scorers import Question, Scorer
from fewlink.scorers.cached import MAX_SCORES, CachedScorer

RELATIONS = (16, 12, 10, 8, 6, 4, 2)  # held-out relations, in the order tried
ENOUGH, MOST, LEAST = 4, 50, 2  # queries of each relation: with fewer than enough, fewer relations
HIDDEN = 1 / 3  # share of the known triples that held-out relations have at most
TIMED = 3  # heads
WORTH = 1.5  # more threads must be so many times as quick as one: other programs slow them down more
WITH_TUNING, ALONE = 0.4, 0.75  # shares of the time for all that is measured, where there is fine-tuning and where not
TRIAL = 0.2  # share of the time that the first question may take
TOO_LONG = (np.inf, np.inf)
RULES = "rules"  # what to compare with


@dataclass(frozen=True)
class Plan:
    """At most so many held-out relations, and as many of dev and of test, with so many queries of each.

    `tuning`: whether there may be time for fine-tuning; `seconds`: of one relation; `head`: of one head; `threads`:
    the number with which this is quickest, since more threads than free processors slow each other down.
    """

    relations: int
    queries: int
    tuning: bool
    seconds: float
    head: float
    threads: int

    def cut(self, tasks: Sequence[Task], shots: int) -> list[Task]:
        """The first tasks, with their first pairs: the references and the queries."""
        most = shots + self.queries
        return [dataclasses.replace(task, pairs=task.pairs[:most]) for task in tasks[: self.relations]]

    def cut_benchmark(self, benchmark: Benchmark, shots: int) -> Benchmark:
        """A benchmark with fewer dev and test relations and queries; nothing more is known in it."""
        measured = {split: self.cut(benchmark.split(split), shots) for split in ("dev", "test")}
        return dataclasses.replace(benchmark, tasks={**benchmark.tasks, **measured})

    def hold_out(self, benchmark: Benchmark, shots: int) -> Benchmark:
        """A benchmark whose dev relations are the held-out ones: those of dev, then known ones."""
        train, dev = benchmark.split("train"), list(benchmark.split("dev"))
        if len(dev) >= self.relations:
            return dataclasses.replace(benchmark, tasks={"train": train, "dev": self.cut(dev, shots), "test": []})
        fold, most = benchmark, HIDDEN * known_graph(benchmark).triple_count
        for more in range(self.relations - len(dev), 0, -1):
            count = max(1, len(train) // more)
            of_train = len(range(0, len(train), count))
            fold = fold_benchmark(benchmark, 0, count, background=max(0, more - of_train))
            hidden = benchmark.graph.triple_count - fold.graph.triple_count
            hidden += sum(len(task.pairs) for task in train[::count])
            if hidden <= most:
                break
        degrees = known_graph(fold).degrees
        joined = [dataclasses.replace(t, pairs=t.pairs[(degrees[t.pairs] > 0).all(1)]) for t in dev]
        usable = [t for t in (*joined, *fold.split("dev")) if len(t.pairs) > shots]
        return dataclasses.replace(fold, tasks={**fold.tasks, "dev": self.cut(usable or dev, shots)})


def plan_measuring(benchmark: Benchmark, scorer: Scorer, shots: int, seconds: float, tuning_heads: int) -> Plan:
    """As many relations and queries as can be measured in a share of these seconds, judged by questions that are timed.

    Fine-tuning that is of use takes at least the time of `tuning_heads`. Held-out relations are measured before and
    after it, those of test once, and those of dev once more if they are not the held-out ones.
    """
    most = torch.get_num_threads()
    timings = {1: _timings(benchmark, scorer, shots, 1, TRIAL * seconds)}
    if most > 1 and timings[1] != TOO_LONG:
        timings[most] = _timings(benchmark, scorer, shots, most, 2 * sum(timings[1]))
    torch.set_num_threads(most)
    seconds_of = {threads: relation + ENOUGH * head for threads, (relation, head) in timings.items()}
    threads = most if WORTH * seconds_of.get(most, np.inf) < seconds_of[1] else 1
    relation, head = timings[threads]
    if (relation, head) == TOO_LONG:
        return Plan(RELATIONS[-1], LEAST, False, TRIAL * seconds, TRIAL * seconds / LEAST, threads)
    tuning = tuning_heads * head <= (1 - WITH_TUNING) * seconds
    share, times = (WITH_TUNING, 2) if tuning else (ALONE, 1)
    dev, test = (len(benchmark.split(split)) for split in ("dev", "test"))
    for relations in RELATIONS:
        measured = times * relations + min(relations, test) + (dev if dev < relations else 0)
        wanted = (share * seconds / measured - relation) / head
        if wanted >= ENOUGH:
            break
    queries = int(np.clip(wanted, LEAST, MOST))
    return Plan(relations, queries, tuning, relation + queries * head, head, threads)


def _timings(
    benchmark: Benchmark, scorer: Scorer, shots: int, threads: int, limit: float = np.inf
) -> tuple[float, float]:
    """Seconds of a relation without its heads, and of each head, of the scorer and the rules together.

    They are infinite if the first question takes longer than `limit`.
    """
    torch.set_num_threads(threads)
    rules = learning_free(RULES, known_graph(benchmark))
    task = max(benchmark.split("dev"), key=lambda each: len(each.pairs))
    draws = itertools.count(1)  # other references each time: what follows from them may be remembered

    def timed(count: int) -> float:
        references, queries = task.split(shots, next(draws))
        question = Question(task.name, references, np.resize(queries[:, 0], count), _everything(benchmark))
        begin = time.perf_counter()
        for each in (scorer, rules):
            each(question)
        return time.perf_counter() - begin

    if timed(1) > limit:  # with what is computed once
        return TOO_LONG
    one, several = timed(1), timed(TIMED)
    head = max((several - one) / (TIMED - 1), 1e-6)
    return max(one - head, 0.0), head


def measure(benchmark: Benchmark, scorer: Scorer, shots: int) -> Evaluation:
    """The ranks of the queries of the held-out relations, with the candidates that users get."""
    return evaluate(benchmark, scorer, Protocol("dev", shots, "open"))


def ask(
    benchmark: Benchmark, scorers: Sequence[CachedScorer], shots: int, splits: Sequence[str], until: float
) -> Benchmark:
    """Score all queries of these splits, relation by relation, until a moment of the clock; scorers keep the scores.

    Returns the benchmark with those relations of the splits that were asked: at least the first.
    """
    everything, asked, size = _everything(benchmark), {split: list[Task]() for split in splits}, 0
    columns = [[(split, task) for task in benchmark.split(split)] for split in splits]
    order = [each for row in itertools.zip_longest(*columns) for each in row if each is not None]
    begin = time.monotonic()
    with progress("asking", len(order)) as advance:
        for done, (split, task) in enumerate(order):
            references, queries = task.split(shots)
            question = Question(task.name, references, np.unique(queries[:, 0]), everything)
            size += len(question.heads) * len(everything)
            now = time.monotonic()
            if done and (size > MAX_SCORES or now + (now - begin) / done > until):
                break
            for scorer in scorers:
                scorer(question)
            asked[split].append(task)
            advance(done + 1, f"{done + 1} of {len(order)} relations")
    if all(len(asked[split]) == len(benchmark.split(split)) for split in splits):
        return benchmark
    return dataclasses.replace(benchmark, tasks={**benchmark.tasks, **asked})


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
    """How much MRR rose, given the ranks of each relation's queries: the mean over relations, and its standard error.

    With one relation they are those over queries.
    """
    rises = [1 / np.asarray(b, float) - 1 / np.asarray(a, float) for a, b in zip(before, after, strict=True)]
    values = np.array([rise.mean() for rise in rises]) if len(rises) > 1 else rises[0]
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def _everything(benchmark: Benchmark) -> np.ndarray:
    return np.arange(len(benchmark.graph.entities), dtype=np.int32)
