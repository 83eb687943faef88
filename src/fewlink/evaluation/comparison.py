"""Comparing two models on the same queries: the difference of their means, with a paired bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fewlink.core.errors import FewlinkError, choose
from fewlink.core.metrics import HITS
from fewlink.core.seeds import generator
from fewlink.evaluation.records import QueryRanks, Record, RecordStore, read_ranks

RESAMPLES = 10_000  # so that the ends of the interval hardly depend on chance
INTERVAL = (0.025, 0.975)  # the quantiles between which 95 % of the differences are
METRICS = ("mrr", *(f"hits@{k}" for k in HITS))  # means over queries


class Difference(NamedTuple):
    """The means of two models, and their `difference`, first − second.

    `low` to `high` is the 95 % interval of the difference; `ahead` is the share of resamples in which the first leads.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    ahead: float


@dataclass(frozen=True)
class Comparison:
    """Two models under one protocol, `micro` over queries and `macro` over relations, each a mean over its `seeds`."""

    benchmark: str
    models: tuple[str, str]
    split: str
    shots: int
    candidates: str
    metric: str
    seeds: tuple[int, int]
    relations: int
    queries: int
    micro: Difference
    macro: Difference


def compare(
    results: Path | str | RecordStore,
    first: str,
    second: str,
    benchmark: str,
    *,
    split: str = "test",
    shots: int = 3,
    candidates: str = "full",
    metric: str = "mrr",
    resamples: int = RESAMPLES,
) -> Comparison:
    """Compare two models by the stored ranks of their queries.

    Each query's reciprocal rank (or hit) is averaged over the seeds of a model. Then relations are drawn with
    replacement, as many as there are, `resamples` times; each draw gives a difference of the two means. The interval
    shows how much the difference depends on the choice of relations; it does not cover other references or graphs.
    If the split has one relation, its queries are drawn instead.

    `results` is a folder of records. Raise if a model has no record with ranks, or if the two were measured on
    different data or queries.

    >>> compare("results", "rules", "popularity", "umls").micro.difference  # doctest: +SKIP
    0.05
    """
    choose("metric", metric, dict.fromkeys(METRICS))
    if resamples < 1:
        raise FewlinkError(f"resamples is {resamples}: it must be at least 1")
    store = results if isinstance(results, RecordStore) else RecordStore(Path(results))
    protocol: dict[str, Any] = {"split": split, "shots": shots, "candidates": candidates}
    sides = [stored_ranks(store, model, benchmark, **protocol) for model in (first, second)]
    common = [data for data in sides[0] if data in sides[1]]
    if not common:
        raise FewlinkError(
            f"{first} and {second} were measured on different queries of {benchmark}: evaluate both on the same data"
        )
    pairs = [side[common[-1]] for side in sides]
    one, other = (np.mean([ranks.gains(metric) for ranks in seeds], 0) for seeds in pairs)
    counts = pairs[0][0].counts
    micro, macro = paired_bootstrap(one, other, counts, resamples)
    return Comparison(
        benchmark,
        (first, second),
        **protocol,
        metric=metric,
        seeds=(len(pairs[0]), len(pairs[1])),
        relations=len(counts),
        queries=int(counts.sum()),
        micro=micro,
        macro=macro,
    )


def paired_bootstrap(
    first: np.ndarray, second: np.ndarray, counts: np.ndarray, resamples: int = RESAMPLES
) -> tuple[Difference, Difference]:
    """The difference of two means over the same queries, as a mean over queries and as one over relations.

    Shapes: `first`, `second` (q,), the terms of the means, relation by relation; `counts` (r,), the queries of each
    relation. Whole relations are drawn, because queries of one relation are not independent. If there is only one
    relation, its queries are drawn, and the interval holds for this relation alone.
    """
    counts = np.asarray(counts) if len(counts) > 1 else np.ones(len(first), np.int64)
    ends = np.cumsum(counts)
    if not len(first) == len(second) == ends[-1]:
        raise FewlinkError(
            f"there are {len(first)} and {len(second)} values for {ends[-1]} queries: give one for each query"
        )
    sums = np.stack([np.add.reduceat(values, ends - counts) for values in (first, second)], 1)  # (r, 2)
    drawn = generator(0, "relations").multinomial(len(counts), np.full(len(counts), 1 / len(counts)), resamples)
    results = []
    for totals, weights in ((sums, counts), (sums / counts[:, None], np.ones(len(counts)))):
        means = totals.sum(0) / weights.sum()
        differences = drawn @ (totals[:, 0] - totals[:, 1]) / (drawn @ weights)  # (resamples,)
        ahead = np.mean(differences > 0) + np.mean(differences == 0) / 2
        low, high = np.quantile(differences, INTERVAL)
        results.append(Difference(*map(float, (*means, means[0] - means[1], low, high, ahead))))
    return results[0], results[1]


def stored_ranks(
    store: RecordStore, model: str, benchmark: str, **protocol: Any
) -> dict[tuple[str, str], Sequence[QueryRanks]]:
    """The ranks of a model's seeds under a protocol, by data and query list. Raise if there are none."""
    of_benchmark = {r.benchmark: r for r in store.records}
    choose("benchmark with records", benchmark, of_benchmark)
    records = [r for r in store.records if r.benchmark == benchmark and r.references == "first"]
    choose(f"model with records on {benchmark}", model, dict.fromkeys(sorted({r.model for r in records})))
    cell = f"{model} on {benchmark} ({protocol['split']}, {protocol['shots']}-shot, {protocol['candidates']})"
    groups: dict[tuple[str, str], dict[str, dict[int, QueryRanks]]] = {}
    without: Record | None = None
    for file, record in store.places:
        if not _matches(record, benchmark=benchmark, model=model, references="first", **protocol):
            continue
        ranks = read_ranks(file, record)
        if ranks is None:
            without = record
        else:
            settings = groups.setdefault((record.data_sha256, ranks.digest), {})
            settings.setdefault(record.choices(), {})[record.seed] = ranks
    if not groups and without is not None:
        problem = f"the ranks of {cell} are not stored: repeat the evaluation"
        raise FewlinkError(f"{problem} (with --replace if its figures differ): {without.command}")
    if not groups:
        recorded = {(r.split, r.shots, r.candidates) for r in records if r.model == model}
        listed = ", ".join(f"{split} {shots}-shot {candidates}" for split, shots, candidates in sorted(recorded))
        raise FewlinkError(f"there is no record of {cell}: choose one of {listed}")
    for settings in groups.values():
        if len(settings) > 1:
            raise FewlinkError(f"{cell} has ranks for {len(settings)} different settings: keep one of them in a folder")
    return {data: list(next(iter(settings.values())).values()) for data, settings in groups.items()}


def _matches(record: Record, **fields: Any) -> bool:
    return all(getattr(record, name) == value for name, value in fields.items())
