"""500 explanations of the shipped weights, checked: no entity twice, none through its own answer, edges first.

    python benchmarks/explanation_check.py [BENCH …] [--each 125] [--shown 5] [--shots 3]

Relations of dev and test are asked with their first pairs as references, with heads drawn at random; a third of the
answers is the best tail, a third the second or third best, and a third a known tail of the head. Of each explanation:

- circular: a named path has an entity twice;
- through its own answer: head or tail is inside a path, or a path is the pair itself as a reference;
- direct edge not first: the graph joins head and tail, and the first path or line is another one;
- invented: a step that is neither an edge of the graph nor a reference;
- wrong count: the number of references joined in the same way differs from that of a search without shortcuts.

Some explanations of each benchmark are printed for a reader to judge. The record keeps the results of other benchmarks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from fewlink.graph import Graph
from fewlink.linker import Explanation, Linker
from fewlink.linker.query import Query, References, find_relation
from fewlink.linker.reasons import ReasonPath
from fewlink.models.trail.names import with_name_relations
from fewlink.tasks import Benchmark, open_benchmark
from measure import print_table, read_record, write_record

BENCHMARKS = ["nell-one", "fb15k-237-few", "codex-s-few", "attack-few"]
SEED = 0
MOST_WALKS = 10_000  # of a pair, above which a count is not checked
FAULTS = ("circular", "through its own answer", "direct edge not first", "invented", "wrong count")


@dataclass(frozen=True)
class Checked:
    """An explanation with its faults and its cost in processor seconds."""

    relation: str
    references: str
    explanation: Explanation
    faults: frozenset[str]
    seconds: float
    direct: bool


def sample(benchmark: Benchmark, linker: Linker, count: int, shots: int) -> Iterator[Checked]:
    """Checked explanations of `count` pairs, spread over the relations of dev and test."""
    graph, rng = with_name_relations(benchmark.known_graph), np.random.default_rng(SEED)
    edges = Edges(graph)
    tasks = [*benchmark.split("dev"), *benchmark.split("test")]
    for number in range(count):
        task = tasks[number % len(tasks)]
        pairs = tuple((int(h), int(t)) for h, t in task.pairs[:shots])
        references = References(pairs, find_relation(benchmark, task.name))
        head = int(rng.choice(np.unique(task.pairs[shots:, 0])))
        kind = number // len(tasks) % 3
        if kind == 2:
            tail = int(rng.choice(task.known_tails[head]))
        else:
            best = linker.rank(Query(references, (head,), 3, tuple(np.unique(task.range).tolist()))).tails
            tail = int(best[0 if kind == 0 else rng.integers(len(best))])
        began = time.process_time()
        explanation = linker.explain_pair(references, head, tail)
        seconds = time.process_time() - began
        named = "; ".join(f"{graph.name(h)} → {graph.name(t)}" for h, t in pairs)
        faults = frozenset(edges.faults(explanation, references.ids, head, tail))
        direct = bool(edges.between(head, tail))
        yield Checked(task.name, named, explanation, faults, seconds, direct)


class Edges:
    """The edges of a graph as plain sets, to check explanations without the code that makes them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.names = [graph.relation_name(number) for number in range(len(graph.relations))]
        self.triples = set(map(tuple, graph.triples().tolist()))
        self.after: dict[tuple[int, int, bool], set[int]] = {}
        for head, relation, tail in self.triples:
            self.after.setdefault((head, relation, False), set()).add(tail)
            self.after.setdefault((tail, relation, True), set()).add(head)

    def called(self, label: str) -> list[int]:
        """The relations of this label: it may lack the kinds of their ends."""
        return [number for number, name in enumerate(self.names) if label in name]

    def between(self, head: int, tail: int) -> set[tuple[int, bool]]:
        """Relations that join head and tail, and whether backwards."""
        if head == tail:
            return set()
        every = range(len(self.graph.relations))
        return {(r, False) for r in every if (head, r, tail) in self.triples} | {
            (r, True) for r in every if (tail, r, head) in self.triples
        }

    def faults(self, explanation: Explanation, references: np.ndarray, head: int, tail: int) -> Iterator[str]:
        given = set(map(tuple, references.tolist()))
        for path in explanation.paths:
            walked = [self.graph.entities.id(entity.id) for entity in path.entities]
            if len(set(walked)) < len(walked):
                yield "circular"
            own = len(walked) == 2 and walked == [head, tail] and path.steps[0].example
            if {head, tail} & set(walked[1:-1]) or walked[-1] != tail or (own and path.steps[0].forward):
                yield "through its own answer"
            for step, before, after in zip(path.steps, walked, walked[1:], strict=False):
                first, last = (before, after) if step.forward else (after, before)
                if step.example:
                    real = (first, last) in given
                else:
                    real = any((first, r, last) in self.triples for r in self.called(step.relation))
                if not real:
                    yield "invented"
            if path.alike is not None and path.alike != sum(self.joins(path, h, t) for h, t in given):
                yield "wrong count"
        if self.between(head, tail):
            ends = (explanation.head, explanation.tail)
            if not explanation.paths or explanation.paths[0].entities != ends:
                yield "direct edge not first"

    def joins(self, path: ReasonPath, head: int, tail: int) -> bool:
        """Whether the relations of a path join another pair, with no entity twice: all walks are followed."""
        walks: list[tuple[int, ...]] = [(head,)]
        for number, step in enumerate(path.steps, 1):
            further: list[tuple[int, ...]] = []
            for walked in walks:
                for relation in self.called(step.relation):
                    after = self.after.get((walked[-1], relation, not step.forward), set())
                    if number == len(path.steps):
                        if tail in after:
                            return True
                    else:
                        further += [(*walked, node) for node in after if node not in walked and node != tail]
                if len(further) > MOST_WALKS:
                    return bool(path.alike)  # too many to follow: not checked
            walks = further
        return False


