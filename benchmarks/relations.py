"""How well `relations` finds the relation of hidden triples: the mean reciprocal rank of the true one among all.

python benchmarks/relations.py nell-one codex-s-few [--triples 200]

Half of the triples are drawn from all, half by relation first, from relations with at least 20 triples; all of them are
taken out of the graph (the background with the train relations; dev and test relations are not read). Other relations
that the graph has between the two are not ranked. A relation that the first stage leaves out has the last rank. What
`relations` does was chosen on umls, attack-few and nell-one. Writes records/relations.json.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.seeds import generator
from fewlink.graph import Graph
from fewlink.linker.relations import RelationFinder
from fewlink.tasks import open_benchmark
from measure import print_table, write_record

LEAST = 20


def hidden_triples(graph: Graph, count: int) -> np.ndarray:
    """The places of triples to hide."""
    random = generator(0, "relations")
    relations = graph.triples()[:, 1]
    large = np.flatnonzero(np.bincount(relations) >= LEAST)
    from_all = random.choice(np.flatnonzero(np.isin(relations, large)), count // 2, replace=False)
    by_relation = [random.choice(np.flatnonzero(relations == r)) for r in random.choice(large, count - count // 2)]
    return np.unique([*from_all.tolist(), *by_relation])


def measured(name: str, graph: Graph, count: int) -> dict[str, Any]:
    triples = graph.triples()
    hidden = hidden_triples(graph, count)
    shown = Graph.of(graph.entities, graph.relations, np.delete(triples, hidden, axis=0), types=graph.types)
    begin = time.perf_counter()
    finder = RelationFinder(shown)
    opened = time.perf_counter()
    ranks = []
    for head, relation, tail in triples[hidden].tolist():
        fits = [fit for fit in finder.rank(head, tail) if not fit.known]
        own = next((fit.fit for fit in fits if fit.relation == relation), None)
        ranks.append(len(graph.relations) if own is None else 1 + sum(fit.fit > own for fit in fits))
    last = time.perf_counter()
    all_ranks = np.array(ranks)
    return {
        "graph": name,
        "relations": len(graph.relations),
        "triples": len(hidden),
        "MRR": round(float((1 / all_ranks).mean()), 3),
        "Hits@1": round(float((all_ranks == 1).mean()), 3),
        "Hits@3": round(float((all_ranks <= 3).mean()), 3),
        "left out by the first stage": round(float((all_ranks == len(graph.relations)).mean()), 3),
        "seconds to open": round(opened - begin, 1),
        "seconds a pair": round((last - opened) / len(hidden), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="+")
    parser.add_argument("--triples", type=int, default=200)
    options = parser.parse_args()
    rows = []
    for given in options.benchmarks:
        rows.append(measured(Path(given).name, open_benchmark(given).known_graph, options.triples))
        print_table(rows)
    write_record("relations", {"measured": rows})


if __name__ == "__main__":
    main()
