"""Courses of training: dev and test figures at every evaluation of a run, to see what choosing on either is worth."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fewlink import __version__
from fewlink.base.recipes import OWN
from fewlink.base.storage import write_json
from fewlink.evaluation.records import COURSE_SUFFIX, command_line, hardware, read_as
from fewlink.report.charts import figure
from fewlink.report.tables import COLUMNS, Published, Table, in_order, spread

Figures = Mapping[str, float]


class Station(BaseModel):
    """Micro figures after some steps."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    step: int
    dev: dict[str, float]
    test: dict[str, float]


class Course(BaseModel):
    """A run from its first evaluation to its last."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    benchmark: str
    model: str
    seed: int
    shots: int
    candidates: str
    settings: dict[str, Any]
    stations: list[Station] = Field(min_length=1)
    command: str = Field(default_factory=command_line)
    version: str = __version__
    data_sha256: str
    hardware: str = Field(default_factory=hardware)

    def save(self, folder: Path) -> None:
        """Write it; the same measurement replaces one, other settings or data do not."""
        what = [self.benchmark, self.model, f"{self.shots}shot", self.candidates, f"seed{self.seed}"]
        own = {name: value for name, value in self.settings.items() if name not in OWN}
        digest = hashlib.sha256(json.dumps([own, self.data_sha256]).encode()).hexdigest()[:8]
        name = "_".join([*what, digest]).replace("/", "-")
        write_json(Path(folder) / f"{name}{COURSE_SUFFIX}", self.model_dump())

    def passed(self, station: Station) -> Course:
        """The course up to a station, in place of what a run passed that has gone back to an earlier step."""
        before = [each for each in self.stations if each.step < station.step]
        return self.model_copy(update={"stations": [*before, station]})

    def best(self, split: str) -> Station:
        """Where a run ends that keeps the first of its best steps by MRR on a split."""
        return max(self.stations, key=lambda station: getattr(station, split)["mrr"])


def best_of_each(course: Course) -> Figures:
    """The best test figure of each metric, wherever in the course it is."""
    return {metric: max(station.test[metric] for station in course.stations) for metric in COLUMNS.values()}


CHOICES: dict[str, Callable[[Course], Figures]] = {
    "chosen-on-dev": lambda course: course.best("dev").test,
    "chosen-on-test": lambda course: course.best("test").test,
    "best-of-each": best_of_each,
}
SAID = {"chosen-on-dev": "dev", "chosen-on-test": "test", "best-of-each": "test, each metric by itself"}


def by_choice(courses: Sequence[Course], published: Published | None = None) -> Table:
    """A row a model and a way to choose its step: test figures, mean ± deviation over seeds."""
    rows = []
    for model in in_order(course.model for course in courses):
        mine = [course for course in courses if course.model == model]
        for choice, figures in CHOICES.items():
            found = [figures(course) for course in mine]
            rows.append(
                [model, SAID[choice], str(len(mine)), *(spread([f[m] for f in found]) for m in COLUMNS.values())]
            )
        if row := (published or {}).get(model, {}).get("test"):
            rows.append([f"*{model}, as published*", "", "", *(f"*{figure(row[m])}*" for m in COLUMNS.values())])
    kinds = ", ".join(dict.fromkeys(f"K = {course.shots}, {course.candidates}" for course in courses))
    return Table(f"test, {kinds}, by what the step was chosen on", ["model", "chosen on", "seeds", *COLUMNS], rows)


def read_courses(folder: Path) -> list[Course]:
    """All courses under a folder, by file name."""
    return [read_as(Course, path, "a course") for path in sorted(Path(folder).rglob(f"*{COURSE_SUFFIX}"))]
