"""Pretraining of a large graph: triples/s and memory, and on a GPU its memory-bound phases beside a copy.

python benchmarks/large_pretraining.py BENCH [--device cuda] [--dim 50] [--batch-size 4096 65536] [--seconds 20]

ComplEx with a shared pool of negatives and Adagrad. A triple in one direction counts once. The record goes to
records/large-pretraining-DEVICE.json.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fewlink.embeddings import EmbeddingSettings
from fewlink.embeddings.batches import Batch
from fewlink.embeddings.trainer import Run
from fewlink.evaluation.records import hardware
from fewlink.tasks import open_benchmark
from fewlink.tasks.triples import training_triples
from fewlink.threads import ahead
from measure import gpu_seconds, print_table, write_record

WARM_UP = 5  # steps before the clock starts


def speed(run: Run, seconds: float) -> dict[str, float]:
    """Triples a second from the first batch that is asked for to the last that is done, and batches alone."""

    def stream() -> Iterator[Batch]:
        batches = run.batches.epoch(0)
        return batches if run.device == "cpu" else ahead(batches)

    done, began = 0, 0.0
    for number, batch in enumerate(stream()):
        if number == WARM_UP:
            _wait(run.device)
            began = time.perf_counter()
        run.step(batch.to(run.device), 1e-3)
        if number >= WARM_UP:
            done += len(batch)
            if time.perf_counter() - began > seconds:
                break
    _wait(run.device)
    whole = time.perf_counter() - began
    began, made = time.perf_counter(), 0
    for batch in run.batches.epoch(0):
        made += len(batch)
        if time.perf_counter() - began > seconds / 4:
            break
    alone = time.perf_counter() - began
    return {"triples/s": done / whole, "batches alone, triples/s": made / alone}


def phases(run: Run) -> list[dict[str, Any]]:
    """The phases of a step that only move memory: bytes a second, and the share of what a copy moves."""
    batch = next(run.batches.epoch(0)).to(run.device)
    tables = run.tables
    table, state = tables.vectors["entities"], tables.states["entities"]
    row = table.shape[1] * table.element_size()
    rows = table.index_select(0, batch.entities)
    merged = torch.zeros(len(batch.unique), table.shape[1], device=run.device)
    big = torch.empty(1 << 28, device=run.device)
    other = torch.empty_like(big)

    def update() -> None:
        tables.optimizer.step(table, state, merged, 0.0, batch.unique)

    work: list[tuple[str, Callable[[], Any], int]] = [
        ("copy of 1 GiB", lambda: other.copy_(big), 2 * big.nbytes),
        ("gather rows", lambda: table.index_select(0, batch.entities), 2 * len(batch.entities) * row),
        ("merge gradients", lambda: merged.zero_().index_add_(0, batch.slots, rows), 3 * len(batch.slots) * row),
        # squares: read, written beside, read, written; quotient written, read; table read, written; gradient read twice
        ("update rows", update, 10 * len(batch.unique) * row),
    ]
    found = [{"phase": name, "bytes": size, "bytes/s": size / gpu_seconds(job)} for name, job, size in work]
    return [row | {"share of the copy": row["bytes/s"] / found[0]["bytes/s"]} for row in found]


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--batch-size", type=int, nargs="+", default=[4096, 65536])
    parser.add_argument("--negatives", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    benchmark = open_benchmark(given.bench)
    data = training_triples(benchmark)
    rows, moved = [], []
    for size in given.batch_size:
        settings = EmbeddingSettings(
            model="complex",
            dim=given.dim,
            batch_size=size,
            negatives=given.negatives,
            corrupt="shared",
            optimizer="adagrad",
            device=given.device,
        )
        run = Run(data.triples, len(benchmark.graph.entities), len(data.relations), settings)
        rows.append({"batch": size, **speed(run, given.seconds)})
        if given.device != "cpu":
            moved += [{"batch": size, **row} for row in phases(run)]
        del run
    print_table(rows)
    if moved:
        print_table(moved)
    found = {"peak bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if given.device != "cpu":
        found["peak bytes on the GPU"] = torch.cuda.max_memory_allocated()
    print_table([found])
    about = {"benchmark": benchmark.name, "triples": len(data.triples), "dim": given.dim, "negatives": given.negatives}
    results = {"hardware": hardware(), **about, "rows": rows, "phases": moved, **found}
    write_record(f"large-pretraining-{given.device}", results)


if __name__ == "__main__":
    main()
