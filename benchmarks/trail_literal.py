"""Finding TRAIL's paths, compared with walks taken one by one.

    python benchmarks/trail_literal.py [BENCH] [--relations 10] [--repeats 3]

Both sides find the paths of up to three hops that join the first references of some relations, with their
probabilities; that these are equal is checked before timing. Relations with more than a million walks are skipped. The
sides run in turn, the best turn of each relation counts, and the ratio is that of the sums.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import torch
from fewlink.trail_0_1.paths import HOPS, PathFinder

from fewlink.data import open_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.graph import Graph
from measure import print_table, write_record

SHOTS = 3
MOST_WALKS = 1_000_000
Walk = tuple[int, int, float, float]  # its path, its end, its probability and that of the way back
Chances = dict[tuple[int, int], tuple[float, float]]  # of a path and a reference, there and back


class PlainTrails:
    """The definition, as loops over lists of edges."""

    def __init__(self, graph: Graph) -> None:
        count = len(graph.relations)
        self.base = 2 * count + 1
        self.edges: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.bundles: dict[tuple[int, int], int] = defaultdict(int)
        self.inverse = [(r + count) % (2 * count) for r in range(2 * count)]
        for head, relation, tail in zip(
            graph.head_ids.tolist(), graph.relation_ids.tolist(), graph.tail_ids.tolist(), strict=True
        ):
            self.edges[head].append((relation, tail))
            self.bundles[head, relation] += 1

    def walks(self, walk: Walk, hops: int) -> Iterator[Walk]:
        """Every walk of 1 to `hops` further hops."""
        trail, at, there, back = walk
        for relation, tail in self.edges[at]:
            further = (
                trail * self.base + relation + 1,
                tail,
                there / self.bundles[at, relation],
                back / self.bundles[tail, self.inverse[relation]],
            )
            yield further
            if hops > 1:
                yield from self.walks(further, hops - 1)

    def joining(self, references: np.ndarray) -> Chances:
        """The probabilities of every path that joins a reference."""
        chances: Chances = {}
        for k, (head, tail) in enumerate(references.tolist()):
            for trail, end, there, back in self.walks((0, head, 1.0, 1.0), HOPS):
                if end == tail:
                    before = chances.get((trail, k), (0.0, 0.0))
                    chances[trail, k] = before[0] + there, before[1] + back
        return chances

    def size(self, references: np.ndarray) -> int:
        """The number of walks."""
        total, standing = 0, defaultdict(int)
        for head in references[:, 0].tolist():
            standing[head] += 1
        for _ in range(HOPS):
            further: dict[int, int] = defaultdict(int)
            for at, count in standing.items():
                for _, tail in self.edges[at]:
                    further[tail] += count
            standing = further
            total += sum(standing.values())
        return total


def found_by(finder: PathFinder, references: np.ndarray) -> Chances:
    """The same from the package."""
    rules = finder.joining(torch.from_numpy(references.astype(np.int64)))
    return {
        (trail, k): (there, back)
        for trail, row in zip(rules.paths.tolist(), rules.chances.tolist(), strict=True)
        for k, (there, back) in enumerate(row)
        if there or back
    }


def check(ours: Chances, plain: Chances) -> None:
    """Raises if the two sides find different paths."""
    same = ours.keys() == plain.keys() and all(
        math.isclose(a, b, rel_tol=1e-4) for key in ours for a, b in zip(ours[key], plain[key], strict=True)
    )
    if not same:
        raise SystemExit("the two sides find different paths: nothing is timed")


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", nargs="?", default="nell-one")
    parser.add_argument("--relations", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    benchmark = open_benchmark(options.benchmark)
    graph = known_graph(benchmark)
    plain, finder = PlainTrails(graph), PathFinder(graph)
    tasks = [task for split in ("test", "dev", "train") for task in benchmark.split(split)]
    rows = []
    for task in tasks:
        references = np.asarray(task.pairs[:SHOTS])
        walks = plain.size(references)
        if walks > MOST_WALKS:
            continue
        ids = torch.from_numpy(references.astype(np.int64))
        check(found_by(finder, references), plain.joining(references))
        turns = [
            (seconds(lambda ids=ids: finder.joining(ids)), seconds(lambda pairs=references: plain.joining(pairs)))
            for _ in range(options.repeats)
        ]
        ours, theirs = (min(times) for times in zip(*turns, strict=True))
        rows.append({"relation": task.name, "walks": walks, "fewlink ms": 1000 * ours, "plain ms": 1000 * theirs})
        if len(rows) == options.relations:
            break
    if not rows:
        raise SystemExit(f"skipped: {benchmark.name} has no relation of at most {MOST_WALKS:,} walks")
    print_table(rows)
    ratio = sum(row["plain ms"] for row in rows) / sum(row["fewlink ms"] for row in rows)
    print(f"walks taken one by one take {ratio:.1f} times as long")
    results = {"bench": benchmark.name, "shots": SHOTS, "repeats": options.repeats, "rows": rows, "ratio": ratio}
    write_record("trail-literal", results)


if __name__ == "__main__":
    main()
