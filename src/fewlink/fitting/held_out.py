"""Held-out questions: what a fit chooses on, and what it expects.

A graph with enough relations hides some of them entirely; they are asked about as a user asks about a new relation,
with 3, 30 and all other pairs as references. A graph with few relations hides some pairs of each instead; they are
asked about as a user asks about a relation of the graph, with all other pairs as references. To weigh an embedding
model, some pairs of relations with many are hidden before. No scorer reads or learns from what is held out. The first
half of each relation's queries is for choosing, the second half for what to expect.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fewlink.core.errors import FewlinkError
from fewlink.core.progress import progress
from fewlink.core.seeds import generator
from fewlink.evaluation import Protocol
from fewlink.evaluation.evaluator import rank_task, summarise
from fewlink.graph import Graph
from fewlink.models.contract import GraphScorer, Scorer
from fewlink.tasks import Benchmark, Task
from fewlink.tasks.benchmark import sorted_pairs
from fewlink.tasks.candidates import likely_tails
from fewlink.tasks.carving import pairs_by_relation, twins_of

SHOTS = (3, 30)  # numbers of references beside all
ALL = "all"
ANY = "any"
KNOWN = "known"  # relations of the graph with many pairs
MIN_PAIRS = 10  # of a held-out relation
MAX_RELATIONS = 16  # held out: enough to choose a scorer on, and all others are left to learn from
MIN_NEW = 6  # relations that must be hidden entirely; if they are fewer, pairs are hidden instead
NEW_SHARE = 1 / 3  # of the relations, and of the triples, that are hidden entirely at most
PAIRS_SHARE = 1 / 3  # of a relation's pairs that are hidden at most
MAX_QUERIES = 60  # of a relation, for choosing and for what to expect together
LARGE = 100  # pairs of a relation that an embedding model is weighed on, at least
MAX_LARGE = 24  # such relations
LARGE_SHARE = 0.1  # of the pairs of such a relation that are hidden
MAX_OF_LARGE = 200  # of the pairs of such a relation that are hidden at most
CHOOSING = 0  # the first half of the queries
EXPECTING = 1  # the second half
Ranks = dict[str, list[float]]  # of a relation's queries, by the number of references


class Estimate(NamedTuple):
    """A mean over relations and its standard error."""

    mean: float
    error: float


def hold_out(graph: Graph, name: str, seed: int) -> Benchmark:
    """A benchmark whose dev relations are hidden entirely, or, where relations are few, some of their pairs.

    All ids stay the same. The pairs of a dev relation are three references and its queries; its other known pairs can
    be references too.
    """
    shuffled, twins = _shuffled(graph, seed)
    new = dict[int, np.ndarray]()
    hidden = 0
    for relation, own in shuffled.items():
        fits = hidden + len(own) <= NEW_SHARE * graph.triple_count
        if fits and len(new) < min(MAX_RELATIONS, NEW_SHARE * len(shuffled)):
            new[relation] = own
            hidden = hidden + len(own)
    held = _held(graph, name, new, new, twins)
    return held if len(held.split("dev")) >= MIN_NEW else hold_out_pairs(graph, name, seed)


def hold_out_pairs(graph: Graph, name: str, seed: int) -> Benchmark:
    """A benchmark that hides some pairs of its dev relations, which the graph still has."""
    shuffled, twins = _shuffled(graph, seed)
    some = dict(list(shuffled.items())[:MAX_RELATIONS])
    held = _held(graph, name, some, {r: own[: _most_queries(own)] for r, own in some.items()}, twins)
    if not held.split("dev"):
        raise FewlinkError(
            f"nothing can be held out: none of the {len(graph.relations):,} relations has {MIN_PAIRS} pairs "
            "of entities that other relations join as well"
        )
    return held


def hold_out_of_large(graph: Graph, name: str, seed: int) -> Benchmark:
    """A benchmark that hides some pairs of large relations; it has no dev relations if the graph has no large one."""
    shuffled, twins = _shuffled(graph, seed)
    large = dict([(r, own) for r, own in shuffled.items() if len(own) >= LARGE][:MAX_LARGE])
    hidden = {r: own[: min(MAX_OF_LARGE, int(LARGE_SHARE * len(own)))] for r, own in large.items()}
    return _held(graph, name, large, hidden, twins)


def _shuffled(graph: Graph, seed: int) -> tuple[dict[int, np.ndarray], dict[int, tuple[str, int]]]:
    """The usable relations and their pairs in random order, and the exact twins of relations."""
    rng = generator(seed, "hold out")
    pairs = pairs_by_relation(graph)
    usable = [relation for relation, own in pairs.items() if _usable(graph, own)]
    twins = twins_of(pairs, usable)
    return {r: rng.permutation(pairs[r]) for r in rng.permutation(usable).tolist() if r not in twins}, twins


def _usable(graph: Graph, pairs: np.ndarray) -> bool:
    """Whether a relation has enough pairs of entities that other relations join as well, and two tails."""
    here = np.bincount(pairs.flatten(), minlength=len(graph.entities))
    joined = (graph.degrees > here)[pairs].all(1)
    return int(joined.sum()) >= MIN_PAIRS and len(np.unique(pairs[:, 1])) > 1


def _most_queries(pairs: np.ndarray) -> int:
    return min(MAX_QUERIES, int(PAIRS_SHARE * len(pairs)))


def _held(
    graph: Graph,
    name: str,
    pairs: Mapping[int, np.ndarray],
    hidden: Mapping[int, np.ndarray],
    twins: Mapping[int, tuple[str, int]],
) -> Benchmark:
    """The benchmark of relations with these shuffled pairs, of which some are hidden, in exact twins as well."""
    removed = dict(hidden)
    for twin, (how, relation) in twins.items():
        if relation in hidden:
            removed[twin] = hidden[relation][:, ::-1] if how == "inverse" else hidden[relation]
    rest = _without(graph, removed)
    tasks = [_task(rest, graph.relations[relation], own, hidden[relation]) for relation, own in pairs.items()]
    return Benchmark(name, rest, {"train": [], "dev": [task for task in tasks if task], "test": []})


def _without(graph: Graph, removed: Mapping[int, np.ndarray]) -> Graph:
    """The graph without these pairs of relations; relations of which nothing is left are no longer named."""
    triples = graph.triples()
    kept = np.ones(len(triples), bool)
    for relation, pairs in removed.items():
        own = np.flatnonzero(triples[:, 1] == relation)
        kept[own] &= ~_among(triples[own][:, [0, 2]], pairs)
    rest = Graph.of(graph.entities, graph.relations, triples[kept], types=graph.types, labels=graph.labels)
    return rest.renumbered(np.arange(len(graph.entities)), np.unique(triples[kept][:, 1]))


def _task(graph: Graph, name: str, pairs: np.ndarray, hidden: np.ndarray) -> Task | None:
    """The task of a relation with these shuffled pairs, of which some are hidden, if `graph` is what remains.

    None if too few of them are joined to anything by the graph.
    """
    queries = hidden[(graph.degrees[hidden] > 0).all(1)]
    if len(hidden) == len(pairs):  # the others are references
        queries = queries[: _most_queries(pairs)]
    task = Task(name, queries, sorted_pairs(pairs), likely_tails(graph, pairs[:, 1]))
    references = _references(graph, task, queries)[: SHOTS[0]]
    if len(references) < SHOTS[0] or len(queries) < 2:
        return None
    return dataclasses.replace(task, pairs=np.concatenate([references, queries]))


def _references(graph: Graph, task: Task, queries: np.ndarray) -> np.ndarray:
    """All pairs of a held-out relation that are not asked about, shuffled, if the graph joins both ends to others."""
    known = task.known[(graph.degrees[task.known] > 0).all(1)]
    return generator(0, "references", task.name).permutation(known[~_among(known, queries)])


def _among(pairs: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Whether each pair (n, 2) is also in `others`."""
    keys = [(each[:, 0].astype(np.int64) << 32) + each[:, 1] for each in (pairs, others)]
    return np.isin(*keys)


