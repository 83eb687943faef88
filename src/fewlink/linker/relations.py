"""Find the relation that holds between two entities.

A first pass keeps the relations that suit the kinds of the two entities: the relations and types that they have. For
these, the evidence of `check` is read: paths, similar entities and kinds. A triple of the graph does not count as
evidence for itself.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fewlink.core.seeds import generator
from fewlink.graph import Graph
from fewlink.linker.check import (
    MIN_RELATIONS,
    MIN_TRIPLES,
    RelationReading,
    draw,
    fit_all,
    fit_relation,
    read_drawn,
    typical_relations,
)
from fewlink.linker.evidence import QueriedPairs, RelationEvidence, slot_table, slot_weights
from fewlink.linker.predictions import Answers
from fewlink.linker.query import References, Relation
from fewlink.linker.ranking import score_heads
from fewlink.models.contract import Question, Scorer
from fewlink.tasks import Benchmark
from fewlink.tasks.candidates import of_kind, open_candidates

GOOD_FIT = 0.5  # if no relation reaches it or is known, a note says so
MAX_READ = 20  # relations whose evidence is read for a pair
MAX_FITTED = 300  # triples of a relation to fit its weights to
MAX_COMPARED_PAIRS = 1_000  # of a relation, to choose an example from
NO_ENTITY = -1  # equals no id
HAS_RELATION = 4.0  # bonus if the head has the relation to other tails, or the tail from other heads


@dataclass(frozen=True)
class RelationFit:
    """A relation and how well it fits a pair, from 0 to 1.

    `known` says whether the graph has the triple; `by` is "graph", or "references" if references describe the relation.
    """

    relation: str
    relation_name: str
    fit: float
    known: bool
    by: str


def best_relations(graph: Graph, head: int, tail: int, described: Mapping[str, float], k: int) -> Answers[RelationFit]:
    """The k best relations of a pair, among those of the graph and `described` ones, each given with its fit."""
    rows = [
        RelationFit(graph.relations[relation], graph.relation_name(relation), fit, known, "graph")
        for relation, fit, known in graph.once(RelationFinder).rank(head, tail)
    ]
    rows += [RelationFit(name, name, fit, False, "references") for name, fit in described.items()]
    best = sorted(rows, key=lambda row: -row.fit)[:k]
    notes = [] if any(row.known or row.fit >= GOOD_FIT for row in rows) else ["no relation fits well"]
    return Answers(tuple(best), notes)


def described_fit(scorer: Scorer, graph: Graph, references: References, head: int, tail: int) -> float:
    """How well a relation that references describe fits a pair.

    It is the share of candidates for the head that score no higher than the tail, times the same share for the inverse.
    """
    fit = 1.0
    for directed, query, answer in ((references, head, tail), (references.inverted(), tail, head)):
        candidates = np.union1d(open_candidates(graph, directed.ids), [answer]).astype(np.int32)
        question = Question("", directed.ids, np.array([query], np.int32), candidates)
        (_, scores), *_ = score_heads(scorer, question)
        fit *= float((scores <= scores[candidates == answer]).mean())
    return fit


class RankedRelation(NamedTuple):
    """How well a relation fits a pair, from 0 to 1, and whether the graph has the triple."""

    relation: int
    fit: float
    known: bool


class RelationFinder:
    """Ranks the relations of a graph for pairs; the evidence of each relation is read once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.counts = np.bincount(graph.triples()[:, 1], minlength=len(graph.relations))
        self._read: dict[int, tuple[RelationEvidence, RelationReading]] = {}
        self._kinds = _kind_weights(graph)
        self._all = fit_all([self._reading(relation)[1] for relation in typical_relations(self.counts)[:MIN_RELATIONS]])

    def rank(self, head: int, tail: int) -> list[RankedRelation]:
        """The relations that may hold from head to tail, the best first: the known ones, and those that suit the kinds
        of both best."""
        table, _ = self.graph.once(slot_table)
        count = len(self.counts)
        scores = np.zeros(count)
        for (weights, base), end, own in zip(self._kinds, (head, tail), (0, count), strict=True):
            worth = weights @ table[end] + base
            scores += np.sign(worth) * np.sqrt(np.abs(worth)) + HAS_RELATION * table[end, own : own + count]
        scores[self.counts < MIN_TRIPLES] = -np.inf
        best = np.argsort(-scores, kind="stable")[:MAX_READ]
        known = [relation for relation in self.graph.between(head, tail).tolist() if relation < count]
        chosen = dict.fromkeys([*known, *best[np.isfinite(scores[best])].tolist()])
        fits = [RankedRelation(r, self._fit(r, head, tail, r in known), r in known) for r in chosen]
        return sorted(fits, key=lambda each: -each.fit)

    def _fit(self, relation: int, head: int, tail: int, known: bool) -> float:
        if self.counts[relation] < MIN_TRIPLES:
            return 0.0  # too few triples to compare with
        left_out = (head, tail) if known else (NO_ENTITY, NO_ENTITY)
        pair = QueriedPairs(*(np.array([entity], np.int64) for entity in (head, tail, *left_out)))
        evidence, reading = self._reading(relation)
        columns = evidence.columns(pair, reading.paths.columns(*evidence.paths(pair), 1))
        return float(fit_relation(reading, self._all).chances(columns)[0])

    def _reading(self, relation: int) -> tuple[RelationEvidence, RelationReading]:
        if relation not in self._read:
            drawn = draw(self.graph, relation, generator(0, "relations", relation), MAX_FITTED)
            evidence = RelationEvidence(self.graph, relation, drawn.pairs)
            self._read[relation] = (evidence, read_drawn(evidence, drawn))
        return self._read[relation]


