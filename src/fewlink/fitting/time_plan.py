"""Plan how many held-out relations and queries a fit measures in its time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fewlink.fitting.held_out import MAX_QUERIES, MAX_RELATIONS, SHOTS
from fewlink.models.contract import Question, Scorer
from fewlink.tasks import Benchmark

MIN_QUERIES = 6  # per relation; if the time is too short for these, fewer relations are measured
MIN_RELATIONS = 4  # measured however short the time is
TIMED_HEADS = 3  # of a timed question: their number tells the time per head from the rest
SPEEDUP = 1.5  # several threads are used only if they are this much faster: other programs slow them down more
MEASURING_SHARE = 0.4  # of the time
TIMES = 3  # how often half of the queries are asked: before fine-tuning, after it, and for what to expect
QUESTIONS = 3  # reference sets of a relation
TRIAL_SHARE = 0.2  # share of the time that the first question may take
TOO_LONG = (np.inf, np.inf)


@dataclass(frozen=True)
class Plan:
    """What a fit measures in its time.

    relations  maximum number of held-out relations
    queries    maximum number of queries per relation, for choosing and for what to expect together
    threads    the faster number of threads, one or all
    """

    relations: int
    queries: int
    threads: int


def plan_measuring(held: Benchmark, scorers: Sequence[Scorer], seconds: float) -> Plan:
    """Plan as many relations and queries as a share of `seconds` allows, estimated from a few timed questions."""
    most = torch.get_num_threads()
    relations = min(MAX_RELATIONS, len(held.split("dev")))
    timings = {1: _timings(held, scorers, 1, TRIAL_SHARE * seconds)}
    if most > 1 and timings[1] != TOO_LONG:
        timings[most] = _timings(held, scorers, most, 2 * sum(timings[1]))
    torch.set_num_threads(most)
    seconds_of = {threads: question + MIN_QUERIES * head for threads, (question, head) in timings.items()}
    threads = most if SPEEDUP * seconds_of.get(most, np.inf) < seconds_of[1] else 1
    question, head = timings[threads]
    if (question, head) == TOO_LONG:
        return Plan(min(MIN_RELATIONS, relations), MIN_QUERIES, threads)

    def queries_of(relations: int) -> float:
        return 2 * (MEASURING_SHARE * seconds / TIMES / relations - QUESTIONS * question) / head

    while relations > MIN_RELATIONS and queries_of(relations) < MIN_QUERIES:
        relations -= 1
    return Plan(relations, int(np.clip(queries_of(relations), MIN_QUERIES, MAX_QUERIES)), threads)


def _timings(held: Benchmark, scorers: Sequence[Scorer], threads: int, limit: float) -> tuple[float, float]:
    """Seconds per question without its heads, and per head, for all scorers together.

    Returns `TOO_LONG` if the first question takes longer than `limit` seconds.
    """
    torch.set_num_threads(threads)
    task = max(held.split("dev"), key=lambda each: len(each.pairs))
    candidates = np.arange(len(held.graph.entities), dtype=np.int32)
    draws = itertools.count(1)  # other references each time, because a scorer may cache what it computes from them

    def timed(count: int) -> float:
        references, queries = task.split(SHOTS[0], next(draws))
        question = Question(task.name, references, np.resize(queries[:, 0], count), candidates)
        begin = time.perf_counter()
        for scorer in scorers:
            scorer(question)
        return time.perf_counter() - begin

    if timed(1) > limit:  # includes what is computed only once
        return TOO_LONG
    one = timed(1)
    several = timed(TIMED_HEADS)
    head = max((several - one) / (TIMED_HEADS - 1), 1e-6)
    return max(one - head, 0.0), head
