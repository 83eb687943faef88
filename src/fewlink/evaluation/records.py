"""Records of evaluations, the ranks of their queries, and the folder that stores both.

`MODEL.ranks.npz`, which numpy can read, lies beside `MODEL.jsonl`. It holds an array of whole numbers, 2 × rank, for
each record that was stored with its ranks, so that two models can be compared query by query. The order of queries
depends only on the benchmark and the references: by relation as in the record, then by head, then as in the benchmark.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import re
import zipfile
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fewlink import __version__
from fewlink.core.errors import FewlinkError, InputError, read_file, reading
from fewlink.core.files import locked, with_sha256, without_sha256, write_bytes
from fewlink.core.machine import command_line, hardware
from fewlink.core.metrics import HITS
from fewlink.core.recipes import PER_RUN_SETTINGS

if TYPE_CHECKING:
    from fewlink.evaluation.evaluator import Evaluation

MAX_NAME_CHARACTERS = 60  # of a benchmark or model in a path
NAME = re.compile(r"([^.]|(?<=\d)\.(?=\d))+")  # of a model in a path: it has no dot, except in a version
REMEDY = "restore it from a copy, or remove it and repeat the evaluation"
RANKS = ".ranks.npz"  # suffix of the file of ranks
MRR_TOLERANCE = 1e-9  # for rounding: sums in another order
Figures = dict[str, int | float]


class StoredResult(BaseModel):
    """The base class of all results in a `RecordStore`.

    `what` names the kind in messages; the names of its files end in `suffix`. `figures` are the fields that a repeated
    measurement must reproduce.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())
    what: ClassVar[str]
    suffix: ClassVar[str]
    figures: ClassVar[frozenset[str]]

    benchmark: str
    model: str

    @property
    @abstractmethod
    def key(self) -> tuple[Any, ...]:
        """Identifies the measurement; the lines of a file are sorted by it."""

    def same_figures(self, other: StoredResult) -> bool:
        """Whether two results of a measurement have the same figures."""
        return all(getattr(self, name) == getattr(other, name) for name in self.figures)

    def as_json(self) -> dict[str, Any]:
        """The content of the line, with its checksum."""
        return with_sha256(self.model_dump())


R = TypeVar("R", bound=StoredResult)


def without_per_run_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without those that each run chooses: seed and device."""
    return {name: value for name, value in settings.items() if name not in PER_RUN_SETTINGS}


class Record(StoredResult):
    """One evaluation of one model, complete enough to be repeated and compared."""

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

    @property
    def key(self) -> tuple[Any, ...]:
        protocol = (self.split, self.shots, self.candidates, self.references, self.seed)
        return (self.benchmark, self.model, *protocol, self.data_sha256, self.choices())

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


class DifferentFigures(FewlinkError):
    """The measurement is already stored with other figures."""


class RecordStore:
    """The results in a folder: one file `BENCHMARK/MODEL.jsonl` for each model, one record per line.

    The ranks of a record's queries are in `MODEL.ranks.npz` beside it. A store reads all such files below the
    folder, so the folder of one benchmark is a store too. It lists records of models that this version lacks. Results
    of another kind, a subclass of `StoredResult`, are in files with its suffix.

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
        return [(file, record) for file in self._files(Record) for record in read_lines(Record, file)]

    @property
    def records(self) -> list[Record]:
        return [record for _, record in self.places]

    def read(self, kind: type[R]) -> list[R]:
        """All results of a kind, in the order of files and lines."""
        return [result for file in self._files(kind) for result in read_lines(kind, file)]

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
        with locked(path), locked(ranks_file(path)):
            stored = read_lines(type(result), path) if path.exists() else []
            results = {each.key: each for each in stored}
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
        return sorted(path for path in files if is_file_of(kind, path))


def read_records(folder: Path) -> list[Record]:
    """All records below a folder."""
    return RecordStore(folder).records


def is_file_of(kind: type[StoredResult], path: Path) -> bool:
    """Whether a file holds results of this kind, by its name."""
    return path.name.endswith(kind.suffix) and bool(NAME.fullmatch(path.name.removesuffix(kind.suffix)))


def write_lines(path: Path, results: list[R]) -> None:
    """Write a file of results, each with its checksum."""
    text = "".join(json.dumps(result.as_json(), ensure_ascii=False) + "\n" for result in results)
    write_bytes(path, text.encode(errors="backslashreplace"))  # escapes lone surrogates as JSON does


def read_lines(kind: type[R], path: Path) -> list[R]:
    """Read the results of a file. Raise if a line is damaged or repeated."""
    content = read_file(path)
    if not content.strip():
        raise InputError(path, f"is empty: {REMEDY}")
    results: dict[tuple[Any, ...], R] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            problem = f"is not JSON ({getattr(error, 'msg', error)}): repair or remove the line"
            raise InputError(path, problem, number) from None
        if isinstance(value, dict):
            value.pop("lines", None)  # older files count their lines in the first and the last one
        result = read_line(kind, value, path, number)
        if result.key in results:
            raise InputError(path, "repeats the measurement of an earlier line: remove one of them", number)
        results[result.key] = result
    return list(results.values())


