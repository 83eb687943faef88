"""How many relations and queries a fit can measure in its time, and whether there is time for fine-tuning."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import numpy as np
import torch

from fewlink.data import Benchmark
from fewlink.data.training_graph import known_graph
from fewlink.models.baselines.learning_free import learning_free
from fewlink.scorers import Question, Scorer

RULES = "rules"  # the learning-free scorer to compare with
RELATIONS = (16, 12, 10, 8, 6, 4, 2)  # held-out relations, in the order tried
ENOUGH_QUERIES, MAX_QUERIES, MIN_QUERIES = 4, 50, 2  # of each relation: if there is no time for enough, fewer relations
TIMED_HEADS = 3
SPEEDUP = 1.5  # that several threads must reach: other programs slow them down more than one thread
SHARE_WITH_TUNING, SHARE_ALONE = 0.4, 0.75  # of the time for measuring, with fine-tuning and without
TRIAL_SHARE = 0.2  # of the time that the first question may take
TOO_LONG = (np.inf, np.inf)


@dataclass(frozen=True)
class Plan:
    """What can be measured in the time.

    relations  the most relations to hold out, and to measure of dev and of test
    queries    the most queries of each relation
    tuning     whether there may be time for fine-tuning
    seconds    for one relation
    head       seconds for one head
    threads    the fastest number of threads: more than there are free processors slow each other down
    """

    relations: int
    queries: int
    tuning: bool
    seconds: float
    head: float
    threads: int


def plan_measuring(benchmark: Benchmark, scorer: Scorer, shots: int, seconds: float, tuning_heads: int) -> Plan:
    """As many relations and queries as can be measured in a share of these seconds, estimated from timed questions.

    The shortest fine-tuning that helps takes the time of `tuning_heads`. Held-out relations are measured before and
    after it, those of test once, and those of dev once more if they are not the held-out ones.
    """
    most = torch.get_num_threads()
    timings = {1: _timings(benchmark, scorer, shots, 1, TRIAL_SHARE * seconds)}
    if most > 1 and timings[1] != TOO_LONG:
        timings[most] = _timings(benchmark, scorer, shots, most, 2 * sum(timings[1]))
    torch.set_num_threads(most)
    seconds_of = {threads: relation + ENOUGH_QUERIES * head for threads, (relation, head) in timings.items()}
    threads = most if SPEEDUP * seconds_of.get(most, np.inf) < seconds_of[1] else 1
    relation, head = timings[threads]
    if (relation, head) == TOO_LONG:
        return Plan(
            RELATIONS[-1], MIN_QUERIES, False, TRIAL_SHARE * seconds, TRIAL_SHARE * seconds / MIN_QUERIES, threads
        )
    tuning = tuning_heads * head <= (1 - SHARE_WITH_TUNING) * seconds
    share, times = (SHARE_WITH_TUNING, 2) if tuning else (SHARE_ALONE, 1)
    dev, test = (len(benchmark.split(split)) for split in ("dev", "test"))
    for relations in RELATIONS:
        measured = times * relations + min(relations, test) + (dev if dev < relations else 0)
        wanted = (share * seconds / measured - relation) / head
        if wanted >= ENOUGH_QUERIES:
            break
    queries = int(np.clip(wanted, MIN_QUERIES, MAX_QUERIES))
    return Plan(relations, queries, tuning, relation + queries * head, head, threads)


def _timings(
    benchmark: Benchmark, scorer: Scorer, shots: int, threads: int, limit: float = np.inf
) -> tuple[float, float]:
    """Seconds for a relation without its heads, and for each head, of the scorer and the rules together.

    Both are infinite if the first question takes longer than `limit`.
    """
    torch.set_num_threads(threads)
    rules = learning_free(RULES, known_graph(benchmark))
    task = max(benchmark.split("dev"), key=lambda each: len(each.pairs))
    draws = itertools.count(1)  # other references each time: what follows from them may be remembered

    def timed(count: int) -> float:
        references, queries = task.split(shots, next(draws))
        question = Question(task.name, references, np.resize(queries[:, 0], count), all_entities(benchmark))
        begin = time.perf_counter()
        for each in (scorer, rules):
            each(question)
        return time.perf_counter() - begin

    if timed(1) > limit:  # with what is computed once
        return TOO_LONG
    one, several = timed(1), timed(TIMED_HEADS)
    head = max((several - one) / (TIMED_HEADS - 1), 1e-6)
    return max(one - head, 0.0), head


def all_entities(benchmark: Benchmark) -> np.ndarray:
    """The ids of all entities (n,)."""
    return np.arange(len(benchmark.graph.entities), dtype=np.int32)
