"""Learning curves: the metrics of a run at each of its evaluations."""

from __future__ import annotations

import json
import statistics
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from fewlink import __version__
from fewlink.core.memory import command_line, hardware
from fewlink.evaluation.stored import StoredResult, without_per_run_settings


class CurvePoint(BaseModel):
    """Micro averages on dev and test at a step."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    step: int
    dev: dict[str, float]
    test: dict[str, float]


class LearningCurve(StoredResult):
    """The metrics of a run at each of its evaluations."""

    what = "a learning curve"
    suffix = ".curves.jsonl"
    figures = frozenset({"points"})

    seed: int
    shots: int
    candidates: str
    settings: dict[str, Any]
    points: list[CurvePoint] = Field(min_length=1)
    command: str = Field(default_factory=command_line)
    version: str = __version__
    data_sha256: str
    hardware: str = Field(default_factory=hardware)

    @property
    def key(self) -> tuple[Any, ...]:
        protocol = (self.shots, self.candidates, self.seed)
        settings = json.dumps(without_per_run_settings(self.settings), sort_keys=True)
        return (self.benchmark, self.model, *protocol, self.data_sha256, settings)

    def with_point(self, point: CurvePoint) -> LearningCurve:
        """The curve with a point added; later points, of a run that resumed from an earlier step, are dropped."""
        before = [each for each in self.points if each.step < point.step]
        return self.model_copy(update={"points": [*before, point]})

    def up_to(self, step: int) -> Self:
        """The curve as far as a step."""
        return self.model_copy(update={"points": [point for point in self.points if point.step <= step]})

    def best(self, split: str) -> CurvePoint:
        """The first point with the best MRR on a split."""
        return max(self.points, key=lambda point: getattr(point, split)["mrr"])

    def mean_of_best(self, split: str, count: int = 5) -> dict[str, float]:
        """The mean of the best `count` evaluations on a split, for each metric by itself."""
        rows = [getattr(point, split) for point in self.points]
        return {
            metric: statistics.fmean(sorted((row[metric] for row in rows), reverse=True)[:count]) for metric in rows[0]
        }


class ReadingCurve(LearningCurve):
    """The metrics of a run of the study `readings`, which also names its vectors and the references it was given."""

    what = "the curve of a reading"
    suffix = ".readings.jsonl"

    vectors: dict[str, Any]
    references: str

    @property
    def key(self) -> tuple[Any, ...]:
        return (*super().key, self.references, json.dumps(self.vectors, sort_keys=True))
