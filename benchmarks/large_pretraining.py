"""Pretraining of a large graph: triples/s over whole epochs and memory, and on a GPU how near it comes to its limit.

python benchmarks/large_pretraining.py BENCH [--device cuda] [--dim 50] [--batch-size 4096 65536] [--seconds 5]

ComplEx with a shared pool of negatives and Adagrad. A triple in one direction counts once. The record goes to
records/large-pretraining-DEVICE.json.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import torch

from fewlink.data import open_benchmark
from fewlink.data.triples import training_triples
from fewlink.embeddings import EmbeddingSettings
from fewlink.embeddings.batches import Batch
from fewlink.embeddings.losses import softmax
from fewlink.embeddings.trainer import EmbeddingTrainer
from fewlink.evaluation.records import hardware
from measure import gpu_kernels, gpu_seconds, print_table, write_record

AT_ONCE = 10  # calls between two looks at the clock, so that their launching is not what is measured


def speed(trainer: EmbeddingTrainer, seconds: float) -> float:
    """Triples a second over whole epochs after a first one, everything counted that an epoch does."""
    trainer.epoch()
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        trainer.epoch()
        done += trainer.batches.examples
    return done / (time.perf_counter() - began)


def limit(trainer: EmbeddingTrainer, batch: Batch, copied: float) -> float:
    """Triples a second if a step were no more than its three products, at their own speed, and the fewest bytes.

    Those are: scores read and written by a softmax between the products; each row gathered, read and written, and its
    gradient written and read; of rows that differ, vector and state read and written.
    """
    size, pool = len(batch), len(batch.entities) - 2 * len(batch)
    queries, others = (torch.randn(n, trainer.settings.dim, device=trainer.device) for n in (size, pool))
    slopes = queries @ others.T

    def products() -> None:
        torch.mm(queries, others.T, out=slopes)
        torch.mm(slopes, others, out=queries)
        torch.mm(slopes.T, queries, out=others)

    rows = 4 * len(batch.entities) + 4 * len(batch.unique)
    moved = 4 * 2 * size * pool + 4 * trainer.settings.dim * rows
    return size / (gpu_seconds(products) + moved / copied)


def kernels(trainer: EmbeddingTrainer) -> dict[str, float]:
    """The kernels of one replayed step."""
    epochs = trainer._graph
    assert epochs is not None

    def replay() -> None:
        epochs.at.zero_()
        for _ in range(AT_ONCE):
            epochs.graph.replay()

    return gpu_kernels(replay, AT_ONCE)


def phases(trainer: EmbeddingTrainer, batch: Batch) -> list[dict[str, Any]]:
    """The phases of a step that only move memory: bytes a second, and the share of what a copy moves."""
    tables = trainer.tables
    table, state = tables.vectors["entities"], tables.states["entities"]
    row = table.shape[1] * table.element_size()
    rows = table.index_select(0, batch.entities)
    merged = torch.zeros(len(batch.unique), table.shape[1], device=trainer.device)
    big = torch.empty(1 << 28, device=trainer.device)
    other = torch.empty_like(big)
    true = torch.randn(min(len(batch), 65_536), device=trainer.device)
    scores = torch.randn(len(true), len(batch.entities) - 2 * len(batch), device=trainer.device)

    def update() -> None:
        tables.optimizer.step(table, state, merged, 0.0, batch.unique)

    work: list[tuple[str, Callable[[], Any], int]] = [
        ("copy of 1 GiB", lambda: other.copy_(big), 2 * big.nbytes),
        ("gather rows", lambda: table.index_select(0, batch.entities), 2 * len(batch.entities) * row),
        # cleared; each gradient read, and added to a place that is read and written
        (
            "merge gradients",
            lambda: merged.zero_().index_add_(0, batch.slots, rows),
            (3 * len(batch.slots) + len(merged)) * row,
        ),
        # kernel by kernel: squares gathered 2, added to 3, put back 2; root 2, epsilon 2, quotient 3, rate 2; vectors
        # gathered 2, moved 3, put back 2
        ("update rows", update, 23 * len(batch.unique) * row),
        # largest 1, softmax 2, largest 1, scaled 2
        ("scores to slopes", lambda: softmax(true, scores, 0.0), 6 * scores.nbytes),
    ]
    found = []
    for name, job, size in work:
        seconds = gpu_seconds(lambda job=job: [job() for _ in range(AT_ONCE)]) / AT_ONCE  # type: ignore[misc]
        found.append({"phase": name, "bytes": size, "microseconds": seconds * 1e6, "bytes/s": size / seconds})
    return [row | {"share of the copy": row["bytes/s"] / found[0]["bytes/s"]} for row in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--batch-size", type=int, nargs="+", default=[4096, 65536])
    parser.add_argument("--negatives", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=5.0)
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
            epochs=10**6,  # as many as there is time for
            device=given.device,
        )
        trainer = EmbeddingTrainer(data.triples, len(benchmark.graph.entities), len(data.relations), settings)
        row: dict[str, Any] = {"batch": size, "triples/s": speed(trainer, given.seconds)}
        if given.device != "cpu":
            batch = next(trainer.batches.epoch(0))
            found = phases(trainer, batch)
            moved += [{"batch": size, **phase} for phase in found]
            row["limit triples/s"] = limit(trainer, batch, found[0]["bytes/s"])
            row["share of limit"] = row["triples/s"] / row["limit triples/s"]
            row |= kernels(trainer)
        rows.append(row)
        del trainer
    print_table(rows)
    if moved:
        print_table(moved)
    peaks = {"peak bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if given.device != "cpu":
        peaks["peak bytes on the GPU"] = torch.cuda.max_memory_allocated()
    print_table([peaks])
    about = {"benchmark": benchmark.name, "triples": len(data.triples), "dim": given.dim, "negatives": given.negatives}
    results = {"hardware": hardware(), **about, "rows": rows, "phases": moved, **peaks}
    write_record(f"large-pretraining-{given.device}", results)


if __name__ == "__main__":
    main()
