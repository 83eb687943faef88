"""Checks of any folder or file of fewlink: against its checksums, and whether its contents belong together.

A folder is checked file by file, then opened. A run is checked with its vectors, checkpoints, calibration and deployed
graph, and with the benchmark it names; results line by line, with their ranks; a project by SQLite and event by event.
A path that fewlink did not write, that cannot be read, or that has the format of another version is `unknown`, neither
whole nor damaged. Nothing is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fewlink.core.errors import InputError, reading
from fewlink.core.storage import MANIFEST, open_folder, read_json, sha256_file
from fewlink.evaluation import ranks
from fewlink.evaluation.records import kind_of
from fewlink.fitting import record as fit_record
from fewlink.graph import graph as graphs
from fewlink.graph.graph import Graph
from fewlink.linker import calibration, saving
from fewlink.models.embeddings import table
from fewlink.models.embeddings.convert import check_finite
from fewlink.tasks import benchmark as benchmarks
from fewlink.tasks.benchmark import Benchmark
from fewlink.training import checkpoints, metrics_log, run
from fewlink.training.folder import (
    BENCHMARK,
    CALIBRATION,
    CONFIG,
    DEPLOYED,
    EMBEDDINGS,
    FIT,
    OPTIONAL,
    check_complete,
)
from fewlink.training.run import Deployed, RunConfig
from fewlink.verification.files import check_file, is_sqlite, records_of
from fewlink.verification.report import WHOLE, Verified

KINDS = {  # of folders, by format
    graphs.FORMAT: "graph",
    benchmarks.FORMAT: "benchmark",
    table.FORMAT: "embeddings",
    checkpoints.FORMAT: "checkpoint",
    run.DEPLOYED_FORMAT: "deployed graph of a run",
    saving.FORMAT: "saved model",
}
MARKER_FILES = (MANIFEST, CONFIG, FIT)  # a folder with one of these is a unit


def verify(path: str | Path) -> list[Verified]:
    """Check a path: one result, or one for each run, folder and file of results inside a larger folder."""
    path = Path(path)
    if not os.path.exists(path):
        return [Verified(path, unclear=[f"{path}: does not exist"])]
    if not path.is_dir():
        return [_file(path)]
    if _is_unit(path):
        return [_folder(path)]
    return list(_inside(path)) or [Verified(path, unclear=[f"{path}: holds nothing that fewlink stores"])]


def _is_unit(folder: Path) -> bool:
    return any((folder / name).exists() for name in MARKER_FILES)


def _inside(folder: Path) -> Iterator[Verified]:
    """Check the contents of a folder that is not a unit itself, such as a folder of runs or of results."""
    if any(folder.glob("*.npy")) or (folder / checkpoints.WEIGHTS).exists():
        yield Verified(folder, "folder", unclear=[f"{folder}: has arrays, but no {MANIFEST} to compare them with"])
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir():
            yield from [_folder(path)] if _is_unit(path) else _inside(path)
        elif path.name.endswith(ranks.SUFFIX) and path.with_name(records_of(path)).exists():
            continue  # checked with its records
        elif kind_of(path) is not None or path.name.endswith((ranks.SUFFIX, ".safetensors")) or is_sqlite(path):
            found = _file(path)
            if found.kind != "unknown":  # other programs' files may lie beside fewlink's
                yield found


def _folder(path: Path) -> Verified:
    found = Verified(path)
    if (path / MANIFEST).exists():
        manifest = found.check(lambda: _read_manifest(path))
        if manifest is None:
            found.kind = "folder"
            return found
        found.kind = KINDS[manifest["format"]]
        _files_of(found, path, manifest["files"])
        if not found.problems:
            found.check(lambda: _opened(path, manifest["format"], found))
        return found
    _run(found, path)
    return found


def _read_manifest(path: Path) -> dict[str, Any]:
    """The format and files of a manifest, whatever the state of the files. Raise if it is damaged or unknown."""
    content = read_json(path / MANIFEST)
    name = str(content.get("format")) if isinstance(content, dict) else None
    if name not in KINDS:
        newer = re.fullmatch(r"(fewlink-[\w-]+)/(\d{1,9})", str(name))
        if newer and any(known.startswith(f"{newer[1]}/") for known in KINDS):
            raise InputError(path, f"was written by a newer version of fewlink (format {name}): update fewlink")
        raise InputError(path / MANIFEST, f"cannot be read (unknown format {name!r})")
    try:
        open_folder(path, str(name), verify=False)
    except InputError as error:
        if error.path == path / MANIFEST:
            raise
    with reading(path / MANIFEST, "make the folder again"):
        files = {str(each): (file["bytes"], file["sha256"]) for each, file in content["files"].items()}
    return {"format": str(name), "files": files}


def _files_of(found: Verified, folder: Path, files: dict[str, tuple[int, str]]) -> None:
    """Compare every file of a folder with its manifest."""
    for name, (size, digest) in files.items():
        file = folder / name
        found.files += 1
        if not file.is_file():
            found.problems.append(f"{file}: is missing")
            continue
        actual = found.check(lambda file=file: _size_and_checksum(file))  # type: ignore[misc]
        if actual is not None and actual != (size, digest):
            changed = "length" if actual[0] != size else "checksum"
            found.problems.append(f"{file}: has another {changed} than when it was written")
    listed = {folder / name for name in files}
    present = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    others = [path for path in present if path not in listed and path.name != MANIFEST]
    others = [path for path in others if not any(name.startswith(".") for name in path.relative_to(folder).parts)]
    if others:
        found.notes.append(f"{len(others)} files are not in the manifest and were not checked, such as {others[0]}")


def _size_and_checksum(file: Path) -> tuple[int, str]:
    with reading(file, "make it again"):
        return file.stat().st_size, sha256_file(file)


def _opened(path: Path, format: str, found: Verified) -> None:
    """Open a folder whose files are whole, to check that their contents fit together."""
    if format == graphs.FORMAT:
        _same_fingerprint(Graph.open(path), path)
    elif format == benchmarks.FORMAT:
        _benchmark(path)
    elif format == table.FORMAT:
        vectors = table.Embeddings.open(path)
        check_finite(vectors.entities, "entities", None, path)
        check_finite(vectors.relations, "relations", None, path)
    elif format == checkpoints.FORMAT:
        _checkpoint(path)
    elif format == run.DEPLOYED_FORMAT:
        _benchmark(path / "benchmark")
    else:
        _run(found, path)


def _same_fingerprint(opened: Graph | Benchmark, path: Path) -> Any:
    stored = opened.__dict__.pop("fingerprint")
    if opened.fingerprint != stored:
        raise InputError(path, "has content that does not match its fingerprint: make the folder again")
    return opened


def _benchmark(path: Path) -> Benchmark:
    benchmark = Benchmark.open(path)
    _same_fingerprint(benchmark.graph, path / "graph")
    return _same_fingerprint(benchmark, path)  # type: ignore[no-any-return]


def _checkpoint(path: Path) -> None:
    """Check a folder `best` or `last` against the run it lies in."""
    load = {"best": checkpoints.load_best, "last": checkpoints.load_last}.get(path.name)
    if load is not None and (path.parent / CONFIG).exists():
        load(path.parent)


def _run(found: Verified, path: Path) -> None:
    """Check a run or a saved model, with its folders and files."""
    if found.kind == "unknown":
        found.kind = "run"
    config = found.check(lambda: RunConfig.read(path))
    found.files += 1
    if config is None:
        if not (path / CONFIG).exists():
            found.problems = []
            found.unclear = [f"{path}: has no {CONFIG}, so training or fitting has not begun"]
        return
    found.kind = f"{found.kind} of {config.settings.model}"
    for name in (EMBEDDINGS, "best", "last", DEPLOYED, BENCHMARK):
        if (path / name / MANIFEST).exists() and found.kind.startswith(
            "run"
        ):  # the manifest of a saved model lists all files
            inner = _folder(path / name)
            found.files += inner.files
            found.problems += [problem for problem in inner.problems if problem not in found.problems]
            found.unclear += [reason for reason in inner.unclear if reason not in found.unclear]
        elif (path / name).is_dir() and not (path / name / MANIFEST).exists():
            found.problems.append(f"{path / name / MANIFEST}: is missing")
    if (path / EMBEDDINGS).exists() or config.embeddings["dim"]:
        found.check(lambda: run.vectors_of(path))
    found.check(lambda: checkpoints.load_best(path))
    found.check(lambda: Deployed.open(path))
    for name in OPTIONAL:
        found.check(lambda name=name: check_complete(path, name))  # type: ignore[misc]
    calibrated = path / CALIBRATION
    metrics = path / metrics_log.METRICS
    for file, read in (
        (calibrated, lambda: calibration.open_calibration(calibrated, config.id)),
        (path / FIT, lambda: fit_record.read_record(path)),
        (metrics, lambda: _metrics(metrics)),
    ):
        if file.exists():
            found.files += 1
            found.check(read)
    _benchmark_of(found, path, config)


def _metrics(file: Path) -> None:
    with reading(file, "remove it: training continues without it"):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            if metrics_log.metrics_line(line) is None:
                raise InputError(
                    file, "is not a line of metrics: remove the line; the run itself is unaffected", number
                )


def _benchmark_of(found: Verified, path: Path, config: RunConfig) -> None:
    """Check the benchmark that a run names."""
    source = found.check(lambda: run.benchmark_source(path))
    if source is None:
        return
    place = Path(source)
    inside = place.is_relative_to(path)
    if not (place / MANIFEST).exists():
        if not inside and os.path.isabs(place):
            found.notes.append(f"its benchmark {config.benchmark['name']} is no longer at {place}")
        return
    if not inside:
        outer = _folder(place)
        found.files += outer.files
        found.problems += outer.problems
        found.unclear += outer.unclear
        if outer.status != WHOLE:
            return
    benchmark = found.check(lambda: Benchmark.open(place, verify=False))
    known = config.benchmark["fingerprint"]
    if benchmark is not None and known not in (benchmark.fingerprint, *benchmark.extended_from):
        lines = found.problems if inside else found.notes
        lines.append(f"{place}: is not the benchmark that the run was trained on ({config.benchmark['name']})")


def _file(path: Path) -> Verified:
    if path.name == MANIFEST or (path.name == CONFIG and not (path.parent / MANIFEST).exists()):
        return _folder(path.parent)
    found = Verified(path, files=1)
    if path.name != CONFIG and not (path.parent / MANIFEST).exists():
        check_file(found, path)
        return found
    folder = _folder(path.parent)
    found.kind = f"part of a {folder.kind}"
    prefixes = (f"{path}:", f"{path.parent / MANIFEST}:")
    found.problems = [problem for problem in folder.problems if problem.startswith(prefixes)]
    found.unclear = folder.unclear
    return found


def verify_all(paths: list[Path]) -> list[Verified]:
    """Check several paths."""
    return [found for path in paths for found in verify(path)]