def read_line(kind: type[R], value: Any, path: Path, line: int) -> R:
    """The result in a line of a file. A line without a checksum was changed by hand."""
    try:
        if isinstance(value, dict) and "sha256" in value:
            value = without_sha256(value, path, line, REMEDY)
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(path, f"is not {kind.what} ({field}: {first['msg']})", line) from None


# Ranks


@dataclass(frozen=True)
class QueryRanks:
    """The rank of each query of an evaluation.

    Shapes: `ranks` (q,) float64, relation by relation; `counts` (r,) int64, the queries of each of the `relations`.
    `digest` is a hash of relations and queries: ranks with the same digest have the same queries in the same order.
    """

    relations: tuple[str, ...]
    counts: np.ndarray
    ranks: np.ndarray
    digest: str

    @classmethod
    def of(cls, evaluation: Evaluation) -> QueryRanks:
        """The ranks of all queries of an evaluation."""
        digest = hashlib.sha256()
        for task in evaluation.tasks:
            digest.update(f"{task.relation}\0{len(task.queries)}\0".encode("utf-8", "backslashreplace"))
            digest.update(np.ascontiguousarray(task.queries, "<i4").data)
        ranks = np.concatenate([task.ranks for task in evaluation.tasks])
        counts = np.array([len(task.ranks) for task in evaluation.tasks])
        return cls(tuple(task.relation for task in evaluation.tasks), counts, ranks, digest.hexdigest()[:16])

    def gains(self, metric: str = "mrr") -> np.ndarray:
        """The terms (q,) whose mean is a metric: 1 / rank for `mrr`, 0 or 1 for `hits@k`."""
        if metric == "mrr":
            return 1 / self.ranks
        return np.asarray(self.ranks <= {f"hits@{k}": k for k in HITS}[metric], float)

    def agrees(self, record: Record) -> bool:
        """Whether the ranks give the record's MRR, of each relation and of all queries."""
        if len(self.ranks) != self.counts.sum() or not len(self.ranks):
            return False
        by_relation = np.split(self.gains(), np.cumsum(self.counts)[:-1])
        computed = [self.gains().mean(), *(gains.mean() if len(gains) else 0 for gains in by_relation)]
        stored = [record.metrics["micro"]["mrr"], *(row["mrr"] for row in record.relations.values())]
        return len(computed) == len(stored) and bool(np.allclose(computed, stored, rtol=0, atol=MRR_TOLERANCE))


def ranks_file(file: Path) -> Path:
    """The file with the ranks of a file of records."""
    return file.with_name(f"{file.name.removesuffix(file.suffix)}{RANKS}")


def read_ranks(file: Path, record: Record) -> QueryRanks | None:
    """Read the ranks of a record in a file; None if it was stored without them.

    Raise if they do not give the record's MRR.
    """
    path = ranks_file(file)
    arrays = _read(path, _prefix(record))
    if not arrays:
        return None
    if len(arrays) > 1:
        raise InputError(path, f"has the ranks of a record twice: {REMEDY}")
    ((name, content),) = arrays.items()
    with reading(path, REMEDY):
        doubled = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        counts = np.array([int(row["queries"]) for row in record.relations.values()])
        ranks = QueryRanks(tuple(record.relations), counts, doubled / 2, name.removesuffix(".npy").rpartition("_")[2])
        agrees = ranks.agrees(record)
    if not agrees:
        problem = f"has ranks that do not give the MRR of a record in {file.name}"
        raise InputError(path, f"{problem}: repeat the evaluation with --replace")
    return ranks


def write_ranks(file: Path, record: Record, ranks: QueryRanks | None) -> None:
    """Replace the stored ranks of a record in a file; None removes them. The caller holds the lock.

    The bytes of the file depend only on the ranks it holds.
    """
    path = ranks_file(file)
    arrays = _read(path)
    kept = {name: content for name, content in arrays.items() if not name.startswith(_prefix(record))}
    if ranks is not None:
        kept[f"{_prefix(record)}{ranks.digest}.npy"] = _packed(ranks.ranks)
    if kept == arrays:
        return
    if not kept:
        path.unlink(missing_ok=True)
        return
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(kept):
            archive.writestr(zipfile.ZipInfo(name), kept[name], zipfile.ZIP_DEFLATED, 9)
    write_bytes(path, buffer.getvalue())


def _prefix(record: Record) -> str:
    """The protocol, and a hash of the record's whole key."""
    protocol = (record.split, record.shots, record.candidates, record.references, record.seed)
    digest = hashlib.sha256(repr(record.key).encode("utf-8", "backslashreplace")).hexdigest()
    return "_".join([*map(str, protocol), digest[:8], ""])


def _packed(ranks: np.ndarray) -> bytes:
    """2 × rank in the .npy format, in the smallest integer type that fits."""
    doubled = np.rint(2 * ranks).astype(np.int64)
    kind = next(kind for kind in ("u1", "<u2", "<u4", "<u8") if doubled.max(initial=0) <= np.iinfo(kind).max)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, doubled.astype(kind), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _read(path: Path, prefix: str = "") -> dict[str, bytes]:
    """The arrays whose names have a prefix, as .npy files by name; empty if there is no file."""
    if not path.exists():
        return {}
    with reading(path, REMEDY), zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            archive.open(name).close()  # raises if the two copies of the name differ
        return {name: archive.read(name) for name in archive.namelist() if name.startswith(prefix)}
