"""Results as JSON lines: what was measured, on what, how, and with which command."""

from __future__ import annotations

import functools
import json
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from fewlink import __version__
from fewlink.core.errors import FewlinkError, InputError, reading
from fewlink.core.memory import command_line, hardware
from fewlink.core.recipes import OWN, same_settings
from fewlink.core.settings import Settings
from fewlink.core.storage import locked_inside, read_json, with_sha256, without_sha256, write_bytes
from fewlink.evaluation.ranks import QueryRanks, write_ranks

if TYPE_CHECKING:
    from fewlink.data.benchmark import Benchmark
    from fewlink.evaluation.evaluator import Evaluation, Protocol

NAME_CHARACTERS = 60  # of a benchmark or model, in a path
REMEDY = "restore it from a copy, or remove it and repeat the evaluation"
COUNT = "lines"  # the key of the number of lines, in the first and last line of a file
Figures = dict[str, int | float]


class StoredResult(BaseModel):
    """The base of everything a `RecordStore` keeps.

    `what` names the kind in messages; `suffix` ends its JSON-lines files, `single_suffix` those of version 0.1, which
    hold one result each. `figures` are the fields that a repeated measurement has to reproduce.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())
    what: ClassVar[str]
    suffix: ClassVar[str]
    single_suffix: ClassVar[str]
    figures: ClassVar[set[str]]

    benchmark: str
    model: str
    _has_sha256: bool = PrivateAttr(default=True)  # results of earlier versions have none, and stay as they are

    @property
    @abstractmethod
    def key(self) -> tuple[Any, ...]:
        """Equal for the same measurement; lines of a file are sorted by it."""

    def same_figures(self, other: StoredResult) -> bool:
        return self.model_dump(include=self.figures) == other.model_dump(include=self.figures)

    def as_json(self) -> dict[str, Any]:
        """What is stored, with the checksum of all of it."""
        return with_sha256(self.model_dump()) if self._has_sha256 else self.model_dump()


class Record(StoredResult):
    """One evaluation of one model, complete enough to be repeated and compared."""

    what = "a result record"
    suffix, single_suffix = ".jsonl", ".json"
    figures = {"queries", "metrics", "relations"}

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
    def key(self) -> tuple[Any, ...]:
        protocol = (self.split, self.shots, self.candidates, self.references, self.seed)
        return (self.benchmark, self.model, *protocol, self.data_sha256, self.choices())

    def choices(self) -> str:
        """The configuration without what was measured and what differs from seed to seed or machine to machine."""
        config = {key: value for key, value in self.config.items() if key != "measured"}
        if isinstance(settings := config.get("settings"), dict):
            config["settings"] = _without_own(settings)
        return json.dumps(config, sort_keys=True)


class CurvePoint(BaseModel):
    """Micro averages on dev and test after some steps."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    step: int
    dev: dict[str, float]
    test: dict[str, float]


class LearningCurve(StoredResult):
    """The figures of a run at each of its evaluations."""

    what = "a learning curve"
    suffix, single_suffix = ".curves.jsonl", ".course.json"
    figures = {"points"}

    seed: int
    shots: int
    candidates: str
    settings: dict[str, Any]
    points: list[CurvePoint] = Field(min_length=1, validation_alias=AliasChoices("points", "stations"))  # 0.1: stations
    command: str = Field(default_factory=command_line)
    version: str = __version__
    data_sha256: str
    hardware: str = Field(default_factory=hardware)

    @property
    def key(self) -> tuple[Any, ...]:
        protocol = (self.shots, self.candidates, self.seed)
        settings = json.dumps(_without_own(self.settings), sort_keys=True)
        return (self.benchmark, self.model, *protocol, self.data_sha256, settings)

    def with_point(self, point: CurvePoint) -> LearningCurve:
        """The curve with a point, and without later ones of a run that resumed from an earlier step."""
        before = [each for each in self.points if each.step < point.step]
        return self.model_copy(update={"points": [*before, point]})

    def best(self, split: str) -> CurvePoint:
        """The first point with the best MRR on a split."""
        return max(self.points, key=lambda point: getattr(point, split)["mrr"])


