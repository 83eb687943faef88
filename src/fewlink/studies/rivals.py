"""The leaderboard of each benchmark, and the commands that create its missing records."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fewlink.core.errors import FewlinkError
from fewlink.studies.jobs import pending_jobs, run_jobs
from fewlink.studies.plan import Plan, Rivals
from fewlink.studies.study import Study, StudyOutput
from fewlink.studies.tables import leaderboard
from fewlink.studies.workspace import Workspace
from fewlink.tasks import open_benchmark


class Gap(NamedTuple):
    """Missing records of a model on a benchmark; each cell is (number of references, candidates, seed)."""

    rivals: Rivals
    benchmark: str
    model: str
    cells: Sequence[tuple[int, str, int]]

    def __str__(self) -> str:
        """The missing cells, and the command that creates their records."""
        shots, candidates, seeds = (list(dict.fromkeys(str(cell[i]) for cell in self.cells)) for i in range(3))
        words = {
            "model": self.model,
            "file": self.model.replace("-", "_"),
            "benchmark": self.benchmark,
            "protocols": " ".join(
                ["--split test", *(f"-k {k}" for k in shots), *(f"--candidates {c}" for c in candidates)]
            ),
            "seeds": " ".join(f"--seed {seed}" for seed in seeds),
        }
        cells = f"K = {', '.join(shots)}; {', '.join(candidates)}; seeds {', '.join(seeds)}"
        needs = f" (needs {self.rivals.needs.format(**words)})" if self.rivals.needs else ""
        return f"{self.benchmark}, {self.model}: {cells}{needs}: {self.rivals.command.format(**words)}"


def show(plan: Plan, workspace: Workspace) -> StudyOutput:
    names = dict.fromkeys(name for each in plan.rivals for name in each.benchmarks)
    return StudyOutput([leaderboard(workspace.store, name, plan.names) for name in names])


def pending(plan: Plan, workspace: Workspace) -> list[str]:
    return [str(gap) for gap in _gaps(plan.rivals, workspace)]


def run(plan: Plan, workspace: Workspace) -> None:
    """Evaluate the models that need nothing, and log the commands for the others."""
    for rivals in plan.rivals:
        if rivals.needs:
            continue
        for name in dict.fromkeys(gap.benchmark for gap in _gaps([rivals], workspace)):
            try:
                benchmark = workspace.data if name == workspace.benchmark.name else open_benchmark(name)
            except FewlinkError as error:
                workspace.log(f"skipping {name}: {error}")
                continue
            own_workspace = dataclasses.replace(workspace, benchmark=benchmark, work=workspace.work.parent / name)
            cells = Plan(
                title="",
                about="",
                expect="",
                splits=["test"],
                models=rivals.models,
                shots=rivals.shots,
                candidates=rivals.candidates,
                seeds=rivals.seeds,
            )
            run_jobs(pending_jobs(cells, own_workspace), own_workspace)
    for line in pending(plan, workspace):
        workspace.log(f"not run: {line}")


def _gaps(every: Sequence[Rivals], workspace: Workspace) -> Iterator[Gap]:
    stored = {
        (r.benchmark, r.model, r.shots, r.candidates, r.seed)
        for r in workspace.store.records
        if (r.split, r.references) == ("test", "first")
    }
    for rivals in every:
        cells = list(itertools.product(rivals.shots, rivals.candidates, range(rivals.seeds)))
        for benchmark, model in itertools.product(rivals.benchmarks, rivals.models):
            if missing := [cell for cell in cells if (benchmark, model, *cell) not in stored]:
                yield Gap(rivals, benchmark, model, missing)


STUDY = Study(show, pending, run)
