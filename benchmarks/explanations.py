"""Explanations of TRAIL checked by deletion: do the named paths carry the score more than random ones?

    python benchmarks/explanations.py [BENCH …] [--weights FILE] [--heads 20] [--draws 3] [--shots 3]

For heads of dev and test relations, the best tail is explained, and the edges of the named paths are removed from the
graph. As a control, as many other edges are removed that lie on random paths between the same ends: from the head or
from an end of a reference to the tail, with as many hops as the named paths. A random path is drawn backwards from the
tail, without a node twice: at each node one of the edges through which a start is still reached in the hops that are
left, each with the same chance; where there is none, one of all edges. Its edges that are on named paths do not count,
and paths are drawn until there are enough edges; pairs without enough are left out and counted. References are never
removed, since they are part of the question.

Both removals are measured twice: with the relations' weights as they were, and with a graph from which the triples are
gone and everything is read again. Explanations with a node twice, or with the tail before the end, are counted. Names
are not read: the explanations are of the structure alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from fewlink.graph import Graph
from fewlink.models.contract import Question, Reasons, best_tails
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.network import TrailNetwork
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.shipped import read_weights, shipped
from fewlink.tasks import Benchmark, open_benchmark
from measure import print_table, write_record

Triples = set[tuple[int, int, int]]
SEED = 0


@dataclass(frozen=True)
class Deletion:
    """What the score of a pair loses without the named paths, and without each draw of random ones.

    `edges` is the number of triples of either; `named_again` and `random_again` are the figures with everything read
    again; `circular` counts paths with a node twice; `seconds` is the processor time of the explanation.
    """

    edges: int
    named: float
    random: tuple[float, ...]
    named_again: float
    random_again: tuple[float, ...]
    circular: int
    seconds: float


def triples_of(reasons: Reasons, relations: int) -> Triples:
    """The triples of the graph on the named paths, given the number of relations."""
    named = set()
    for (walked, _), entities in zip(reasons.paths, reasons.entities, strict=True):
        for before, relation, after in zip(entities, walked, entities[1:], strict=False):
            if relation < 2 * relations:
                named.add(forward(before, relation, after, relations))
    return named


def forward(before: int, relation: int, after: int, relations: int) -> tuple[int, int, int]:
    """An edge as a triple, inverse ones turned round."""
    return (before, relation, after) if relation < relations else (after, relation - relations, before)


def random_triples(
    graph: Graph, starts: np.ndarray, tail: int, lengths: Sequence[int], named: Triples, rng: np.random.Generator
) -> Triples:
    """As many triples as `named`, on random paths of these lengths; fewer if there are no more."""
    far = max(lengths) + 1
    begin = hops(np.asarray(graph.head_ids), np.asarray(graph.tail_ids), len(graph.entities), starts, far)
    drawn: Triples = set()
    for turn in range(20 * len(lengths)):
        node = tail
        visited = {tail}
        for left in range(lengths[turn % len(lengths)] - 1, -1, -1):
            at, _ = graph.edges_of(np.array([node]))
            at = at[~np.isin(graph.tail_ids[at], list(visited))]
            near = at[begin[graph.tail_ids[at]] <= left]
            if not len(at):
                break
            edge = rng.choice(near if len(near) else at)
            after = int(graph.tail_ids[edge])
            relation = int(graph.relation_ids[edge])
            drawn |= {forward(node, relation, after, len(graph.relations))} - named
            node = after
            visited.add(node)
            if len(drawn) == len(named):
                return drawn
    return drawn


def hops(sources: np.ndarray, targets: np.ndarray, nodes: int, begin: np.ndarray, far: int) -> np.ndarray:
    """How many edges each node is away from the nearest of `begin`, in either direction, or `far` if more: (nodes,)."""
    found = np.full(nodes, far)
    found[begin] = 0
    for distance in range(1, far):
        reached = targets[found[sources] == distance - 1]
        found[reached[found[reached] == far]] = distance
    return found


def deletions(
    benchmark: Benchmark, network: TrailNetwork, heads: int, draws: int, shots: int
) -> Iterator[Deletion | None]:
    """For the heads of dev and test relations with their best tails; None for pairs that are left out."""
    graph = benchmark.known_graph
    scorer = TrailScorer("trail", network, ReadGraph.of(graph, names=False))
    rng = np.random.default_rng(SEED)
    for task in (*benchmark.split("dev"), *benchmark.split("test")):
        references = np.asarray(task.pairs[:shots])
        asked = np.unique(task.pairs[shots:, 0])[:heads]
        best = best_tails(scorer, Question(task.name, references, asked, np.asarray(task.range)), 1)
        for head, ((tail, _),) in zip(asked.tolist(), best, strict=True):
            yield delete(scorer, graph, references, head, tail, draws, rng)


def delete(
    scorer: TrailScorer,
    graph: Graph,
    references: np.ndarray,
    head: int,
    tail: int,
    draws: int,
    rng: np.random.Generator,
) -> Deletion | None:
    """The deletion test of one pair; None if no named path has an edge of the graph, or there are no others."""
    began = time.process_time()
    reasons = scorer.explain(references, head, tail)
    seconds = time.process_time() - began
    named = triples_of(reasons, len(graph.relations))
    if not named:
        return None
    starts = np.unique([head, *references.flat])
    lengths = [len(walked) for walked, _ in reasons.paths]
    sets = [named, *(random_triples(graph, starts, tail, lengths, named, rng) for _ in range(draws))]
    if any(len(triples) < len(named) for triples in sets):
        return None
    pair = scorer.pair(references, head, tail)
    removals = [pair.both_ways(pair.places(*np.array(triples).T)) for triples in sets]
    whole = float(pair.score(*pair.states))
    left = pair.scores(removals).tolist()
    again = [score_without(scorer.network, graph, triples, references, head, tail) for triples in sets]
    return Deletion(
        len(named),
        whole - left[0],
        tuple(whole - score for score in left[1:]),
        whole - again[0],
        tuple(whole - score for score in again[1:]),
        sum(len(set(entities)) < len(entities) for entities in reasons.entities),
        seconds,
    )


def score_without(
    network: TrailNetwork, graph: Graph, triples: Triples, references: np.ndarray, head: int, tail: int
) -> float:
    """The score on a graph without these triples, with everything read again."""
    kept = np.array([triple for triple in graph.triples().tolist() if tuple(triple) not in triples], np.int32)
    smaller = ReadGraph.of(Graph.of(graph.entities, graph.relations, kept), names=False)
    question = Question("", references, np.array([head]), np.array([tail]))
    return float(TrailScorer("trail", network, smaller)(question)[0, 0])


def summary(name: str, pairs: Sequence[Deletion | None]) -> dict[str, Any]:
    """Means over pairs, and the share of draws in which the named paths lose more."""
    measured = [deletion for deletion in pairs if deletion is not None]

    def more(of: str) -> float:
        sides = [(getattr(d, f"named{of}"), other) for d in measured for other in getattr(d, f"random{of}")]
        return float(np.mean([named > other for named, other in sides]))

    def mean(values: Iterator[float]) -> float:
        return float(np.mean(list(values)))

    return {
        "bench": name,
        "pairs": len(measured),
        "left out": len(pairs) - len(measured),
        "triples removed": mean(float(d.edges) for d in measured),
        "named": mean(d.named for d in measured),
        "random": mean(r for d in measured for r in d.random),
        "named lose more": more(""),
        "named, read again": mean(d.named_again for d in measured),
        "random, read again": mean(r for d in measured for r in d.random_again),
        "named lose more, read again": more("_again"),
        "circular": sum(d.circular for d in measured),
        "CPU ms": 1000 * median(d.seconds for d in measured),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="*", default=["umls"])
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--heads", type=int, default=20, help="of each relation")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--shots", type=int, default=3)
    options = parser.parse_args()
    rows = []
    for name in options.benchmarks:
        benchmark = open_benchmark(name)
        weights = read_weights(options.weights.read_bytes(), options.weights.name) if options.weights else shipped()
        network = weights.network().eval()
        measured = list(deletions(benchmark, network, options.heads, options.draws, options.shots))
        rows.append(summary(benchmark.name, measured))
        print_table(rows[-1:])
    settings = {"heads": options.heads, "draws": options.draws, "shots": options.shots, "seed": SEED}
    write_record("explanations", {**settings, "rows": rows})


if __name__ == "__main__":
    main()
