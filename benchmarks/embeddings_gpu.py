"""ComplEx one-vs-all on a GPU to its best dev score: seconds and triples/s, compared with the limits of the machine.

python benchmarks/embeddings_gpu.py BENCH [--epochs 30]
"""

from __future__ import annotations

import argparse
import time

import torch

from fewlink.evaluation import Protocol, evaluate
from fewlink.models.embeddings import Embeddings, EmbeddingSettings
from fewlink.models.embeddings.family import EmbeddingScorer
from fewlink.models.embeddings.trainer import EmbeddingTrainer
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.tasks.benchmark import training_triples
from measure import gpu_seconds, print_table, write_record

PASSES = 5  # over the score matrix, at least: product out, softmax in and out, two products in


def ceilings(rows: int, entities: int, dim: int) -> dict[str, float]:
    """The limits of the machine: bytes/s of a copy, and float32 and bfloat16 operations/s at this product's shape."""
    big = torch.randn(1 << 28, device="cuda")
    other = torch.empty_like(big)
    queries, table = torch.randn(rows, dim, device="cuda"), torch.randn(entities, dim, device="cuda")
    operations = 2 * rows * entities * dim
    halves = queries.bfloat16(), table.bfloat16()
    return {
        "copy bytes/s": 2 * big.nbytes / gpu_seconds(lambda: other.copy_(big)),
        "float32 op/s": operations / gpu_seconds(lambda: queries @ table.T),
        "bfloat16 op/s": operations / gpu_seconds(lambda: halves[0] @ halves[1].T),
    }


def to_best(benchmark: Benchmark, settings: EmbeddingSettings, shots: int) -> tuple[list[dict[str, float]], Embeddings]:
    """Train epoch by epoch; dev MRR after each, without its evaluation in the seconds."""
    data = training_triples(benchmark, with_train_tasks=True, shots=shots)
    trainer = EmbeddingTrainer(data.triples, len(benchmark.graph.entities), len(data.relations), settings)
    rows, seconds = [], 0.0
    while not trainer.finished:
        start = time.perf_counter()
        trace = trainer.epoch()
        torch.cuda.synchronize()
        seconds += time.perf_counter() - start
        scorer = EmbeddingScorer(trainer.result(), data.relations, settings.device)
        mrr = evaluate(benchmark, scorer, Protocol("dev", shots, "full")).metrics()["micro"]["mrr"]
        rows.append(
            {"epoch": trainer.done, "seconds": seconds, "triples/s": trace["triples_per_second"], "dev MRR": mrr}
        )
    return rows, trainer.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark", nargs="?", default="nell-one")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--dim", type=int, default=100)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("skipped: this benchmark needs a GPU")
    benchmark = open_benchmark(options.benchmark)
    entities = len(benchmark.graph.entities)
    limits = ceilings(options.batch_size, entities, options.dim)
    results = []
    for mixed in (False, True):
        settings = EmbeddingSettings(
            model="complex",
            dim=options.dim,
            regime="one-vs-all",
            batch_size=options.batch_size,
            epochs=options.epochs,
            learning_rate=0.3,
            n3=0.08,
            init_scale=0.02,
            device="cuda",
            mixed_precision=mixed,
        )
        rows, _ = to_best(benchmark, settings, shots=3)
        best = max(rows, key=lambda row: row["dev MRR"])
        speed = sorted(row["triples/s"] for row in rows)[len(rows) // 2]
        arithmetic = 6 * entities * options.dim / limits["bfloat16 op/s" if mixed else "float32 op/s"]
        memory = PASSES * 4 * entities / limits["copy bytes/s"]
        results.append(
            {
                "precision": "bfloat16" if mixed else "float32",
                "best dev MRR": best["dev MRR"],
                "epoch": best["epoch"],
                "seconds to best": best["seconds"],
                "triples/s": speed,
                "limit triples/s": 1 / (arithmetic + memory),
                "share of limit": speed * (arithmetic + memory),
                "memory share of limit": memory / (arithmetic + memory),
            }
        )
    print_table([limits])
    print_table(results)
    write_record("embeddings-gpu", {"device": torch.cuda.get_device_name(), "limits": limits, "rows": results})


if __name__ == "__main__":
    main()
