"""Pretraining with 1, 2 and 4 processes on one random graph, with sharded and with replicated tables.

    python benchmarks/processes.py [--seconds 10] [--sizes 100000 1000000] [--processes 1 2 4]
    python benchmarks/processes.py --plan [--cores 16]    # docs/many-machines.md's table, from the record

All train ComplEx of 50 reals with Adagrad on the same batches. *sharded* is the package's way: each entity row is in
one process. *replicated* has every row in every process and sends each process's row gradients to all others, which all
make the same update. Each process has one thread, so that 2 processes on 2 cores compare with one process of 2 threads;
the first row of each size is one process with 1 thread, the base of the speed-ups. Processes communicate over the
loopback interface; seconds of exchange include waiting for the slower process. In all of them the allocator retains
freed memory: otherwise the smaller buffers of half a batch would cause fewer page faults and count as speed-up.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from embeddings_speed import random_graph
from fewlink.core import distributed
from fewlink.embeddings import EmbeddingSettings
from fewlink.embeddings.shards import Batch, Tables
from fewlink.embeddings.trainer import EmbeddingTrainer
from measure import RECORDS, print_table, write_record

RELATIONS, TRIPLES_AN_ENTITY, WARM = 1000, 5, 10
ORDER = 50e-9  # seconds per example to draw the order of an epoch
KEEP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 29)}
REGIMES: dict[str, dict[str, Any]] = {
    "pool of 1024": {"corrupt": "shared", "negatives": 1024, "loss": "softmax"},
    "each 1": {"corrupt": "each", "negatives": 1, "loss": "logistic"},
}


class Replicated(Tables):
    """Every row in every process; the gradients of touched rows are sent to all."""

    def update(self, batch: Batch, gradients: Sequence[Tensor], loss: Tensor, rate: float) -> Tensor:
        relations = self._of_all_relations(batch, gradients[1])
        distributed.add_([relations, loss])
        rows, merged = _from_all(batch.unique), _from_all(self._merged(batch, gradients[0]))
        unique, slots = rows.unique(return_inverse=True)
        added = merged.new_zeros(len(unique), merged.shape[1]).index_add_(0, slots, merged)
        self._step("entities", added, rate, unique)
        self._step("relations", relations, rate)
        return loss


def _from_all(rows: Tensor) -> Tensor:
    """The rows of all processes, (Σ U, …): gloo gathers equal sizes, so shorter parts are padded."""
    start = time.perf_counter()
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(distributed.count())]
    dist.all_gather(sizes, torch.tensor([len(rows)]))
    most = max(int(size) for size in sizes)
    filled = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])])
    parts = [torch.empty_like(filled) for _ in sizes]
    dist.all_gather(parts, filled)
    METER.bytes += filled.nbytes * (distributed.count() - 1)
    METER.seconds += time.perf_counter() - start
    return torch.cat([part[: int(size)] for part, size in zip(parts, sizes, strict=True)])


class Meter:
    """Bytes that this process sends to others, and the seconds of all exchanges."""

    def __init__(self) -> None:
        self.bytes, self.seconds = 0.0, 0.0
        for name in ("exchanged", "add_"):
            setattr(distributed, name, self._timed(getattr(distributed, name), getattr(self, f"_{name}")))

    def _timed(self, work: Any, size: Any) -> Any:
        def measured(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = work(*arguments)
            self.seconds += time.perf_counter() - start
            self.bytes += size(*arguments)
            return result

        return measured

    def _exchanged(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> float:
        return rows.nbytes * (1 - sent[distributed.rank()] / max(1, len(rows)))

    def _add_(self, tensors: Sequence[Tensor]) -> float:
        """A ring sends every number twice, except the part of the process itself."""
        return sum(x.nbytes for x in tensors) * 2 * (distributed.count() - 1) / distributed.count()


METER = Meter()


def worker(kind: str, entities: int, regime: str, batch: int, dim: int, seconds: float) -> None:
    """One process: steps for so many seconds. The first process prints the results."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    settings = EmbeddingSettings(dim=dim, batch_size=batch, epochs=10**6, n3=0.0, **REGIMES[regime])
    graph = random_graph(entities, TRIPLES_AN_ENTITY * entities, RELATIONS)
    with distributed.processes("cpu"):
        if kind == "replicated":
            with distributed.alone():
                trainer = EmbeddingTrainer(graph, entities, RELATIONS, settings)
            trainer.batches.part = distributed.rank(), distributed.count()
            trainer.tables = Replicated(trainer.tables.shard, trainer.tables.vectors, settings)
        else:
            trainer = EmbeddingTrainer(graph, entities, RELATIONS, settings)
        batches = (batch for epoch in range(10**6) for batch in trainer.batches.epoch(epoch))
        warm = _steps(trainer, batches, WARM)
        steps = distributed.from_first(lambda: max(5, round(seconds / warm * WARM)))
        METER.bytes, METER.seconds = 0.0, 0.0
        passed = _steps(trainer, batches, steps)
        meters = distributed.gathered((METER.bytes / steps, METER.seconds / steps))
        rows = sum(
            table.nbytes for table in (trainer.tables.vectors["entities"], *trainer.tables.states["entities"].values())
        )
        results = {
            "triples/s": steps * batch / passed,
            "ms a step": 1000 * passed / steps,
            "of it exchange": 1000 * sum(seconds for _, seconds in meters) / len(meters),
            "ms of an empty exchange": 1000 * _latency() if distributed.count() > 1 else 0.0,
            "MB sent a step and process": max(sent for sent, _ in meters) / 1e6,
            "MB of rows a process": rows / 1e6,
        }
        if distributed.rank() == 0:
            print(json.dumps(results))