def summary(name: str, checked: Sequence[Checked]) -> dict[str, Any]:
    paths = [path for each in checked for path in each.explanation.paths]
    return {
        "bench": name,
        "explanations": len(checked),
        "paths": len(paths),
        "hops": float(np.mean([len(path.steps) for path in paths])),
        "with a direct edge": sum(each.direct for each in checked),
        **{fault: sum(fault in each.faults for each in checked) for fault in FAULTS},
        "CPU ms": 1000 * median(each.seconds for each in checked),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="*", default=BENCHMARKS)
    parser.add_argument("--each", type=int, default=125, help="explanations of each benchmark")
    parser.add_argument("--shown", type=int, default=5, help="of each benchmark")
    parser.add_argument("--shots", type=int, default=3)
    options = parser.parse_args()
    for name in options.benchmarks:
        benchmark = open_benchmark(name)
        checked = list(sample(benchmark, Linker.shipped(benchmark), options.each, options.shots))
        row = summary(benchmark.name, checked)
        print_table([row])
        for found in checked:
            if found.faults:
                print(found.relation, sorted(found.faults), *found.explanation.lines(), sep="\n", end="\n\n")
        places = np.linspace(0, len(checked) - 1, options.shown).astype(int)
        texts = [text_of(checked[place]) for place in places]
        for text in texts:
            print(*text, sep="\n", end="\n\n")
        before = read_record("explanation-check") or {"rows": [], "shown": {}}
        others = [other for other in before["rows"] if other["bench"] != benchmark.name]
        shown = {**before["shown"], benchmark.name: texts}
        write_record(
            "explanation-check", {"shots": options.shots, "seed": SEED, "rows": [*others, row], "shown": shown}
        )


def text_of(checked: Checked) -> list[str]:
    return [f"{checked.relation}, given {checked.references}", *checked.explanation.lines()]


if __name__ == "__main__":
    main()
