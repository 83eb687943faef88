"""From a file of triples to the first ranked and explained answer with the shipped weights, and what follows it.

python benchmarks/first_answer.py graph.tsv [--questions 8]

Each file is read in a fresh process: seconds from its start to the first answer with its reasons; then a question about
another relation, the next question about the same one, and reasons; medians over relations. References and heads are
pairs of relations of the file. The record is records/first-answer.json.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

from measure import best_of, print_table, write_record


def answers(path: str, questions: int) -> dict[str, Any]:
    """Seconds of each part, on the machine's cores."""
    began = time.perf_counter()
    import numpy as np

    import fewlink

    loading = time.perf_counter()
    linker = fewlink.load(path)
    loaded = time.perf_counter()
    triples, graph = linker.graph.triples(), linker.graph
    sizes = np.bincount(triples[:, 1], minlength=len(graph.relations))
    seconds: dict[str, list[float]] = {"new relation": [], "same relation": [], "reasons": []}
    first = 0.0
    for relation in np.argsort(-sizes, kind="stable")[3 : 4 + questions].tolist():
        pairs = [(graph.entities[h], graph.entities[t]) for h, _, t in triples[triples[:, 1] == relation][:6].tolist()]
        references, (head, _), (other, _) = pairs[:3], pairs[3], pairs[4]
        before = time.perf_counter()
        best = linker.predict(references=references, heads=[head], k=1)[0]
        after = time.perf_counter()
        linker.explain(references=references, head=head, tail=best.tail)
        told = time.perf_counter()
        linker.predict(references=references, heads=[other], k=1)
        done = time.perf_counter()
        if not first:
            first = told - began
            continue
        for name, value in zip(seconds, (after - before, done - told, told - after), strict=True):
            seconds[name].append(value)
    start = {"imports": loading - began, "reading": loaded - loading, "first answer": first}
    return {"triples": graph.triple_count, **start, **{name: median(values) for name, values in seconds.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows = []
    for path in options.files:
        cost = best_of(options.repeats, answers, str(path), options.questions)
        rows.append({"file": path.name, **cost.value, "peak MB": cost.peak_bytes / 2**20})
        print_table(rows[-1:])
    write_record("first-answer", {"relations": options.questions, "repeats": options.repeats, "rows": rows})


if __name__ == "__main__":
    main()
