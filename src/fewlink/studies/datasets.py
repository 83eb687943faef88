"""Table 1: how large a benchmark is, with the paper's counts."""

from __future__ import annotations

from fewlink.data.benchmark import SPLITS, Benchmark
from fewlink.report.tables import Table
from fewlink.studies.plan import Plan
from fewlink.studies.runner import Bench
from fewlink.studies.study import Shown

COLUMNS = ("entities", "triples", "relations", "tasks", *SPLITS)


def todo(plan: Plan, bench: Bench) -> list[str]:
    return []


def run(plan: Plan, bench: Bench) -> None:
    """Nothing: a benchmark tells its own size."""


def show(plan: Plan, bench: Bench) -> Shown:
    rows = [[bench.benchmark.name, *(f"{n:,}" for n in counts(bench.benchmark).values())]]
    if published := plan.published_data.get(bench.benchmark.name):
        rows.append([f"*{bench.benchmark.name}, as published*", *(f"*{published[c]:,}*" for c in COLUMNS)])
    note = (
        "triples are those of the background; relations are background and task relations; tasks are split three ways"
    )
    return Shown([Table("data sets", ["data set", *COLUMNS], rows, note)])


def counts(benchmark: Benchmark) -> dict[str, int]:
    """The counts of the paper's Table 1, and the split."""
    tasks = {split: len(benchmark.split(split)) for split in SPLITS}
    graph, every = benchmark.graph, sum(tasks.values())
    sizes = {"entities": len(graph.entities), "triples": graph.triple_count, "relations": len(graph.relations) + every}
    return {**sizes, "tasks": every, **tasks}
