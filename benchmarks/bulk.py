"""Bulk work on one and two workers with one thread each: the time that was estimated, the time it took, equal files.

python benchmarks/bulk.py nell-one concept:musicartistgenre attack campaign_uses_tool … [--heads 600] [--workers 1 2]
    [--fast]

Graphs and a relation of each. `complete` ranks tails for the first heads that it would choose. `before` are the seconds
until the estimate is told: reading the question, timing a sample, the start of the workers. `actual` begins there.
`core seconds` are those of this process and its workers for both. `load` is the number of processes that wanted a core
in the minute before: if the machine does other work, `actual` says little about speed, and it may change after the
estimate. `machine` has two plain computations in one process and in two at once, which is the most that two workers can
gain: products of small matrices, and rows gathered from a table larger than the caches. Writes records/bulk.json or,
with `--fast`, records/bulk-fast.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fewlink.core.engine import Engine, Processes, ThisProcess
from fewlink.core.memory import keep_freed
from fewlink.linker import Linker, load
from fewlink.linker.complete import FAST_EDGES, plausible_heads
from measure import print_table, write_record


def completed(linker: Linker, relation: str, heads: list[str], workers: int, out: Path) -> dict[str, Any]:
    """Complete a relation, and compare the estimate with the time it took."""
    told: list[tuple[float, float]] = []
    load, used, begin = os.getloadavg()[0], core_seconds(), time.monotonic()

    def note(seconds: float, workers: int) -> None:
        told.append((seconds, time.monotonic()))

    engine: Engine = ThisProcess(note) if workers == 1 else Processes(workers, note, min_seconds=0)
    linker.complete(relation=relation, heads=heads, out=out, engine=engine)
    (estimated, start), end = told[0], time.monotonic()
    return {
        "graph": linker.benchmark.name,
        "relation": relation,
        "heads": len(heads),
        "workers": workers,
        "load": load,
        "before": start - begin,
        "estimated": estimated,
        "actual": end - start,
        "actual / estimated": (end - start) / estimated,
        "core seconds": core_seconds() - used,
    }


def core_seconds() -> float:
    """The seconds that cores worked for this process and for workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def multiply() -> None:
    left, right = torch.ones(256, 256), torch.ones(256, 256)
    for _ in range(10_000):
        left @ right


def gather() -> None:
    table, rows = torch.ones(70_000, 128), torch.randint(70_000, (400_000,))
    for _ in range(20):
        table.index_select(0, rows)


def timed(work: Callable[[], None], ready: Any, seconds: Any) -> None:
    """Do the work as soon as all processes are ready, after once to warm up, and tell the seconds that it takes."""
    torch.set_num_threads(1)
    keep_freed()
    work()
    ready.wait()
    begin = time.monotonic()
    work()
    seconds.put(time.monotonic() - begin)


def side_by_side(work: Callable[[], None], count: int) -> float:
    """The seconds that so many processes take to do the same at once."""
    spawn = multiprocessing.get_context("spawn")
    ready, seconds = spawn.Barrier(count), spawn.Queue()
    processes = [spawn.Process(target=timed, args=(work, ready, seconds)) for _ in range(count)]
    for process in processes:
        process.start()
    found: list[float] = [seconds.get() for _ in processes]
    for process in processes:
        process.join()
    return max(found)


def machine() -> list[dict[str, Any]]:
    """How much more two processes do in the same time than one."""
    rows = []
    for work in (multiply, gather):
        one, two = (min(side_by_side(work, count) for _ in range(3)) for count in (1, 2))
        rows.append({"work": work.__name__, "one": one, "two at once": two, "times as much": 2 * one / two})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", metavar="GRAPH RELATION")
    parser.add_argument("--heads", type=int, default=600)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--fast", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed()  # as the command does
    plain = machine()
    print_table(plain)
    rows = []
    for graph, relation in zip(options.graphs[::2], options.graphs[1::2], strict=True):
        linker = load(graph)
        if options.fast:
            linker.limit_edges(FAST_EDGES)
        ids = plausible_heads(linker.graph, linker.resolve(relation=relation).references)[: options.heads]
        heads = [linker.graph.entities[int(head)] for head in ids]
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / f"{workers}.tsv" for workers in options.workers]
            for workers, file in zip(options.workers, files, strict=True):
                rows.append(completed(linker, relation, heads, workers, file))
                print(rows[-1], flush=True)
            assert len({file.read_bytes() for file in files}) == 1, "the files differ"
    print_table(rows)
    write_record("bulk-fast" if options.fast else "bulk", {"machine": plain, "rows": rows})


if __name__ == "__main__":
    main()
