"""Bulk work on one and two workers with one thread each: the time it took, and equal files.

python benchmarks/bulk.py nell-one concept:musicartistgenre attack campaign_uses_tool … [--heads 600] [--workers 1 2]

Graphs and a relation of each. `complete` ranks tails for the first heads that it would choose. `seconds` count from the
question to the file, the start of the workers included. `load` is the number of processes that wanted a core in the
minute before: the cores must be idle. Writes records/bulk.json.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from fewlink.core.engine import Engine
from fewlink.core.machine import keep_freed
from fewlink.linker import Linker, load
from fewlink.linker.complete import plausible_heads
from measure import print_table, write_record


def completed(linker: Linker, relation: str, heads: list[str], workers: int, out: Path) -> dict[str, Any]:
    """Complete a relation, and count the seconds."""
    load = os.getloadavg()[0]
    begin = time.monotonic()
    linker.complete(relation=relation, heads=heads, out=out, engine=Engine(f"processes:{workers}", seconds_here=0))
    return {
        "graph": linker.benchmark.name,
        "relation": relation,
        "heads": len(heads),
        "workers": workers,
        "load": load,
        "seconds": time.monotonic() - begin,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", metavar="GRAPH RELATION")
    parser.add_argument("--heads", type=int, default=600)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed()  # as the command does
    rows = []
    for graph, relation in zip(options.graphs[::2], options.graphs[1::2], strict=True):
        linker = load(graph)
        ids = plausible_heads(linker.graph, linker.resolve(relation=relation).references)[: options.heads]
        heads = [linker.graph.entities[int(head)] for head in ids]
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / f"{workers}.tsv" for workers in options.workers]
            for workers, file in zip(options.workers, files, strict=True):
                rows.append(completed(linker, relation, heads, workers, file))
                print(rows[-1], flush=True)
            assert len({file.read_bytes() for file in files}) == 1, "the files differ"
    print_table(rows)
    write_record("bulk", {"rows": rows})


if __name__ == "__main__":
    main()
