"""The course of a fit: its stages, what each took, and the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fewlink.base.errors import InputError
from fewlink.base.progress import duration
from fewlink.base.storage import read_json, write_json
from fewlink.pipeline import time_plan
from fewlink.pipeline.time_plan import PARTS, Speed, Work
from fewlink.trail.settings import TrailSettings

FIT = "fit.json"
EVERY = 5.0  # seconds between lines of progress
WORDS = {
    "planning": "carving tasks and measuring the speed",
    "vectors": "vectors of what is known and of each view",
    "training": "training on hidden relations",
    "whole graph": "vectors of the whole graph, to answer with",
    "measuring": "measuring on dev and test, calibrating, writing the card",
}


def read_fit(run: Path, format: str) -> dict[str, Any] | None:
    """What a fit wrote down, or None where none has begun."""
    path = run / FIT
    if not path.exists():
        return None
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != format:
        raise InputError(path, f"is not of the format {format}: choose another folder")
    return content


class Course:
    """What is written down of a fit in `record`, which goes into fit.json after each stage, and lines about it."""

    def __init__(self, run: Path, record: dict[str, Any], tell: Callable[[str], None]) -> None:
        self.run, self.record, self.tell = run, record, tell
        self._stage, self._begun, self._told = "", time.monotonic(), 0.0

    @property
    def finished(self) -> bool:
        return all(part in self.record["seconds"] for part in PARTS)

    def settings(self, more: Mapping[str, Any]) -> TrailSettings:
        return TrailSettings.from_dict({**self.record["settings"], **more})

    @contextmanager
    def clocked(self, name: str) -> Iterator[None]:
        """Count the seconds of a stage."""
        self._stage, self._begun = name, time.monotonic()
        left = f"  about {duration(self.left(0.0))} left in all" if "expected" in self.record else ""
        self.tell(f"{WORDS[name]}{left}")
        yield
        self.record["seconds"][name] = time.monotonic() - self._begun

    @contextmanager
    def stage(self, name: str) -> Iterator[bool]:
        """Whether a stage is still to be made; where it is, and ends well, that is written down."""
        if name in self.record["seconds"]:
            yield False
            return
        with self.clocked(name):
            yield True
        write_json(self.run / FIT, self.record)

    @property
    def pace(self) -> float:
        """How many times longer than expected the stages took that have been made."""
        made = [part for part in PARTS if part in self.record["seconds"]]
        wanted = sum(self.record["expected"][part] for part in made)
        return float(sum(self.record["seconds"][part] for part in made) / wanted) if wanted else 1.0

    def left(self, share: float) -> float:
        """Seconds to the end when so much of this stage is made."""
        expected, spent = self.record["expected"], self.record["seconds"]
        passed = time.monotonic() - self._begun
        own = passed / share * (1 - share) if share > 0.05 else expected.get(self._stage, 0.0) * self.pace
        later = [part for part in PARTS if part not in spent and part != self._stage]
        return float(own + self.pace * sum(expected[part] for part in later))

    def line(self, text: str, share: float, *, now: bool = False) -> None:
        """A line of progress, not too often."""
        if now or time.monotonic() - self._told >= EVERY:
            self._told = time.monotonic()
            self.tell(f"{text}  about {duration(self.left(share))} left in all")

    def epochs(self, title: str, index: int, count: int) -> Callable[[dict[str, Any]], None]:
        """A reporter for the epochs of one of several tables."""

        def show(trace: dict[str, Any]) -> None:
            done = trace["epoch"] / trace["epochs"]
            text = f"{title}  epoch {trace['epoch']}/{trace['epochs']}  loss {trace['loss']:.4f}"
            self.line(text, (index + done) / count)

        return show

    def evaluated(self, event: dict[str, Any]) -> None:
        """A reporter for training: a line an evaluation."""
        share = event["step"] / event["steps"]
        if event["event"] == "continued":
            self.tell(f"training  step {event['step']}/{event['steps']}  continued")
        else:
            text = f"training  step {event['step']}/{event['steps']}  loss {event['loss']:.4f}"
            self.line(f"{text}  dev MRR {event['dev']['mrr']:.3f}", share, now=True)

    def catch_up(self, fixed: Sequence[str]) -> None:
        """Before training: fewer steps where the vectors took so long that the time would not do, and say so."""
        settings, speed, work = self.settings({}), Speed(**self.record["speed"]), Work(**self.record["work"])
        seconds = 60 * self.record["asked"]["minutes"] - sum(self.record["seconds"].values())
        made = time_plan.caught_up(settings, speed, work, seconds, self.pace, fixed)
        expected = time_plan.expected(made, speed, work)
        over = self.pace * (sum(expected.values()) - expected["vectors"]) - seconds
        if made != settings:
            self._note(
                f"vectors took {self.pace:.1f} times what was expected: {made.lessons} lessons and {made.steps} steps "
                f"instead of {settings.lessons} and {settings.steps}"
            )
        if over > 0:
            self._note(f"it will take about {duration(over)} longer than asked for: there is nothing left to leave out")
        self.record.update(
            settings=made.as_dict(), expected={**expected, "vectors": self.record["expected"]["vectors"]}
        )
        write_json(self.run / FIT, self.record)

    def _note(self, text: str) -> None:
        self.record["notes"].append(text)
        self.tell(f"note: {text}")
