"""Records of evaluations, and the folder that stores them."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from fewlink import __version__
from fewlink.core.errors import FewlinkError
from fewlink.core.files import locked
from fewlink.core.memory import command_line, hardware
from fewlink.core.recipes import same_settings
from fewlink.core.settings import Settings
from fewlink.evaluation.curves import LearningCurve, ReadingCurve
from fewlink.evaluation.maps import PairMap
from fewlink.evaluation.ranks import QueryRanks, write_ranks
from fewlink.evaluation.stored import R, StoredResult, read_lines, without_per_run_settings, write_lines

if TYPE_CHECKING:
    from fewlink.evaluation.evaluator import Evaluation, Protocol
    from fewlink.tasks.benchmark import Benchmark

MAX_NAME_CHARACTERS = 60  # of a benchmark or model in a path
TRAIL_0_2 = {  # the network of fewlink 0.2: its names in records, by the names that 0.2 gave it
    "trail": "trail-0.2",
    "trail-shipped": "trail-0.2-shipped",
    "trail-names": "trail-0.2-names",
    "trail-without-attack": "trail-0.2-without-attack",
}
Figures = dict[str, int | float]


class Record(StoredResult):
    """One evaluation of one model, complete enough to be repeated and compared.

    A record that 0.2 wrote of its `trail` is one of `trail-0.2`, which is another network than this version's.
    """

    what = "a result record"
    suffix = ".jsonl"
    figures = frozenset({"queries", "metrics", "relations"})

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

    @model_validator(mode="after")
    def _name_predecessor(self) -> Record:
        if self.model in TRAIL_0_2 and self.version.split(".")[:2] in (["0", "1"], ["0", "2"]):
            self.model = TRAIL_0_2[self.model]
        return self

    @property
    def key(self) -> tuple[Any, ...]:
        name = next((old for old, new in TRAIL_0_2.items() if new == self.model), self.model)  # as its ranks have it
        protocol = (self.split, self.shots, self.candidates, self.references, self.seed)
        return (self.benchmark, name, *protocol, self.data_sha256, self.choices())

    def choices(self) -> str:
        """The configuration without measured values and without settings that differ between seeds or machines."""
        config = {key: value for key, value in self.config.items() if key != "measured"}
        if isinstance(settings := config.get("settings"), dict):
            config["settings"] = without_per_run_settings(settings)
        return json.dumps(config, sort_keys=True)


def make_record(
    evaluation: Evaluation, *, benchmark: str, data_sha256: str, model: str, config: dict[str, Any] | None = None
) -> Record:
    """Make the record of an evaluation by this command, version and machine."""
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


class BetweenRecord(StoredResult):
    """How well a model tells which of a split's relations holds between two entities."""

    what = "a record of relations between entities"
    suffix = ".between.jsonl"
    figures = frozenset({"queries", "metrics", "relations"})

    split: str
    shots: int
    seed: int
    ranked_by: str
    queries: int
    metrics: dict[str, dict[str, float]]
    relations: dict[str, dict[str, float]]
    config: dict[str, Any] = Field(default_factory=dict)
    command: str = Field(default_factory=command_line)
    version: str = __version__
    data_sha256: str
    hardware: str = Field(default_factory=hardware)
    seconds: float

    @property
    def key(self) -> tuple[Any, ...]:
        settings = str(sorted(without_per_run_settings(self.config.get("settings") or {}).items()))
        protocol = (self.split, self.shots, self.ranked_by, self.seed)
        return (self.benchmark, self.model, *protocol, self.data_sha256, settings)


KINDS: tuple[type[StoredResult], ...] = (
    LearningCurve,
    ReadingCurve,
    BetweenRecord,
    PairMap,
    Record,
)  # the first with a file's suffix is the kind of the file


def kind_of(path: Path) -> type[StoredResult] | None:
    """The kind of results in a file, by its suffix; None if it holds no results."""
    return next((kind for kind in KINDS if path.name.endswith(kind.suffix)), None)


class DifferentFigures(FewlinkError):
    """The measurement is already stored with other figures."""


