"""The cost of a call in its own process; tables and records of the results."""

from __future__ import annotations

import importlib
import json
import os
import platform
import resource
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any

RECORDS = Path(os.environ.get("FEWLINK_BENCH_RECORDS") or Path(__file__).parent / "records")
PACKAGES = ("fewlink", "numpy", "pandas", "pykeen", "torch")


@dataclass(frozen=True)
class Cost:
    """Wall seconds, CPU seconds of all threads and child processes, peak resident memory, and the returned value."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    value: Any


def in_fresh_process(function: Callable[..., Any], *args: Any, imports: Sequence[str] = ()) -> Cost:
    """Call a module-level `function(*args)` in a new process; `imports` are loaded before timing.

    On Linux a new process starts with the peak memory of its parent: keep heavy imports out of the caller.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_measured, function, args, imports).result()


def best_of(repeats: int, function: Callable[..., Any], *args: Any, imports: Sequence[str] = ()) -> Cost:
    """The fastest of several fresh processes."""
    costs = [in_fresh_process(function, *args, imports=imports) for _ in range(repeats)]
    return min(costs, key=lambda cost: cost.seconds)


def _measured(function: Callable[..., Any], args: Sequence[Any], imports: Sequence[str]) -> Cost:
    for name in imports:
        importlib.import_module(name)
    cpu = _cpu_seconds()
    start = time.perf_counter()
    value = function(*args)
    seconds = time.perf_counter() - start
    cpu_seconds = _cpu_seconds() - cpu
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(seconds, cpu_seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, value)


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def gpu_kernels(work: Callable[[], Any], steps: int) -> dict[str, float]:
    """The number of kernels per step of a call, and their total time."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    work()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        work()
        torch.cuda.synchronize()
    ran = [event for event in profiled.key_averages() if event.device_type.name != "CPU"]
    count = sum(event.count for event in ran) / steps
    busy = sum(event.self_device_time_total for event in ran) / steps
    return {"kernels a step": count, "microseconds in them": busy, "each": busy / count}


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same keys as an aligned table; numbers with three digits or with thousands separated."""
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        first, *others = (text.rjust(width) for text, width in zip(row, widths, strict=True))
        print("  ".join([first.strip().ljust(widths[0]), *others]))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def write_record(name: str, results: Mapping[str, Any], *, quiet: bool = False) -> Path:
    """Store results, the command and the versions of packages as records/NAME.json; print its path unless `quiet`.

    The command has the names of files and folders without the folders that they are in.

    The environment variable FEWLINK_BENCH_RECORDS sets another folder for the records.
    """
    RECORDS.mkdir(parents=True, exist_ok=True)
    path = RECORDS / f"{name}.json"
    words = [Path(word).name or word if os.path.exists(word) else word for word in sys.argv]
    record = {
        "date": date.today().isoformat(),
        "command": shlex.join(words),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": dict(_versions(PACKAGES)),
        "results": results,
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if not quiet:
        print(f"recorded in {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return path


def read_record(name: str) -> dict[str, Any] | None:
    """The results stored as records/NAME.json, or None."""
    path = RECORDS / f"{name}.json"
    return json.loads(path.read_text("utf-8"))["results"] if path.exists() else None


def _versions(packages: Iterable[str]) -> Iterable[tuple[str, str]]:
    for package in packages:
        if package == "fewlink":
            import fewlink

            yield package, fewlink.__version__  # of the imported source, not of an older installation
            continue
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
