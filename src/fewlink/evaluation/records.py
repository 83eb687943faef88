"""Results as files, one JSON record each: what was measured, on what, how, and with which command."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fewlink import __version__
from fewlink.base.errors import InputError
from fewlink.base.storage import read_json, write_json
from fewlink.evaluation.evaluator import Evaluation

NAME_CHARACTERS = 60  # of each part of a file name
MAP_SUFFIX, COURSE_SUFFIX = ".map.json", ".course.json"  # maps and courses (`studies`), which lie beside records
Figures = dict[str, int | float]
M = TypeVar("M", bound=BaseModel)


class Record(BaseModel):
    """One evaluation of one model, complete enough to be repeated and compared."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    benchmark: str
    model: str
    split: str
    shots: int
    candidates: str
    references: str
    seed: int
    queries: int
    metrics: dict[str, Figures]
    relations: dict[str, Figures]
    command: str
    config: dict[str, Any] = Field(default_factory=dict)
    examples: list[dict[str, Any]] = Field(default_factory=list)
    version: str
    data_sha256: str
    hardware: str
    seconds: float

    @property
    def file_name(self) -> str:
        """The same for the same measurement, so that repeating one replaces it."""
        what = [self.benchmark, self.model, self.split, f"{self.shots}shot", self.candidates, self.references]
        digest = hashlib.sha256(json.dumps([self.choices(), self.data_sha256]).encode()).hexdigest()[:8]
        return (
            "_".join([*(str(w)[:NAME_CHARACTERS] for w in what), f"seed{self.seed}", digest]).replace(os.sep, "-")
            + ".json"
        )

    def choices(self) -> str:
        """The configuration without what was measured and what differs from seed to seed or machine to machine."""
        config = {key: value for key, value in self.config.items() if key != "measured"}
        if isinstance(settings := config.get("settings"), dict):
            config["settings"] = {key: value for key, value in settings.items() if key not in ("seed", "device")}
        return json.dumps(config, sort_keys=True)

    def save(self, folder: Path) -> Path:
        path = Path(folder) / self.file_name
        write_json(path, self.model_dump())
        return path


def make_record(
    evaluation: Evaluation, *, benchmark: str, data_sha256: str, model: str, config: dict[str, Any] | None = None
) -> Record:
    protocol = evaluation.protocol
    return Record(
        benchmark=benchmark,
        model=model,
        split=protocol.split,
        shots=protocol.shots,
        candidates=protocol.candidates,
        references=protocol.references,
        seed=protocol.seed,
        queries=evaluation.queries,
        metrics=evaluation.metrics(),
        relations=evaluation.relations(),
        command=command_line(),
        config=config or {},
        version=__version__,
        data_sha256=data_sha256,
        hardware=hardware(),
        seconds=round(evaluation.seconds, 3),
    )


def read_records(folder: Path) -> list[Record]:
    """All records under a folder, by file name; a file that is not one is an error that names it."""
    paths = sorted(p for p in Path(folder).rglob("*.json") if not p.name.endswith((MAP_SUFFIX, COURSE_SUFFIX)))
    return [read_as(Record, path, "a result record") for path in paths]


def read_as(kind: type[M], path: Path, what: str) -> M:
    """A JSON file as a model of this kind; one that is not is an error that names it and the first wrong field."""
    try:
        return kind.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(path, f"is not {what} ({field}: {first['msg']})") from None


def command_line() -> str:
    """The command as a user would type it."""
    program = Path(sys.argv[0]).name
    command = shlex.join(["fewlink" if program == "__main__.py" else program, *sys.argv[1:]])
    return command.encode("utf-8", "replace").decode()


def hardware() -> str:
    """The processor or the GPU, in words."""
    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"{_processor()}, {os.cpu_count()} cores"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