class RecordStore:
    """The results in a folder: `BENCHMARK/MODEL.jsonl`, `.curves.jsonl` and `.maps.jsonl`, one result per line.

    The ranks of a record's queries are in `MODEL.ranks.npz` beside it. A store reads all such files below the
    folder, so the folder of one benchmark is a store too. It lists records of models that this version lacks.

    Adding a result locks the folder, and replaces the file by a copy with the new line in sorted order. So a reader
    never sees half a line, a killed process leaves the file intact, and processes that add results at the same time
    wait for one another.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def check_writable(self) -> None:
        """Make the folder, and raise if results cannot be stored in it, before anything is measured."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            reason = "" if os.access(self.folder, os.W_OK) else "Permission denied"
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            raise FewlinkError(f"{self.folder} cannot be written ({reason}): choose another folder for the results")

    @functools.cached_property
    def places(self) -> list[tuple[Path, Record]]:
        """All records, each with its file; read once."""
        return [(file, record) for file, _, record in self.located(Record)]

    @property
    def records(self) -> list[Record]:
        return [record for _, record in self.places]

    @property
    def curves(self) -> list[LearningCurve]:
        return self.read(LearningCurve)

    @property
    def maps(self) -> list[PairMap]:
        return self.read(PairMap)

    def read(self, kind: type[R]) -> list[R]:
        """All results of a kind, in the order of files and lines."""
        return [result for _, _, result in self.located(kind)]

    def located(self, kind: type[R], files: Iterable[Path] | None = None) -> Iterator[tuple[Path, int, R]]:
        """Yield the results of a kind with their files and lines. Raise if one is damaged, naming its file and line."""
        for path in self._files(kind) if files is None else files:
            yield from ((path, line, result) for line, result in read_lines(kind, path).items())

    def holds(self, benchmark: Benchmark, model: str, settings: Settings | None, protocol: Protocol) -> bool:
        """Whether a measurement has a record."""
        return any(
            (r.model, r.split, r.shots, r.candidates, r.references, r.seed)
            == (model, protocol.split, protocol.shots, protocol.candidates, protocol.references, protocol.seed)
            and r.data_sha256 == benchmark.fingerprint
            and same_settings(r.config.get("settings"), settings)
            for r in self.records
        )

    def path_of(self, result: StoredResult) -> Path:
        """The file that a result is added to. A store named after the benchmark has no folder for it."""
        folder = re.sub(r"[^\w+-]", "-", result.benchmark)[:MAX_NAME_CHARACTERS]
        name = re.sub(r"(?!(?<=\d)\.\d)[^\w+-]", "-", result.model)[:MAX_NAME_CHARACTERS]  # versions keep their dots
        parent = self.folder if self.folder.resolve().name == folder else self.folder / folder
        return parent / f"{name}{result.suffix}"

    def add(self, result: StoredResult, *, ranks: QueryRanks | None = None, replace: bool = False) -> Path:
        """Store a result, and return its file. A result that is stored with the same figures stays unchanged.

        The `ranks` of a record's queries are stored beside it, even if the record itself was stored before.
        Raise `DifferentFigures` if the measurement is stored with other figures, unless `replace`.
        """
        self.__dict__.pop("places", None)
        path = self.path_of(result)
        with locked(path):
            files = [path] if path.exists() else []
            results = {each.key: each for _, _, each in self.located(type(result), files)}
            before = results.get(result.key)
            if before is not None and before.same_figures(result):
                if isinstance(before, Record) and ranks is not None:
                    write_ranks(path, before, ranks)
                return path
            if before is not None and not replace:
                raise DifferentFigures(
                    f"{path} has this measurement of {result.model} with other figures: replace it (fewlink evaluate "
                    "--replace, or replace=True in Python), or store the new result in another folder"
                )
            results[result.key] = result
            write_lines(path, [results[key] for key in sorted(results)])
            if isinstance(result, Record):
                write_ranks(path, result, ranks)
        return path

    def _files(self, kind: type[StoredResult]) -> list[Path]:
        files = (Path(place) / name for place, _, names in os.walk(self.folder) for name in names)  # drafts may vanish
        return sorted(path for path in files if kind_of(path) is kind)


def read_records(folder: Path) -> list[Record]:
    """All records below a folder."""
    return RecordStore(folder).records