class PairMap(StoredResult):
    """True and false pairs of a relation on a plane, and how well they separate.

    `silhouette` is that of the model's own vectors, `silhouette_of_map` that of the plane: from −1 to 1, 0 where the
    two kinds overlap. `points` are (x, y, "positive" or "negative").
    """

    model_config = ConfigDict(allow_inf_nan=False)
    what = "a map of pairs"
    suffix, single_suffix = ".maps.jsonl", ".map.json"
    figures = {"silhouette", "silhouette_of_map", "points"}

    relation: str
    seed: int
    shots: int
    silhouette: float
    silhouette_of_map: float
    points: list[tuple[float, float, str]]
    settings: dict[str, Any] = Field(default_factory=dict)  # of the model; version 0.1 stored none
    command: str
    version: str
    data_sha256: str

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.benchmark, self.model, self.relation, self.shots, self.seed, self.data_sha256)


KINDS = (LearningCurve, PairMap, Record)  # a file is of the first kind that has its suffix
R = TypeVar("R", bound=StoredResult)


class RecordStore:
    """The results in a folder, one a line, in `BENCHMARK/MODEL.jsonl`, `.curves.jsonl` and `.maps.jsonl`; beside
    records, the ranks of their queries in `MODEL.ranks.npz`.

    All `.jsonl` and `.json` files below the folder are read: the folder of one benchmark is a store too, and so is a
    folder of version 0.1, which has a file for each result.

    Adding a result takes a lock beside the file, and replaces the file by a copy with the new line in its sorted
    place. So a reader never sees half a line, a process that is killed leaves the file whole, and processes that add
    at the same time wait for one another.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def check_writable(self) -> None:
        """Raises if results cannot be stored in the folder, before anything is measured; makes the folder."""
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
        """All results of a kind, by file name and line."""
        return [result for _, _, result in self.located(kind)]

    def located(self, kind: type[R], files: Iterable[Path] | None = None) -> Iterator[tuple[Path, int | None, R]]:
        """Each result of a kind with its file and line; raises an error that names both if one is damaged."""
        for path in self._files(kind) if files is None else files:
            if path.suffix == ".json":
                yield path, None, read_result(kind, path)
            else:
                yield from ((path, line, result) for line, result in _read_lines(kind, path).items())

    def holds(self, benchmark: Benchmark, model: str, settings: Settings | None, protocol: Protocol) -> bool:
        """Whether this measurement has a record."""
        return any(
            (r.model, r.split, r.shots, r.candidates, r.references, r.seed)
            == (model, protocol.split, protocol.shots, protocol.candidates, protocol.references, protocol.seed)
            and r.data_sha256 == benchmark.fingerprint
            and same_settings(r.config.get("settings"), settings)
            for r in self.records
        )

    def path_of(self, result: StoredResult) -> Path:
        """The file that a result is added to; a store that is named after the benchmark needs no folder for it."""
        folder = re.sub(r"[^\w+-]", "-", result.benchmark)[:NAME_CHARACTERS]
        name = re.sub(r"(?!(?<=\d)\.\d)[^\w+-]", "-", result.model)[:NAME_CHARACTERS]  # a version keeps its points
        parent = self.folder if self.folder.resolve().name == folder else self.folder / folder
        return parent / f"{name}{result.suffix}"

    def add(self, result: StoredResult, *, ranks: QueryRanks | None = None, replace: bool = False) -> Path:
        """Store a result, and return its file; one that is stored with the same figures stays as it is.

        The `ranks` of a record's queries are stored beside it, also if the record itself was stored before.
        Raises `DifferentFigures` if the measurement is stored with other figures, unless `replace`.
        """
        kind = type(result)
        self.__dict__.pop("places", None)
        with locked_inside(self.path_of(result).parent):
            path, results = self._file_of(result)
            single = {each.key: (file, each) for file, _, each in self.located(kind, self._single_files(kind))}
            where, before = (
                (path, results[result.key]) if result.key in results else single.get(result.key, (path, None))
            )
            if before is not None and before.same_figures(result):
                _store_ranks(where, before, ranks, keep=True)
                return where
            if before is not None and not replace:
                raise DifferentFigures(
                    f"{where} has this measurement of {result.model} with other figures: replace it (fewlink evaluate"
                    " --replace, replace=True in Python), or store the new one in another folder"
                )
            results[result.key] = result
            _write_lines(path, [results[key].as_json() for key in sorted(results)])
            _store_ranks(path, result, ranks)
            if where != path:
                _store_ranks(where, result, None)
                where.unlink()
        return path

    def _file_of(self, result: R) -> tuple[Path, dict[tuple[Any, ...], R]]:
        """The file that a result is stored in, and the results that are there already."""
        path = self.path_of(result)
        return path, {each.key: each for _, _, each in self.located(type(result), [path] if path.exists() else [])}

    def _single_files(self, kind: type[StoredResult]) -> list[Path]:
        """Files of version 0.1, which hold one result each; other JSON files may lie beside them."""
        return [path for path in self._files(kind) if path.suffix == ".json" and b'"data_sha256"' in path.read_bytes()]

    def _files(self, kind: type[StoredResult]) -> list[Path]:
        files = (Path(place) / name for place, _, names in os.walk(self.folder) for name in names)  # drafts may vanish
        return sorted(path for path in files if kind_of(path) is kind)


class DifferentFigures(FewlinkError):
    """A measurement that is stored with other figures."""


def read_records(folder: Path) -> list[Record]:
    """All records below a folder."""
    return RecordStore(folder).records


def read_result(kind: type[R], path: Path) -> R:
    """A JSON file that holds one result."""
    return _validated(kind, read_json(path), path)


def make_record(
    evaluation: Evaluation, *, benchmark: str, data_sha256: str, model: str, config: dict[str, Any] | None = None
) -> Record:
    protocol = evaluation.protocol
    return Record(
        benchmark=benchmark,
        model=model,
        **{name: getattr(protocol, name) for name in ("split", "shots", "candidates", "references", "seed")},
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


def _store_ranks(file: Path, result: StoredResult, ranks: QueryRanks | None, keep: bool = False) -> None:
    if isinstance(result, Record) and not (keep and ranks is None):
        write_ranks(file, result, ranks)


def _without_own(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in OWN}


def kind_of(path: Path) -> type[StoredResult] | None:
    """What a file holds, by the end of its name; None if it holds no results."""
    return next((kind for kind in KINDS if path.name.endswith((kind.suffix, kind.single_suffix))), None)


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write a JSON-lines file; its first and last line also say how many lines there are, so that lost ones are missed.

    The checksum of a line is of the result alone: someone who removes lines can remove the number too.
    """
    lines[0][COUNT] = lines[-1][COUNT] = len(lines)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_bytes(path, text.encode(errors="backslashreplace"))  # a lone surrogate as JSON writes it


