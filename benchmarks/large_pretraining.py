"""Pretraining on a large graph: triples/s over whole epochs and memory, and on a GPU the share of its limit.

python benchmarks/large_pretraining.py BENCH [--device cuda] [--dim 50] [--batch-size 4096 65536] [--seconds 5]

ComplEx with a shared pool of negatives and Adagrad. A triple in one direction counts once. The record is
records/large-pretraining-DEVICE.json.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import torch

from fewlink.core.machine import hardware
from fewlink.models.embeddings import EmbeddingSettings
from fewlink.models.embeddings.batches import EmbeddingBatch
from fewlink.models.embeddings.losses import softmax
from fewlink.models.embeddings.trainer import EmbeddingTrainer
from fewlink.tasks import open_benchmark
from fewlink.tasks.benchmark import training_triples
from measure import gpu_kernels, gpu_seconds, print_table, write_record

AT_ONCE = 10  # calls that are timed together, so that launching them does not dominate


def speed(trainer: EmbeddingTrainer, seconds: float) -> float:
    """Triples per second over whole epochs, after a first one that is not timed."""
    trainer.epoch()
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        trainer.epoch()
        done += trainer.batches.examples
    return done / (time.perf_counter() - start)


def limit(trainer: EmbeddingTrainer, batch: EmbeddingBatch, copied: float) -> float:
    """Triples per second if a step were only its three products, at their measured speed, and the fewest bytes.

    The bytes: scores are read and written by a softmax between the products; each gathered row is read and written, and
    its gradient written and read; of each distinct row, vector and state are read and written.
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


def phases(trainer: EmbeddingTrainer, batch: EmbeddingBatch) -> list[dict[str, Any]]:
    """The phases of a step that only move memory: bytes per second, and the share of the rate of a copy."""
    table = trainer.tables.vectors["entities"]
    row = table.shape[1] * table.element_size()
    rows = table.index_select(0, batch.entities)
    merged = torch.zeros(len(batch.unique), table.shape[1], device=trainer.device)
    big = torch.empty(1 << 28, device=trainer.device)
    other = torch.empty_like(big)
    true = torch.randn(min(len(batch), 65_536), device=trainer.device)
    scores = torch.randn(len(true), len(batch.entities) - 2 * len(batch), device=trainer.device)

    def update() -> None:
        trainer.tables._step("entities", merged, 0.0, batch.unique)

    work: list[tuple[str, Callable[[], Any], int]] = [
        ("copy of 1 GiB", lambda: other.copy_(big), 2 * big.nbytes),
        ("gather rows", lambda: table.index_select(0, batch.entities), 2 * len(batch.entities) * row),
        # cleared; each gradient is read, and added to a row that is read and written
        (
            "merge gradients",
            lambda: merged.zero_().index_add_(0, batch.slots, rows),
            (3 * len(batch.slots) + len(merged)) * row,
        ),
        # passes of each kernel: squares gathered 2, added 3, stored 2; root 2, epsilon 2, quotient 3, rate 2; vectors
        # gathered 2, updated 3, stored 2
        ("update rows", update, 23 * len(batch.unique) * row),
        # passes: maximum 1, softmax 2, maximum 1, scaling 2
        ("scores to slopes", lambda: softmax(true, scores), 6 * scores.nbytes),
    ]
    results: list[dict[str, Any]] = []
    for name, job, size in work:
        seconds = gpu_seconds(lambda job=job: [job() for _ in range(AT_ONCE)]) / AT_ONCE  # type: ignore[misc]
        results.append({"phase": name, "bytes": size, "microseconds": seconds * 1e6, "bytes/s": size / seconds})
    return [row | {"share of the copy": row["bytes/s"] / results[0]["bytes/s"]} for row in results]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--batch-size", type=int, nargs="+", default=[4096, 65536])
    parser.add_argument("--negatives", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    benchmark = open_benchmark(options.bench)
    data = training_triples(benchmark)
    rows, moved = [], []
    for size in options.batch_size:
        settings = EmbeddingSettings(
            model="complex",
            dim=options.dim,
            batch_size=size,
            negatives=options.negatives,
            epochs=10**6,  # as many as the time allows
            device=options.device,
        )
        trainer = EmbeddingTrainer(data.triples, len(benchmark.graph.entities), len(data.relations), settings)
        row: dict[str, Any] = {"batch": size, "triples/s": speed(trainer, options.seconds)}
        if options.device != "cpu":
            batch = next(trainer.batches.epoch(0))
            measured = phases(trainer, batch)
            moved += [{"batch": size, **phase} for phase in measured]
            row["limit triples/s"] = limit(trainer, batch, measured[0]["bytes/s"])
            row["share of limit"] = row["triples/s"] / row["limit triples/s"]
            row |= kernels(trainer)
        rows.append(row)
        del trainer
    print_table(rows)
    if moved:
        print_table(moved)
    peaks = {"peak bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if options.device != "cpu":
        peaks["peak bytes on the GPU"] = torch.cuda.max_memory_allocated()
    print_table([peaks])
    about = {
        "benchmark": benchmark.name,
        "triples": len(data.triples),
        "dim": options.dim,
        "negatives": options.negatives,
    }
    results = {"hardware": hardware(), **about, "rows": rows, "phases": moved, **peaks}
    write_record(f"large-pretraining-{options.device}", results)


if __name__ == "__main__":
    main()
