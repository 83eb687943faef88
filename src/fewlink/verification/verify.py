"""Check any folder or file of fewlink against its checksums, and whether its parts belong together. Nothing is written.

A folder is checked file by file, then opened. A run is checked with its parts (vectors, checkpoints, calibration,
deployed graph) and the benchmark it names; results line by line, with their ranks; a project by SQLite and event by
event. What is not a kind of fewlink's, cannot be read, or has a newer format is `unknown`: neither whole nor damaged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fewlink.core.errors import InputError, reading
from fewlink.core.storage import MANIFEST, open_folder, read_json, sha256_file
from fewlink.data import benchmark as benchmarks
from fewlink.data.benchmark import Benchmark
from fewlink.embeddings import table
from fewlink.embeddings.convert import check_finite
from fewlink.evaluation import ranks
from fewlink.evaluation.records import kind_of
from fewlink.fitting import record as fit_record
from fewlink.graph import graph as graphs
from fewlink.graph.graph import Graph
from fewlink.linker import calibration, saving
from fewlink.training import checkpoints, metrics_log, run
from fewlink.training.checkpoints import BENCHMARK, CONFIG, DEPLOYED, FIT
from fewlink.training.run import EMBEDDINGS, Deployed, RunConfig
from fewlink.verification.files import check_file, is_sqlite, records_of
from fewlink.verification.report import WHOLE, Verified

KINDS = {  # of folders, by their format
    graphs.FORMAT: "graph",
    benchmarks.FORMAT: "benchmark",
    table.FORMAT: "embeddings",
    checkpoints.FORMAT: "checkpoint",
    run.DEPLOYED_FORMAT: "deployed graph of a run",
    saving.FORMAT: "saved model",
}
MARKS = {MANIFEST, CONFIG, FIT}


def verify(path: str | Path) -> list[Verified]:
    """What is stored at a path: one result, or one for each run, folder and file of results in a larger folder."""
    path = Path(path)
    if not os.path.exists(path):
        return [Verified(path, unclear=[f"{path}: does not exist"])]
    if not path.is_dir():
        return [_file(path)]
    if (path / MANIFEST).exists() or (path / CONFIG).exists() or (path / FIT).exists():
        return [_folder(path)]
    return list(_inside(path)) or [Verified(path, unclear=[f"{path}: holds nothing that fewlink stores"])]


def _inside(folder: Path) -> Iterator[Verified]:
    """What lies in a folder that is none of ours, such as one of several runs or of results."""
    if any(folder.glob("*.npy")) or (folder / checkpoints.WEIGHTS).exists():
        yield Verified(folder, "folder", unclear=[f"{folder}: has arrays, but no {MANIFEST} to compare them with"])
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir():
            yield from (_inside(path) if not any((path / name).exists() for name in MARKS) else [_folder(path)])
        elif path.name.endswith(ranks.SUFFIX) and path.with_name(records_of(path)).exists():
            continue  # checked with their records
        elif kind_of(path) is not None or path.name.endswith((ranks.SUFFIX, ".safetensors")) or is_sqlite(path):
            found = _file(path)
            if found.kind != "unknown":  # other files may lie beside ours
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
    """The manifest of a folder, whole and of a known format, whatever became of the files."""
    content = read_json(path / MANIFEST)
    name = str(content.get("format")) if isinstance(content, dict) else None
    if name not in KINDS:
        newer = re.fullmatch(r"(fewlink-[\w-]+)/(\d{1,9})", str(name))
        if newer and any(known.startswith(f"{newer[1]}/") for known in KINDS):
            raise InputError(path, f"was written by a newer version of fewlink (format {name}): update fewlink")
        raise InputError(path / MANIFEST, f"cannot be read (format {name!r} is none of fewlink's folders)")
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
        actual = found.check(lambda file=file: _stat(file))  # type: ignore[misc]
        if actual is not None and actual != (size, digest):
            how = "has another length" if actual[0] != size else "has another checksum"
            found.problems.append(f"{file}: {how} than when it was written")
    listed = {folder / name for name in files}
    there = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    more = [path for path in there if path not in listed and path.name != MANIFEST]
    more = [p for p in more if not any(part.startswith(".") for part in p.relative_to(folder).parts)]
    if more:
        found.notes.append(f"{len(more)} files are not of the folder and were not checked, such as {more[0]}")


def _stat(file: Path) -> tuple[int, str]:
    with reading(file, "make it again"):
        return file.stat().st_size, sha256_file(file)


def _opened(path: Path, format: str, found: Verified) -> None:
    """Open a folder whose files are whole: their content has to fit together too."""
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
        raise InputError(path, "has other content than its fingerprint says: make the folder again")
    return opened


def _benchmark(path: Path) -> Benchmark:
    benchmark = Benchmark.open(path)
    _same_fingerprint(benchmark.graph, path / "graph")
    return _same_fingerprint(benchmark, path)  # type: ignore[no-any-return]


def _checkpoint(path: Path) -> None:
    """A folder `best` or `last` of the run that it lies in."""
    load = {"best": checkpoints.load_best, "last": checkpoints.load_last}.get(path.name)
    if load is not None and (path.parent / CONFIG).exists():
        load(path.parent)


def _run(found: Verified, path: Path) -> None:
    """A run, or a saved model, with its parts."""
    if found.kind == "unknown":
        found.kind = "run"
    config = found.check(lambda: RunConfig.read(path))
    found.files += 1
    if config is None:
        if not (path / CONFIG).exists():
            found.problems, found.unclear = [], [f"{path}: has no {CONFIG}: training or fitting has not begun"]
        return
    found.kind = f"{found.kind} of {config.settings.model}"
    for name in (EMBEDDINGS, "best", "last", DEPLOYED, BENCHMARK):
        if (path / name / MANIFEST).exists() and found.kind.startswith("run"):  # a saved model lists all its files
            part = _folder(path / name)
            found.files += part.files
            for mine, theirs in ((found.problems, part.problems), (found.unclear, part.unclear)):
                mine += [each for each in theirs if each not in mine]
        elif (path / name).is_dir() and not (path / name / MANIFEST).exists():
            found.problems.append(f"{path / name / MANIFEST}: is missing")
    if (path / EMBEDDINGS).exists() or config.embeddings["dim"]:
        found.check(lambda: run.vectors_of(path))
    found.check(lambda: checkpoints.load_best(path))
    found.check(lambda: Deployed.open(path))
    for name in checkpoints.MISSING:
        found.check(lambda name=name: checkpoints.check_complete(path, name))  # type: ignore[misc]
    calibrated, metrics = path / checkpoints.CALIBRATION, path / metrics_log.METRICS
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
    with reading(file, "training goes on without it: remove it to begin a new one"):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            if metrics_log.metrics_line(line) is None:
                raise InputError(file, "is not a line of metrics: the run itself is not concerned", number)


def _benchmark_of(found: Verified, path: Path, config: RunConfig) -> None:
    """The benchmark that a run names, if it lies elsewhere."""
    source = found.check(lambda: run.benchmark_place(path))
    if source is None:
        return
    place = Path(source)
    inside = place.is_relative_to(path)
    if not (place / MANIFEST).exists():
        if not inside and os.path.isabs(place):
            found.notes.append(f"its benchmark {config.benchmark['name']} is not at {place} any more")
        return
    if not inside:
        part = _folder(place)
        found.files += part.files
        found.problems += part.problems
        found.unclear += part.unclear
        if part.status != WHOLE:
            return
    benchmark = found.check(lambda: Benchmark.open(place, verify=False))
    known = config.benchmark["fingerprint"]
    if benchmark is not None and known not in (benchmark.fingerprint, *benchmark.extended_from):
        text = f"{place}: is another benchmark than the one that the run was trained on ({config.benchmark['name']})"
        (found.problems if inside else found.notes).append(text)


def _file(path: Path) -> Verified:
    if path.name == MANIFEST or (path.name == CONFIG and not (path.parent / MANIFEST).exists()):
        return _folder(path.parent)
    found = Verified(path, files=1)
    if path.name != CONFIG and not (path.parent / MANIFEST).exists():
        check_file(found, path)
        return found
    whole = _folder(path.parent)  # a part of a folder
    found.kind = f"part of a {whole.kind}"
    found.problems = [each for each in whole.problems if each.startswith((f"{path}:", f"{path.parent / MANIFEST}:"))]
    found.unclear = whole.unclear
    return found


def verify_all(paths: list[Path]) -> list[Verified]:
    return [found for path in paths for found in verify(path)]
