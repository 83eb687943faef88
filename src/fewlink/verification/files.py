"""Checks of single files: results and their ranks, calibrations, weights, pretraining states and projects."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from safetensors import safe_open

from fewlink.core.errors import InputError, reading
from fewlink.core.storage import read_json, sha256_file
from fewlink.curation import schema
from fewlink.curation.store import APPLICATION, MAGIC
from fewlink.evaluation import ranks
from fewlink.evaluation.records import Record, kind_of
from fewlink.evaluation.stored import each_line
from fewlink.fitting import record as fit_record
from fewlink.linker import calibration
from fewlink.models.embeddings import checkpoint as state
from fewlink.models.trail import built_in, shipped
from fewlink.training.folder import FIT_FORMAT, run_id
from fewlink.verification.report import Verified

NOT_OURS = "is not a file that fewlink stores with a checksum"
NO_CHECKSUM = "is readable, but has no checksum to compare with"


def check_file(found: Verified, path: Path) -> None:
    """Check a file of any kind, except configurations and files of folders with a manifest."""
    if is_sqlite(path):
        _project(found, path)
    elif path.name.endswith(ranks.SUFFIX):
        found.kind = "ranks"
        found.check(lambda: _ranks(path))
    elif path.suffix == ".safetensors":
        _tensors(found, path)
    elif kind_of(path) is not None:
        _results(found, path)
    elif path.suffix == ".json":
        _json(found, path)
    else:
        found.unclear.append(f"{path}: {NOT_OURS}")


def _json(found: Verified, path: Path) -> None:
    content = found.check(lambda: read_json(path))
    if not isinstance(content, dict):
        found.unclear.append(f"{path}: {NOT_OURS}")
        return
    name = str(content.get("format", "")).partition("/")[0]
    if name == calibration.FORMAT.partition("/")[0]:
        found.kind = "calibration"
        found.check(lambda: calibration.open_calibration(path, run_id(path.parent)))
    elif name == FIT_FORMAT.partition("/")[0]:
        found.kind = "record of a fit"
        found.check(lambda: fit_record.read_record(path.parent))
    else:
        found.unclear.append(f"{path}: {NOT_OURS}")


def _results(found: Verified, path: Path) -> None:
    """Check each line of a file of results, and the ranks of its records, which lie beside it."""
    found.kind = "results"
    kind = kind_of(path)
    assert kind is not None
    records = []
    for _, result in found.check(lambda: list(each_line(kind, path))) or []:
        if isinstance(result, InputError):
            found.add(result)
        elif isinstance(result, Record):
            records.append(result)
    if kind is Record and ranks.ranks_file(path).exists():
        found.files += 1
        for record in records:
            found.check(lambda record=record: ranks.read_ranks(path, record))  # type: ignore[misc]
        ranked = found.check(lambda: ranks.ranked_records(ranks.ranks_file(path))) or set()
        missing = ranked - {ranks.identity(record) for record in records}
        if missing and not found.problems:
            problem = f"has the ranks of {len(missing)} records that {path.name} lacks"
            found.problems.append(f"{ranks.ranks_file(path)}: {problem}: restore {path.name} from a copy")


def _ranks(path: Path) -> None:
    """Check a file of ranks without its records."""
    ranks.ranked_records(path)
    if not path.with_name(records_of(path)).exists():
        raise InputError(path, f"has ranks without records: restore {records_of(path)} from a copy")


def records_of(path: Path) -> str:
    """The name of the file of records that belongs to a file of ranks."""
    return path.name.removesuffix(ranks.SUFFIX) + Record.suffix


def _tensors(found: Verified, path: Path) -> None:
    metadata: dict[str, str] = found.check(lambda: _metadata(path)) or {}
    if str(metadata.get("format", "")).startswith(state.FORMAT.partition("/")[0]):
        found.kind = "pretraining state"
        found.check(lambda: state.check_state(path))
    elif shipped.METADATA in metadata:
        found.kind = "weights of trail"
        digest = built_in.CHECKSUMS.get(path.name)
        found.check(lambda: shipped.read_weights(path.read_bytes(), str(path)))
        if digest is None or not path.resolve().is_relative_to(str(files("fewlink"))):
            found.unclear.append(f"{path}: {NO_CHECKSUM}")
        elif sha256_file(path) != digest:
            found.problems.append(f"{path}: differs from the weights that come with fewlink: install fewlink again")
    elif not found.problems:
        found.unclear.append(f"{path}: {NO_CHECKSUM}")


def _metadata(path: Path) -> dict[str, str]:
    with reading(path, "restore it from a copy"), safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def is_sqlite(path: Path) -> bool:
    """Whether a file begins as an SQLite database does."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _project(found: Verified, path: Path) -> None:
    """Check a project file: SQLite checks pages, indexes and constraints; then every event is checked."""
    found.kind = "project"

    def read() -> None:
        base = sqlite3.connect(schema.address_of(path, write=False), uri=True)
        try:
            base.execute("BEGIN")  # one state of the file: others may be writing
            application = base.execute("PRAGMA application_id").fetchone()[0]
            version = base.execute("PRAGMA user_version").fetchone()[0]
            if application != APPLICATION:
                found.kind = "unknown"
                raise InputError(path, "cannot be read (an SQLite file of another program)")
            if version > schema.FORMAT:
                raise InputError(path, f"was written by a newer version of fewlink (format {version}): update fewlink")
            if problem := schema.problem_of(base):
                found.problems.append(f"{path}: {problem}")
            broken = [row[:2] for row in base.execute("PRAGMA foreign_key_check")]
            found.problems += [f"{path}: row {row} of {name} refers to a missing row" for name, row in broken[:10]]
            for number, time in base.execute("SELECT number, time FROM event"):
                try:
                    datetime.fromisoformat(time)
                except (ValueError, TypeError):
                    found.problems.append(f"{path}: event {number} has an invalid time, {time!r}")
        except sqlite3.OperationalError as error:
            if "readonly" not in str(error):
                raise
            raise InputError(path, "was left by a killed writer: `fewlink project list` opens and mends it") from None
        finally:
            base.close()

    try:
        found.check(read)
    except UnicodeDecodeError as error:
        found.problems.append(f"{path}: has text that is not UTF-8 ({error.reason})")
