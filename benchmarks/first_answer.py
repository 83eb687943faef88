"""From a file of triples to the first ranked and explained answer with the built-in weights, and what follows it.

python benchmarks/first_answer.py graph.tsv [--questions 8]

Each file, or compiled graph, is read in a fresh process: seconds from its start to the first answer with its reasons;
then questions about other relations: the first one, with 3 and with up to 5,000 references; the next head; 16 further
heads; and reasons. All are medians over relations, in seconds and in seconds of all cores. Names are read if they say
something. References and heads are pairs of relations of the file. The record is records/first-answer.json.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from measure import best_of, print_table, write_record

MANY = 5_000
HEADS = 16


def answers(path: str, questions: int) -> dict[str, Any]:
    """Seconds of each part, on the machine's cores."""
    began = time.perf_counter()
    began_cpu = time.process_time()
    import numpy as np

    import fewlink

    loading = time.perf_counter()
    linker = fewlink.load(path)
    loaded = time.perf_counter()
    triples = linker.graph.triples()
    graph = linker.graph
    sizes = np.bincount(triples[:, 1], minlength=len(graph.relations))
    seconds: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        before = time.perf_counter()
        cpu = time.process_time()
        result = work()
        seconds.setdefault(name, []).append(time.perf_counter() - before)
        seconds.setdefault(f"{name}, CPU", []).append(time.process_time() - cpu)
        return result

    first: dict[str, float] = {}
    for relation in np.argsort(-sizes, kind="stable")[3 : 4 + questions].tolist():
        rows = triples[triples[:, 1] == relation]
        heads = [graph.entities[head] for head in dict.fromkeys(rows[::-1, 0].tolist())]
        pairs = [(graph.entities[h], graph.entities[t]) for h, _, t in rows[:MANY].tolist()]
        few = pairs[:3]
        many = pairs[: max(3, len(rows) - HEADS)]

        def ask(references: list[tuple[str, str]], some: list[str]) -> Any:
            return linker.predict(references=references, heads=some, k=1)

        def explain(references: list[tuple[str, str]], answer: Any) -> Any:
            return linker.explain(references=references, head=answer.head, tail=answer.tail)

        best = timed("new relation", functools.partial(ask, few, heads[:1]))[0]
        timed("reasons", functools.partial(explain, few, best))
        if not first:
            first = {"first answer": time.perf_counter() - began, "first answer, CPU": time.process_time() - began_cpu}
            seconds.clear()
            continue
        best = timed("next head", functools.partial(ask, few, heads[1:2]))[0]
        timed(f"{HEADS} heads", functools.partial(ask, few, heads[2 : 2 + HEADS]))
        timed("next reasons", functools.partial(explain, few, best))
        timed(f"up to {MANY:,} references", functools.partial(ask, many, heads[1:2]))
    start = {"imports": loading - began, "reading": loaded - loading, **first}
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