def hides_relations(benchmark: Benchmark) -> bool:
    """Whether relations are held out entirely, and not only some of their pairs."""
    return all(benchmark.graph.relations.find(task.name) is None for task in benchmark.split("dev"))


def questions(benchmark: Benchmark, task: Task, half: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """References and queries of a held-out relation, by the number of references, for one half of its queries.

    The queries of a new relation are asked in turn with 3, 30 and all references, as far as it has that many.
    """
    queries = task.pairs[SHOTS[0] :]
    references = _references(benchmark.graph, task, queries)
    new = benchmark.graph.relations.find(task.name) is None
    counts = {str(shots): shots for shots in SHOTS if new and shots < len(references)} | {ALL: len(references)}
    first = int(
        generator(0, "questions", task.name).integers(len(counts))
    )  # few queries reach all numbers of references
    asked = {name: queries[half::2][(first + place) % len(counts) :: len(counts)] for place, name in enumerate(counts)}
    return {name: (references[: counts[name]], own) for name, own in asked.items() if len(own)}


def relation_ranks(benchmark: Benchmark, task: Task, scorer: Scorer, half: int) -> Ranks:
    """The ranks of one half of a relation's queries among `open` candidates, by the number of references."""
    if isinstance(scorer, GraphScorer) and benchmark.graph.relations.find(task.name) is not None:
        scorer = scorer.without(task.name)  # its pairs are the references
    ranks = {}
    for name, (references, queries) in questions(benchmark, task, half).items():
        asked = dataclasses.replace(task, pairs=np.concatenate([references, queries]))
        protocol = Protocol("dev", len(references), "open")
        ranks[name] = rank_task(benchmark.graph, scorer, asked, protocol).ranks.tolist()
    return ranks


def rank_held_out(benchmark: Benchmark, scorers: Sequence[Scorer], half: int, until: float) -> list[list[Ranks]]:
    """The ranks of held-out relations by each scorer: a list of relations for each.

    Relations are asked about one after the other until a time of the monotonic clock, the first one in any case.
    """
    tasks = benchmark.split("dev")
    begin = time.monotonic()
    found = [list[Ranks]() for _ in scorers]
    with progress("scoring", len(tasks)) as advance:
        for done, task in enumerate(tasks):
            now = time.monotonic()
            if done and now + (now - begin) / done > until:
                break
            for ranks, scorer in zip(found, scorers, strict=True):
                ranks.append(relation_ranks(benchmark, task, scorer, half))
            advance(done + 1, f"{done + 1} of {len(tasks)} relations")
    return found


def cut_benchmark(benchmark: Benchmark, relations: int, queries: int) -> Benchmark:
    """The benchmark with only its first held-out relations, and only the first queries of each."""
    dev = [dataclasses.replace(t, pairs=t.pairs[: SHOTS[0] + queries]) for t in benchmark.split("dev")[:relations]]
    return dataclasses.replace(benchmark, tasks={**benchmark.tasks, "dev": dev})


def figures_of(ranks: Sequence[Ranks]) -> dict[str, float]:
    """Means over relations of MRR, Hits@1 and Hits@10, and the numbers of relations and queries.

    The standard error of MRR is `error`, which is missing if relations, or queries of each, are too few to know it.
    """
    flat = [np.concatenate([*relation.values()]) for relation in ranks]
    rows = [summarise(each, each) for each in flat]
    figures = {name: float(np.mean([row[name] for row in rows])) for name in ("mrr", "hits@1", "hits@10")}
    relations = len(flat)
    queries = sum(map(len, flat))
    if math.isfinite(error := estimate([row["mrr"] for row in rows]).error) and queries >= 2 * relations:
        figures["error"] = error
    return {**figures, "relations": relations, "queries": queries}


def figures_by_shots(ranks: Sequence[Ranks]) -> dict[str, dict[str, float]]:
    """`figures_of` for each number of references, and for any if there are several."""
    names = [name for name in (*map(str, SHOTS), ALL) if any(name in relation for relation in ranks)]
    by_shots = {name: figures_of([{name: each[name]} for each in ranks if name in each]) for name in names}
    return {**by_shots, ANY: figures_of(ranks)} if len(names) > 1 else by_shots


def gain(before: Sequence[Ranks], after: Sequence[Ranks]) -> Estimate:
    """The mean over relations of the difference in MRR, and its error, given the ranks of the same queries."""
    return estimate([figures_of([b])["mrr"] - figures_of([a])["mrr"] for a, b in zip(before, after, strict=True)])


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of values of relations, and its standard error.

    It is widened as the standard deviation of Student's t with n − 1 degrees of freedom is, by √((n − 1) / (n − 3)),
    and is infinite for three relations or fewer: twice the error is then a 95 % interval for any number of relations.
    """
    count = len(values)
    if count <= 3:
        return Estimate(float(np.mean(values)), math.inf)
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1) / (count * (count - 3) / (count - 1)) ** 0.5))
