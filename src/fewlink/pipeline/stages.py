"""The stages of a fit: which are done, how long each took, and the time that remains."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fewlink.base.errors import InputError
from fewlink.base.progress import duration
from fewlink.base.storage import read_json, write_json
from fewlink.pipeline.time_plan import STAGES, TimePlan, Timings, Workload
from fewlink.trail.settings import TrailSettings

FIT = "fit.json"
EVERY = 5.0  # seconds between lines of progress
TITLES = {
    "planning": "carving tasks and measuring speed",
    "vectors": "vectors of the known graph and of each view",
    "training": "training on hidden relations",
    "whole graph": "vectors of the whole graph, for predictions",
    "measuring": "evaluation on dev and test, calibration and model card",
}


def read_fit(run: Path, format: str) -> dict[str, Any] | None:
    """The record of a fit, or None if it has not started."""
    path = run / FIT
    if not path.exists():
        return None
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != format:
        raise InputError(path, f"is not of the format {format}: choose another folder")
    return content


class Stages:
    """Times the stages of a fit, reports progress, and writes `record` to fit.json after each stage."""

    def __init__(self, run: Path, record: dict[str, Any], tell: Callable[[str], None]) -> None:
        self.run, self.record, self.tell = run, record, tell
        self._stage, self._begin, self._last_line = "", time.monotonic(), 0.0

    @property
    def finished(self) -> bool:
        return all(stage in self.record["seconds"] for stage in STAGES)

    def settings(self, **changes: Any) -> TrailSettings:
        """The chosen settings, with changes."""
        return TrailSettings.from_dict({**self.record["settings"], **changes})

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Record the seconds of a stage."""
        self._stage, self._begin = name, time.monotonic()
        left = f"  about {duration(self.seconds_left(0.0))} left in all" if "expected" in self.record else ""
        self.tell(f"{TITLES[name]}{left}")
        yield
        self.record["seconds"][name] = time.monotonic() - self._begin

    @contextmanager
    def stage(self, name: str) -> Iterator[bool]:
        """Whether a stage is still to be done; if it then succeeds, the record is written."""
        if name in self.record["seconds"]:
            yield False
            return
        with self.timed(name):
            yield True
        write_json(self.run / FIT, self.record)

    @property
    def pace(self) -> float:
        """The seconds of the finished stages divided by the expected ones."""
        done = [stage for stage in STAGES if stage in self.record["seconds"]]
        expected = sum(self.record["expected"][stage] for stage in done)
        return float(sum(self.record["seconds"][stage] for stage in done) / expected) if expected else 1.0

    def seconds_left(self, share: float) -> float:
        """Seconds to the end of the fit when this share of the current stage is done."""
        expected, spent = self.record["expected"], self.record["seconds"]
        passed = time.monotonic() - self._begin
        current = passed / share * (1 - share) if share > 0.05 else expected.get(self._stage, 0.0) * self.pace
        later = [stage for stage in STAGES if stage not in spent and stage != self._stage]
        return float(current + self.pace * sum(expected[stage] for stage in later))

    def line(self, text: str, share: float, *, now: bool = False) -> None:
        """Report progress, at most every few seconds unless `now`."""
        if now or time.monotonic() - self._last_line >= EVERY:
            self._last_line = time.monotonic()
            self.tell(f"{text}  about {duration(self.seconds_left(share))} left in all")

    def epoch_reporter(self, title: str, index: int, count: int) -> Callable[[dict[str, Any]], None]:
        """A reporter for the epochs of one of several tables."""

        def report(trace: dict[str, Any]) -> None:
            done = trace["epoch"] / trace["epochs"]
            text = f"{title}  epoch {trace['epoch']}/{trace['epochs']}  loss {trace['loss']:.4f}"
            self.line(text, (index + done) / count)

        return report

    def report_evaluation(self, event: dict[str, Any]) -> None:
        """A reporter for training: one line per evaluation."""
        if event["event"] == "continued":
            self.tell(f"training  step {event['step']}/{event['steps']}  continued")
        else:
            text = f"training  step {event['step']}/{event['steps']}  loss {event['loss']:.4f}"
            self.line(f"{text}  dev MRR {event['dev']['mrr']:.3f}", event["step"] / event["steps"], now=True)

    def catch_up(self, fixed: Sequence[str]) -> None:
        """Before training: reduce the steps if the vectors took so long that the time limit would be exceeded."""
        settings, plan = self.settings(), TimePlan(Timings(**self.record["speed"]), Workload(**self.record["work"]))
        seconds = 60 * self.record["asked"]["minutes"] - sum(self.record["seconds"].values())
        shortened = plan.shorten_training(settings, seconds, self.pace, fixed)
        expected = plan.expected(shortened)
        over = self.pace * (sum(expected.values()) - expected["vectors"]) - seconds
        if shortened != settings:
            self._note(
                f"vectors took {self.pace:.1f} times the expected time: {shortened.lessons} episodes and "
                f"{shortened.steps} steps instead of {settings.lessons} and {settings.steps}"
            )
        if over > 0:
            self._note(
                f"the fit will exceed its time by about {duration(over)}: the settings cannot be reduced further"
            )
        expected["vectors"] = self.record["expected"]["vectors"]
        self.record.update(settings=shortened.as_dict(), expected=expected)
        write_json(self.run / FIT, self.record)

    def _note(self, text: str) -> None:
        self.record["notes"].append(text)
        self.tell(f"note: {text}")