def _read_lines(kind: type[R], path: Path) -> dict[int, R]:
    """The results of a JSON-lines file by line."""
    results: dict[int, R] = {}
    for number, result in each_line(kind, path):
        if isinstance(result, InputError):
            raise result
        results[number] = result
    return results


def each_line(kind: type[R], path: Path) -> Iterator[tuple[int, R | InputError]]:
    """Each result of a JSON-lines file with its line, or what is wrong with the line, or with their number."""
    with reading(path, REMEDY):
        content = path.read_bytes()
        if not content.strip():
            raise InputError(path, f"is empty: {REMEDY}")
    lines: dict[tuple[Any, ...], int] = {}
    counts: dict[int, Any] = {}
    there = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    for number, line in there:
        try:
            value = json.loads(line)
            if isinstance(value, dict) and COUNT in value:
                counts[number] = value.pop(COUNT)
            result = _validated(kind, value, path, number)
            if (first := lines.setdefault(result.key, number)) != number:
                raise InputError(path, f"has the measurement of line {first} again: remove one of the lines", number)
            yield number, result
        except InputError as error:
            yield number, error
        except (ValueError, RecursionError) as error:
            problem = f"is not JSON ({getattr(error, 'msg', error)}): mend or remove the line"
            yield number, InputError(path, problem, number)
    if wrong := [number for number, count in counts.items() if count != len(there)]:
        count = counts[wrong[0]]
        how = f'if you added or removed lines yourself, remove "{COUNT}": {count} from this one'
        problem = f"says that the file has {count} lines, but it has {len(there)}: restore it from a copy; {how}"
        yield wrong[0], InputError(path, problem, wrong[0])


def _validated(kind: type[R], value: Any, path: Path, line: int | None = None) -> R:
    try:
        result = kind.model_validate(without_sha256(value, path, line, REMEDY))
        result._has_sha256 = "sha256" in value
        return result
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(path, f"is not {kind.what} ({field}: {first['msg']})", line) from None
