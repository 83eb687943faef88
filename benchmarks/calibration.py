"""Fit the calibration that comes with the shipped weights of TRAIL, on graphs that the weights never saw.

python benchmarks/calibration.py WEIGHTS nell-one fb15k-237-few codex-s-few attack-few [--relations 24]

WEIGHTS is a folder with a file without-BENCH.safetensors for each benchmark: weights trained on the other graphs only.
With them, relations of the benchmark are asked about: those of dev, and known relations, in both directions, that are
hidden from the graph; never those of test. Each relation is asked about with several draws of 1 to 5 references. The
samples are kept as WEIGHTS/BENCH.npz; those that exist are used. A graph's figures come from a calibration fitted on
the other graphs. Writes src/fewlink/builtin/trail.calibration.json and records/calibration.json, with a row for each
relation. benchmarks/answer_sets.py then adds the sizes of answer sets.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fewlink.core.seeds import generator
from fewlink.data import Benchmark, Task, open_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.graph import Graph
from fewlink.linker.calibration import (
    BUILT_IN,
    TOP,
    Sample,
    ask,
    cross_fitted,
    expected_error,
    fitted,
    low_trust,
    over_relations,
    row_weights,
)
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.shipped import read_weights
from measure import print_table, write_record
from views import INVERSE, masked_views

BUILTIN = Path(__file__).resolve().parent.parent / "src" / "fewlink" / "builtin"
VIEWS = 4
SHOTS = (1, 2, 3, 4, 5)


class Asked(NamedTuple):
    """A relation, and a graph that does not have it."""

    graph: Graph
    task: Task


def hidden_relations(benchmark: Benchmark, most: int) -> Iterator[Asked]:
    """The dev relations, and at most so many known ones that are hidden in views: two thirds as they are, the rest
    inverse; train relations first."""
    yield from (Asked(known_graph(benchmark), task) for task in benchmark.split("dev"))
    train = {task.name for task in benchmark.split("train")}
    both: tuple[list[Asked], list[Asked]] = [], []
    for view in masked_views(benchmark, VIEWS):
        for task in view.tasks:
            both[task.name.endswith(INVERSE)].append(Asked(view.graph, task))
    for of in both:
        of.sort(key=lambda asked: (asked.task.name not in train, generator(1, "pick", asked.task.name).random()))
    forward, back = both
    forward, back = forward[: max(most - most // 3, most - len(back))], back[: max(most // 3, most - len(forward))]
    yield from sorted([*forward, *back], key=lambda asked: id(asked.graph))


def sample_of(benchmark: Benchmark, weights: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The answers with these weights, and the relation of each row."""
    network = read_weights(weights.read_bytes(), weights.name).network()
    parts, names, of = [], [], []
    scorer: TrailScorer | None = None
    every = list(hidden_relations(benchmark, options.relations))
    for number, (graph, task) in enumerate(every):
        if scorer is None or scorer.source is not graph:
            scorer = TrailScorer("trail", network, ReadGraph.of(graph))
        names.append(task.name)
        first = int(generator(3, "shots", task.name).integers(len(SHOTS)))
        for draw in range(options.draws):
            shots = SHOTS[(first + 2 * draw) % len(SHOTS)]
            random = generator(7, "questions", task.name, draw)
            pairs = random.permutation(task.pairs).astype(np.int32)
            heads = np.array(list(dict.fromkeys(pairs[shots:, 0].tolist()))[: options.queries], np.int32)
            if not len(heads):
                continue
            parts.append(ask(graph, scorer, pairs[:shots], heads, task.known_tails))
            of.append(np.full(len(parts[-1].right), number))
        print(f"{benchmark.name}  {number + 1} of {len(every)} relations", flush=True)
    sample = Sample.joined(parts)._replace(groups=np.concatenate(of))
    return {**sample._asdict(), "names": np.array(names)}


def figures(sample: Sample, names: list[str], probabilities: np.ndarray, low: np.ndarray) -> dict[str, Any]:
    """The errors of one graph, what low trust is worth, and a row for each relation."""
    shown = sample.take(~low)
    rows, chance = [], []
    for group in np.unique(sample.groups):
        of = (sample.groups == group) & sample.first
        mean, hits = float(probabilities[of].mean()), float(sample.right[of].mean())
        rows.append([names[int(group)], int(of.sum()), round(mean, 3), round(hits, 3), round(float(low[of].mean()), 2)])
        chance.append((2 / np.pi * mean * (1 - mean) / of.sum()) ** 0.5)
    counts = row_weights(sample)

    def hit_rate(of: np.ndarray) -> float | None:
        of = of & sample.first
        return round(float(np.average(sample.right[of], weights=counts[of])), 3) if of.any() else None

    first = probabilities[sample.first]
    return {
        "over relations": round(over_relations(probabilities, sample), 3),
        "over relations, low trust left out": round(over_relations(probabilities[~low], shown), 3),
        "by chance alone": round(float(np.mean(chance)), 3),
        "first answers": round(expected_error(first, sample.right[sample.first]), 3),
        "first ten answers": round(expected_error(probabilities, sample.right), 3),
        "low trust": round(float(low[sample.first].mean()), 3),
        "hit rate of low trust": hit_rate(low),
        "hit rate of others": hit_rate(~low),
        "relations": len(rows),
        "columns": ["relation", "queries", "mean probability of first answers", "hit rate", "share of low trust"],
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("benchmarks", nargs="+")
    parser.add_argument("--relations", type=int, default=24)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--out", type=Path, default=BUILTIN / BUILT_IN)
    parser.add_argument("--samples-only", action="store_true")
    options = parser.parse_args()
    parts, names, graphs = [], [], []
    for number, given in enumerate(options.benchmarks):
        name = Path(given).name
        place = options.weights / f"{name}.npz"
        if not place.exists():
            weights = options.weights / f"without-{name}.safetensors"
            np.savez_compressed(place, **sample_of(open_benchmark(given), weights, options))
        content = np.load(place)
        part = Sample(*(content[field] for field in Sample._fields))
        parts.append(part._replace(groups=part.groups + len(names)))
        names += content["names"].tolist()
        graphs.append(np.full(len(part.right), number))
    if options.samples_only:
        return
    sample, graph = Sample.joined(parts), np.concatenate(graphs)
    probabilities = cross_fitted(sample, graph)
    low = low_trust(probabilities, sample)[1]
    facts = {"crossed": "graph", "shots": 0, "top": TOP, "step": 0, "benchmark": ""}
    calibration = fitted(sample, probabilities, **facts)
    calibration.write(options.out)
    in_turn = cross_fitted(sample)
    by_graph = {}
    for number, given in enumerate(options.benchmarks):
        of = graph == number
        seen = {"over relations, only the relation left out": round(over_relations(in_turn[of], sample.take(of)), 3)}
        by_graph[Path(given).name] = seen | figures(sample.take(of), names, probabilities[of], low[of])
    keys = [key for key in next(iter(by_graph.values())) if key not in ("columns", "rows")]
    print_table([{"graph": name, **{key: each[key] for key in keys}} for name, each in by_graph.items()])
    every = figures(sample, names, probabilities, low)
    every = {key: every[key] for key in keys if key in every}
    write_record("calibration", {"all": every, "graphs": by_graph, "weights": calibration.weights})
    print(every, "shown" if not calibration.rough else "not shown", f"low trust under {calibration.least}")


if __name__ == "__main__":
    main()
