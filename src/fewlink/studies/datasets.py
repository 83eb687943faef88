"""Table 1: the size of a benchmark, compared with the paper's counts."""

from __future__ import annotations

from fewlink.studies.plan import Plan
from fewlink.studies.study import Study, StudyOutput
from fewlink.studies.tables import Table
from fewlink.studies.workspace import Workspace
from fewlink.tasks.benchmark import SPLITS, Benchmark

COUNTS = ("entities", "triples", "relations", "tasks", *SPLITS)
NOTE = "triples: in the background; relations: background and task relations; tasks: the sum of the three splits"


def show(plan: Plan, workspace: Workspace) -> StudyOutput:
    benchmark = workspace.data
    rows = [[benchmark.name, *(f"{count:,}" for count in counts(benchmark).values())]]
    if published := plan.published_data.get(benchmark.name):
        rows.append([f"*{benchmark.name}, as published*", *(f"*{published[name]:,}*" for name in COUNTS)])
    return StudyOutput([Table("data sets", ["data set", *COUNTS], rows, NOTE)])


def counts(benchmark: Benchmark) -> dict[str, int]:
    """The counts of the paper's Table 1, and the tasks of each split."""
    splits = {split: len(benchmark.split(split)) for split in SPLITS}
    tasks = sum(splits.values())
    return {
        "entities": len(benchmark.graph.entities),
        "triples": benchmark.graph.triple_count,
        "relations": len(benchmark.graph.relations) + tasks,
        "tasks": tasks,
        **splits,
    }


STUDY = Study(show, pending=lambda plan, workspace: [], run=lambda plan, workspace: None)
