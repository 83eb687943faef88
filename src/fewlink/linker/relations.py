"""Which relation of a graph holds between two entities.

First the kinds of the two entities, as told by the relations and types that they have, leave some relations; for these
the evidence of `check` is read: paths, entities like the two, and kinds. A triple that is in the graph is left out of
the evidence for it, so that knowing it is no proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fewlink.core.seeds import generator
from fewlink.data.candidates import open_candidates
from fewlink.graph import Graph
from fewlink.linker.check import (
    LEAST,
    OTHERS,
    RelationReading,
    RelationWeights,
    fit_all,
    fit_relation,
    read_relation,
    typical_relations,
)
from fewlink.linker.evidence import QueriedPairs, slot_table, slot_weights
from fewlink.linker.query import References
from fewlink.linker.ranking import score_heads
from fewlink.linker.tables import Answers
from fewlink.scorers import Question, Scorer

GOOD_FIT = 0.5  # if no relation reaches it, the answer says so
KEPT = 20  # relations whose evidence is read for a pair
FITTED = 300  # triples of a relation that its weights are fitted to
NONE = -1  # no entity
OCCURS = 4.0  # what it counts that the head has the relation to others, or the tail from others


@dataclass(frozen=True)
class RelationFit:
    """A relation and how well it fits a pair, from 0 to 1.

    `known`: the graph has it between the two; `by`: "graph", or "references" if references describe it.
    """

    relation: str
    relation_name: str
    fit: float
    known: bool
    by: str


def best_relations(graph: Graph, head: int, tail: int, described: Mapping[str, float], k: int) -> Answers[RelationFit]:
    """The k relations that fit a pair best: those of the graph, and described ones with their fits."""
    rows = [
        RelationFit(graph.relations[relation], graph.relation_name(relation), fit, known, "graph")
        for relation, fit, known in graph.once(RelationFinder).rank(head, tail)
    ]
    rows += [RelationFit(name, name, fit, False, "references") for name, fit in described.items()]
    best = sorted(rows, key=lambda row: -row.fit)[:k]
    notes = ["no relation fits well"] if not best or best[0].fit < GOOD_FIT else []
    return Answers(tuple(best), notes)


def described_fit(scorer: Scorer, graph: Graph, references: References, head: int, tail: int) -> float:
    """How well a relation described by references fits a pair: the share of entities like the references' tails that
    are no better tail, times the same for heads."""
    fit = 1.0
    for each, asked, found in ((references, head, tail), (references.inverted(), tail, head)):
        candidates = np.union1d(open_candidates(graph, each.ids), [found]).astype(np.int32)
        question = Question("", each.ids, np.array([asked], np.int32), candidates)
        (_, scores), *_ = score_heads(scorer, question)
        fit *= float((scores <= scores[candidates == found]).mean())
    return fit


class Fit(NamedTuple):
    """How well a relation fits a pair: `fit` from 0 to 1; `known`: whether the graph has the triple."""

    relation: int
    fit: float
    known: bool


class RelationFinder:
    """Ranks the relations of a graph for pairs; what is read of a relation is kept for further pairs."""

    def __init__(self, graph: Graph, kept: int = KEPT, seed: int = 0) -> None:
        self.graph, self.kept, self.seed = graph, kept, seed
        self.counts = np.bincount(graph.triples()[:, 1], minlength=len(graph.relations))
        self._read: dict[int, RelationReading] = {}
        self._fitted: dict[int, RelationWeights] = {}
        self._kinds = _kind_weights(graph)
        self._all = fit_all([self._reading(relation) for relation in typical_relations(self.counts)[:OTHERS]])

    def rank(self, head: int, tail: int) -> list[Fit]:
        """The relations from head to tail, the best first; those whose kinds do not fit are left out."""
        known = self._known(head, tail)
        chosen = self.plausible(head, tail, known)
        fits = [Fit(r, self._fit(r, head, tail, r in known), r in known) for r in chosen]
        return sorted(fits, key=lambda each: -each.fit)

    def plausible(self, head: int, tail: int, known: Sequence[int] = ()) -> list[int]:
        """The relations that fit the kinds of head and tail best, and those that the graph has between them."""
        table, _ = slot_table(self.graph)
        scores, count = np.zeros(len(self.counts)), len(self.counts)
        for (weights, base), end, own in zip(self._kinds, (head, tail), (0, count), strict=True):
            worth = weights @ table[end] + base
            scores += np.sign(worth) * np.sqrt(np.abs(worth)) + OCCURS * table[end, own : own + count]
        scores[self.counts < LEAST] = -np.inf
        best = np.argsort(-scores, kind="stable")[: self.kept]
        return [*dict.fromkeys([*known, *best[np.isfinite(scores[best])].tolist()])]

    def _known(self, head: int, tail: int) -> list[int]:
        graph = self.graph
        edges = slice(int(graph.offsets[head]), int(graph.offsets[head + 1]))
        relations = graph.relation_ids[edges][graph.tail_ids[edges] == tail]
        return [int(r) for r in relations if r < len(graph.relations)]

    def _fit(self, relation: int, head: int, tail: int, known: bool) -> float:
        if self.counts[relation] < LEAST:
            return 0.0  # too few triples to compare with
        out = (head, tail) if known else (NONE, NONE)
        asked = QueriedPairs(*(np.array([each], np.int64) for each in (head, tail, *out)))
        if relation not in self._fitted:
            self._fitted[relation] = fit_relation(self._reading(relation), self._all)
        return float(self._fitted[relation].chances(self._reading(relation).ask(asked))[0])

    def _reading(self, relation: int) -> RelationReading:
        if relation not in self._read:
            triples = self.graph.triples()
            pairs = triples[triples[:, 1] == relation][:, [0, 2]]
            random = generator(self.seed, "relations", relation)
            self._read[relation] = read_relation(self.graph, relation, pairs, random, FITTED)
        return self._read[relation]


def _kind_weights(graph: Graph) -> list[tuple[np.ndarray, np.ndarray]]:
    """For heads and for tails, what each slot and type says for each relation (R, S), and for none at all (R,)."""
    table, _ = slot_table(graph)
    result = []
    for shift in (0, len(graph.relations)):
        weights = np.zeros((len(graph.relations), table.shape[1]), np.float32)
        base = np.zeros(len(graph.relations), np.float32)
        for relation in range(len(graph.relations)):
            members = graph.slots[relation + shift]
            if len(members):  # a pair without the relation lacks its slot, which is left out
                own, counts = [relation + shift], table[members].sum(0)
                weights[relation], base[relation] = slot_weights(graph, counts, len(members), own)
        result.append((weights, base))
    return result