def _kind_weights(graph: Graph) -> list[tuple[np.ndarray, np.ndarray]]:
    """For heads and for tails, the weight of each slot and type for each relation (R, S), and the base (R,)."""
    table, _ = graph.once(slot_table)
    result = []
    for shift in (0, len(graph.relations)):
        weights = np.zeros((len(graph.relations), table.shape[1]), np.float32)
        base = np.zeros(len(graph.relations), np.float32)
        for relation in range(len(graph.relations)):
            members = graph.slots[relation + shift]
            if len(members):  # a pair without the relation lacks its slot, which is left out
                own = [relation + shift]
                counts = table[members].sum(0)
                weights[relation], base[relation] = slot_weights(graph, counts, len(members), own)
        result.append((weights, base))
    return result


@dataclass(frozen=True, eq=False)
class RelationSummary:
    """A relation with its number of pairs and heads. `split` is that of a task relation, not in the graph."""

    relation: Relation
    pairs: int
    heads: int
    split: str | None = None

    @functools.cached_property
    def of_kind(self) -> int:
        """The number of entities of the heads' kind, heads included: those that `Linker.complete` asks about."""
        return int(of_kind(self.relation.graph, self._head_ids, ignored=self.relation.number).sum())

    @property
    def lacking(self) -> int:
        """The number of entities of the heads' kind without a tail: 0 if the relation looks complete."""
        return self.of_kind - self.heads

    @functools.cached_property
    def type(self) -> str | None:
        """The type that most heads have; None if they have none."""
        table = self.relation.graph.types
        types = np.zeros(0, int) if table is None else table.all_of(self._head_ids)
        return table.names[int(np.bincount(types).argmax())] if table is not None and len(types) else None

    @functools.cached_property
    def example(self) -> tuple[int, int]:
        """The pair of ids whose ends have most edges, so that readers may know them."""
        pairs = self.relation.pairs()[:MAX_COMPARED_PAIRS]
        head, tail = pairs[np.argmax(self.relation.graph.degrees_of(pairs).min(axis=1))].tolist()
        return head, tail

    @property
    def _head_ids(self) -> np.ndarray:
        if self.relation.number >= 0:
            return self.relation.graph.slots[self.relation.number]
        return np.unique(self.relation.pairs()[:, 0])


def overview(benchmark: Benchmark) -> list[RelationSummary]:
    """The relations of a graph, then the task relations of a benchmark; those without pairs are left out."""
    graph = benchmark.graph
    sizes = np.bincount(graph.relation_ids, minlength=len(graph.relations)).tolist()
    facts = [
        RelationSummary(Relation(name, graph, None, number), sizes[number], len(graph.slots[number]))
        for number, name in enumerate(graph.relations)
    ]
    for split, tasks in benchmark.tasks.items():
        for task in tasks:
            relation = Relation(task.name, graph, task, trained=split == "train")
            facts.append(RelationSummary(relation, len(task.pairs), len(np.unique(task.pairs[:, 0])), split))
    return [one for one in facts if one.pairs]
