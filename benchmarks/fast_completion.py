"""What `complete` loses and gains by reading parts of a graph near each head: pairs found again, heads a second.

python benchmarks/fast_completion.py NELL-ONE [--graphs FOLDER NAME …] [--relations 12] [--heads 40] [--edges 10000 …]

Relations of a fold of NELL-One, and of graphs that no model may be trained on, are hidden in turn, with all but some of
their pairs as references. Candidates are those of `complete`, tails that resemble the references'; a tail that is not
among them counts as not found. `same first` is the share of heads with the same first tail as with all edges. All are
timed in the same process with one thread, after one head that is not timed. Writes records/fast-completion.json.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fewlink.core.seeds import generator
from fewlink.models.contract import Question, realistic_rank
from fewlink.models.trail.scorer import NEAR_EDGES, TrailScorer
from fewlink.models.trail.shipped import shipped_scorer
from fewlink.tasks import open_benchmark
from fewlink.tasks.benchmark import Task
from fewlink.tasks.candidates import open_candidates, task_of_pairs
from folds import fold_benchmark
from measure import print_table, write_record

sys.path.append(str(Path(__file__).resolve().parent.parent / "experiments"))

from unseen_graphs import hidden_relations, suite

FOLD = 1


class Case(NamedTuple):
    """A hidden relation: the model that does not see it, all its pairs, the references and the asked pairs (q, 2)."""

    scorer: TrailScorer
    task: Task
    references: np.ndarray
    asked: np.ndarray


def of_fold(name: str, relations: int, heads: int) -> Iterator[Case]:
    benchmark = fold_benchmark(open_benchmark(name), FOLD)
    graph = benchmark.known_graph
    scorer = shipped_scorer(graph)
    tasks = benchmark.split("dev")
    for task in tasks[:: max(1, len(tasks) // relations)][:relations]:
        pairs = generator(0, "hidden", task.name).permutation(task.pairs)
        count = min(heads, len(pairs) // 3)
        yield Case(scorer, task_of_pairs(graph, task.name, task.pairs), pairs[count:], pairs[:count])


def of_suite(folder: Path, name: str, relations: int, heads: int) -> Iterator[Case]:
    (listed,) = suite(folder, [name])
    graph = listed.graph()
    scorer = shipped_scorer(graph)
    for hidden in hidden_relations(graph, name)[:relations]:
        yield Case(scorer.without(hidden.name), hidden.task, hidden.pool, hidden.asked[:heads])


def measured(case: Case, edges: int | None) -> tuple[np.ndarray, np.ndarray, float]:
    """The rank of each asked tail (q,), infinite if it is no candidate; the first tail (q,); and seconds."""
    scorer = case.scorer.with_vectors(None if (v := case.scorer.graph.vectors) is None else v.numpy())
    if edges is not None:
        scorer.near_edges = edges
    candidates = open_candidates(scorer.graph.graph, case.references)
    question = Question("", case.references, case.asked[:, 0], candidates)
    scorer(Question("", case.references, case.asked[:1, 0], candidates))
    began = time.perf_counter()
    scores = scorer(question).numpy()
    seconds = time.perf_counter() - began
    ranks = np.full(len(case.asked), np.inf)
    for place, (head, tail) in enumerate(case.asked.tolist()):
        known = case.task.pairs[case.task.pairs[:, 0] == head, 1]
        rivals = ~np.isin(candidates, known)
        own = scores[place][candidates == tail]
        if len(own):
            ranks[place] = realistic_rank((scores[place][rivals] > own).sum(), (scores[place][rivals] == own).sum())
    return ranks, candidates[scores.argmax(1)], seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nell_one")
    parser.add_argument("--graphs", nargs="+", default=[], metavar="FOLDER NAME")
    parser.add_argument("--relations", type=int, default=12)
    parser.add_argument("--heads", type=int, default=40)
    parser.add_argument("--edges", type=int, nargs="+", default=[NEAR_EDGES])
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = options.relations, options.heads
    graphs = {f"nell-one-fold-{FOLD}": of_fold(options.nell_one, *sizes)}
    graphs |= {name: of_suite(Path(options.graphs[0]), name, *sizes) for name in options.graphs[1:]}
    rows: list[dict[str, Any]] = []
    for name, cases in graphs.items():
        load = os.getloadavg()[0]
        of_relations = list[list[tuple[Any, ...]]]()
        for case in cases:
            of_relations.append([measured(case, edges) for edges in (None, *options.edges)])
        whole = [found[0] for found in of_relations]
        for edges, found in zip(["all", *options.edges], zip(*of_relations, strict=True), strict=True):
            seconds = sum(each[2] for each in found)
            heads = sum(len(each[0]) for each in found)
            row = {"graph": name, "edges": edges, "relations": len(found), "heads": heads}
            row["MRR"] = float(np.mean([(1 / ranks).mean() for ranks, _, _ in found]))
            row["Hits@10"] = float(np.mean([(ranks <= 10).mean() for ranks, _, _ in found]))
            same = [(first == all_edges[1]).mean() for (_, first, _), all_edges in zip(found, whole, strict=True)]
            row["same first"] = float(np.mean(same))
            row["milliseconds a head"] = 1000 * seconds / heads
            row["times as fast"] = sum(each[2] for each in whole) / seconds
            row["load"] = load
            rows.append(row)
        print_table(rows[-1 - len(options.edges) :])
    print_table(rows)
    write_record("fast-completion", {"rows": rows})


if __name__ == "__main__":
    main()
