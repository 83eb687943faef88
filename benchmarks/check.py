"""How well `check` finds planted errors: the area under the ROC curve of each relation with at least 100 triples.

python benchmarks/check.py umls attack-few nell-one codex-s-few fb15k-237-few [--draws 2] [--relations 40]

In 2 % of the triples of each such relation the tail or the head, in turn, is replaced: by another one of the relation
(`same relation`, the hard case), or by any entity (`any entity`). The graph is the background with the train relations;
dev and test relations are not read. What `check` does was chosen on umls, attack-few and nell-one.
Writes records/check.json.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.seeds import generator
from fewlink.graph import Graph
from fewlink.linker.check import check_relations
from fewlink.tasks import open_benchmark
from measure import print_table, read_record, write_record

LEAST = 100
SHARE = 0.02
TRIES = 100


def plant(graph: Graph, same_relation: bool, seed: int) -> tuple[Graph, set[tuple[int, int, int]]]:
    """The graph with wrong triples in place of some right ones, and the wrong ones."""
    random = generator(seed, "plant", str(same_relation))
    triples = graph.triples().copy()
    known = set(map(tuple, triples.tolist()))
    planted = set()
    for relation in np.flatnonzero(np.bincount(triples[:, 1]) >= LEAST):
        of = np.flatnonzero(triples[:, 1] == relation)
        pools = [np.unique(triples[of, end]) if same_relation else np.arange(len(graph.entities)) for end in (2, 0)]
        for number, place in enumerate(random.choice(of, round(SHARE * len(of)), replace=False)):
            for _ in range(TRIES):
                wrong = triples[place].copy()
                wrong[2 if number % 2 == 0 else 0] = random.choice(pools[number % 2])
                if tuple(wrong.tolist()) not in known:
                    known.add(tuple(wrong.tolist()))
                    planted.add(tuple(wrong.tolist()))
                    triples[place] = wrong
                    break
    return Graph.of(graph.entities, graph.relations, triples, types=graph.types, labels=graph.labels), planted


def area_under_curve(oddness: np.ndarray, wrong: np.ndarray) -> float:
    """The chance that a wrong triple is odder than a right one, ties counting one half."""
    _, which, counts = np.unique(oddness, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[which]
    bad = int(wrong.sum())
    good = int((~wrong).sum())
    return float((ranks[wrong].sum() - bad * (bad + 1) / 2) / (bad * good))


def measured(name: str, graph: Graph, same_relation: bool, draws: int, most: int | None = None) -> dict[str, Any]:
    areas: dict[int, list[float]] = {}
    random = generator(0, "relations of check")
    first = []
    seconds = 0.0
    checked = 0
    wrong_in_all = 0
    for draw in range(draws):
        spoilt, planted = plant(graph, same_relation, draw)
        large = np.flatnonzero(np.bincount(spoilt.triples()[:, 1]) >= LEAST)
        relations = np.sort(random.permutation(large)[:most]).tolist()
        begin = time.perf_counter()
        found = check_relations(spoilt, relations)
        seconds += time.perf_counter() - begin
        for relation in relations:
            of = found.triples[:, 1] == relation
            wrong = np.array([tuple(triple) in planted for triple in found.triples[of].tolist()], bool)
            checked = checked + len(wrong)
            wrong_in_all = wrong_in_all + int(wrong.sum())
            if wrong.any() and not wrong.all():
                areas.setdefault(relation, []).append(area_under_curve(found.oddness[of], wrong))
                first.append(wrong[: max(1, int(wrong.sum()))].mean())
    means = {graph.relations[relation]: round(float(np.mean(of)), 3) for relation, of in areas.items()}
    return {
        "graph": name,
        "wrong ends": "same relation" if same_relation else "any entity",
        "relations": len(means),
        "triples": checked // draws,
        "planted": wrong_in_all // draws,
        "area, mean of relations": round(float(np.mean(list(means.values()))), 3),
        "lowest": min(means.values()),
        "planted among as many of the oddest": round(float(np.mean(first)), 3),
        "seconds": round(seconds / draws, 1),
        "by relation": means,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="+")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--relations", type=int, help="a sample of so many relations")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for given in options.benchmarks:
        graph = open_benchmark(given).known_graph
        for same_relation in (True, False):
            rows.append(measured(Path(given).name, graph, same_relation, options.draws, options.relations))
            print_table([{key: value for key, value in row.items() if key != "by relation"} for row in rows])
    new = {(row["graph"], row["wrong ends"]) for row in rows}
    before = (read_record("check") or {"measured": []})["measured"]
    write_record("check", {"measured": [row for row in before if (row["graph"], row["wrong ends"]) not in new] + rows})


if __name__ == "__main__":
    main()
