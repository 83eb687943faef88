"""Bulk work on one and two workers with one thread each: the time that was estimated, the time it took, equal files.

python benchmarks/bulk.py nell-one concept:musicartistgenre attack campaign_uses_tool … [--heads 600] [--workers 1 2]
    [--fast]

Graphs and a relation of each. `complete` ranks tails for the first heads that it would choose. `actual` begins when the
estimate is told, after the start of the workers. `core seconds` are those of this process and its workers, with what
they do before that. `load` is the number of processes that wanted a core in the minute before: if the machine does
other work, `actual` says little about speed, and it may change after the estimate. Writes records/bulk.json or, with
`--fast`, records/bulk-fast.json.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from fewlink.core.engine import Engine, Processes, ThisProcess
from fewlink.linker import Linker, load
from fewlink.linker.complete import FAST_EDGES, plausible_heads
from measure import print_table, write_record


def completed(linker: Linker, relation: str, heads: list[str], workers: int, out: Path) -> dict[str, Any]:
    """Complete a relation, and compare the estimate with the time it took."""
    told: list[tuple[float, float]] = []
    before, used = os.getloadavg()[0], core_seconds()

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
        "load": before,
        "estimated": estimated,
        "actual": end - start,
        "actual / estimated": (end - start) / estimated,
        "core seconds": core_seconds() - used,
    }


def core_seconds() -> float:
    """The seconds that cores worked for this process and for workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", metavar="GRAPH RELATION")
    parser.add_argument("--heads", type=int, default=600)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--fast", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
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
    write_record("bulk-fast" if options.fast else "bulk", {"rows": rows})


if __name__ == "__main__":
    main()
