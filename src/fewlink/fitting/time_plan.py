"""Plan how many relations and queries a fit measures in its time, and whether it fine-tunes."""

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
RELATIONS = (16, 12, 10, 8, 6, 4, 2)  # numbers of held-out relations, in the order tried
ENOUGH_QUERIES = 4  # per relation; if the time is too short for these, fewer relations are held out
MIN_QUERIES, MAX_QUERIES = 2, 50  # per relation
TIMED_HEADS = 3
SPEEDUP = 1.5  # several threads are used only if they are this much faster: other programs slow them down more
SHARE_WITH_TUNING, SHARE_ALONE = 0.4, 0.75  # shares of the time for measuring
TRIAL_SHARE = 0.2  # share of the time that the first question may take
TOO_LONG = (np.inf, np.inf)


@dataclass(frozen=True)
class Plan:
    """What a fit measures in its time.

    relations  maximum number of held-out relations, and of measured dev and test relations
    queries    maximum number of queries per relation
    tuning     whether the time may suffice for fine-tuning
    seconds    expected seconds per relation
    head       expected seconds per head
    threads    the faster number of threads, one or all
    """

    relations: int
    queries: int
    tuning: bool
    seconds: float
    head: float
    threads: int


def plan_measuring(benchmark: Benchmark, scorer: Scorer, shots: int, seconds: float, tuning_heads: int) -> Plan:
    """Plan as many relations and queries as a share of `seconds` allows, estimated from a few timed questions.

    The shortest fine-tuning that helps takes as long as scoring `tuning_heads` heads. Held-out relations are measured
    before and after fine-tuning, test relations once, and dev relations once more if others are held out too.
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
    """Seconds per relation without its heads, and per head, for the scorer and the rules together.

    Returns `TOO_LONG` if the first question takes longer than `limit` seconds.
    """
    torch.set_num_threads(threads)
    rules = learning_free(RULES, known_graph(benchmark))
    task = max(benchmark.split("dev"), key=lambda each: len(each.pairs))
    draws = itertools.count(1)  # other references each time, because a scorer may cache what it computes from them

    def timed(count: int) -> float:
        references, queries = task.split(shots, next(draws))
        question = Question(task.name, references, np.resize(queries[:, 0], count), all_entities(benchmark))
        begin = time.perf_counter()
        for each in (scorer, rules):
            each(question)
        return time.perf_counter() - begin

    if timed(1) > limit:  # includes what is computed only once
        return TOO_LONG
    one, several = timed(1), timed(TIMED_HEADS)
    head = max((several - one) / (TIMED_HEADS - 1), 1e-6)
    return max(one - head, 0.0), head


def all_entities(benchmark: Benchmark) -> np.ndarray:
    """The ids of all entities (n,)."""
    return np.arange(len(benchmark.graph.entities), dtype=np.int32)
