"""What reading a part of the graph around each head is worth to TRAIL: MRR on dev, and heads a second on a CPU.

python benchmarks/trail_parts.py nell-one [--heads 400] [--limit 20000 …]

The shipped weights; `whole` reads the whole graph. Heads are entities of the range of the first dev relation, with all
of it as candidates. The record is records/trail-parts.json.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from fewlink.data import open_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.models.trail.shipped import shipped_scorer
from fewlink.scorers import Question
from measure import print_table, write_record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark")
    parser.add_argument("--heads", type=int, default=400)
    parser.add_argument("--limit", type=int, action="append")
    options = parser.parse_args()
    benchmark, rows = open_benchmark(options.benchmark), []
    for limit in [None, *(options.limit or [100_000, 50_000, 20_000, 10_000])]:
        scorer = shipped_scorer(known_graph(benchmark))
        if limit:
            scorer.limit_edges(limit)
        figures = evaluate(benchmark, scorer, Protocol("dev", 3, "full")).metrics()["micro"]
        task = benchmark.split("dev")[0]
        question = Question(task.name, task.pairs[:3], task.range[: options.heads], task.range)
        began = time.perf_counter()
        scorer(question)
        rate = len(question.heads) / (time.perf_counter() - began)
        row: dict[str, Any] = {"edges": f"{limit:,}" if limit else "whole", "dev MRR": figures["mrr"]}
        row |= {"Hits@10": figures["hits@10"], "heads/s": rate, "100,000 heads, minutes": 100_000 / rate / 60}
        rows.append(row)
        print_table(rows[-1:])
    facts = {"benchmark": benchmark.name, "heads": options.heads, "threads": torch.get_num_threads()}
    write_record("trail-parts", {**facts, "rows": rows})


if __name__ == "__main__":
    main()