def _steps(trainer: EmbeddingTrainer, batches: Any, steps: int) -> float:
    """Seconds of so many steps, sampling included."""
    distributed.gathered(None)
    start = time.perf_counter()
    for _ in range(steps):
        trainer.step(next(batches), 0.1)
    distributed.gathered(None)
    return time.perf_counter() - start


def _latency(times: int = 100) -> float:
    """Seconds of an empty exchange."""
    nothing, start = torch.empty(0, 1), time.perf_counter()
    for _ in range(times):
        distributed.exchanged(nothing, [0] * distributed.count(), [0] * distributed.count())
    return (time.perf_counter() - start) / times


def measured(kind: str, processes: int, threads: int, *arguments: Any) -> dict[str, float]:
    """Start the processes; the results of the first one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    words = [sys.executable, __file__, "--worker", json.dumps([kind, *arguments])]
    children = [
        subprocess.Popen(
            words,
            env={**os.environ, **KEEP, **places, "RANK": str(rank), "OMP_NUM_THREADS": str(threads)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    outputs = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        raise SystemExit(f"{kind} with {processes} processes failed")
    results: dict[str, float] = json.loads(outputs[0].splitlines()[-1])
    return results


def compare(sizes: list[int], processes: list[int], batch: int, dim: int, seconds: float) -> None:
    rows: list[dict[str, Any]] = []
    for regime in REGIMES:
        for entities in sizes:
            base = 0.0
            ways = [("one", 1, 1), ("one", 1, 2)]
            ways += [(kind, n, 1) for n in processes if n > 1 for kind in ("sharded", "replicated")]
            for kind, count, threads in ways:
                results = measured(kind, count, threads, entities, regime, batch, dim, seconds)
                base = base or results["triples/s"]
                named = {
                    "negatives": regime,
                    "entities": entities,
                    "tables": kind,
                    "processes": count,
                    "threads": threads,
                }
                rows.append({**named, **results, "speed-up": results["triples/s"] / base})
                print_table(rows[-1:])
    print()
    print_table(rows)
    about = {"batch": batch, "dim": dim, "relations": RELATIONS, "triples an entity": TRIPLES_AN_ENTITY}
    write_record("processes", {**about, "seconds": seconds, "rows": rows})


def plan(cores: int) -> None:
    """Hosts and hours for 100 million entities and a billion triples, by the formulas of docs/many-machines.md."""
    record = json.loads((RECORDS / "processes.json").read_text())["results"]
    largest = [row for row in record["rows"] if row["entities"] == max(row["entities"] for row in record["rows"])]
    rates = {row["negatives"]: row["triples/s"] for row in largest if (row["processes"], row["threads"]) == (1, 1)}
    latency = next(row["ms of an empty exchange"] for row in largest if row["processes"] == 2) / 1000
    entities, triples, dim, batch = 10**8, 10**9, record["dim"], record["batch"]  # batch per host
    rows = []
    for regime, rate in rates.items():
        touched = 2 + REGIMES[regime]["negatives"] / (batch if "pool" in regime else 1)  # rows per example
        for hosts in (2, 4, 8, 16):
            sent = (1 - 1 / hosts) * (touched * (8 * dim + 8) + 8 * (dim + 1) * 2 * RELATIONS / batch)
            row: dict[str, Any] = {"negatives": regime, "hosts": hosts, "GB of rows": entities * dim * 8 / hosts / 1e9}
            row |= {
                "bytes an example": sent,
                "arithmetic, µs": 1e6 / rate / cores,
                "latency, µs": 5e6 * latency / batch,
            }
            for gigabits in (10, 25):
                network = sent * 8 / gigabits / 1e9
                example = 1 / rate / cores + network + 5 * latency / batch
                hours = 2 * triples * (example / hosts + ORDER) / 3600
                row |= {f"{gigabits} Gbit/s, µs": 1e6 * network, f"{gigabits} Gbit/s, hours": hours}
            rows.append(row)
    print_table(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--cores", type=int, default=16, help="per host of the plan")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*json.loads(options.worker))
    elif options.plan:
        plan(options.cores)
    else:
        compare(options.sizes, options.processes, options.batch, options.dim, options.seconds)
