"""How odd each triple of a relation is: an error finder that needs no training and no model.

Every triple is compared with made-up wrong ones. Two logistic regressions tell them apart: one against pairs whose head
or tail is another one of the relation, one against pairs whose head or tail is any entity. Each relation has its own
weights, drawn towards those of all relations together. A triple is odd if either takes it for a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fewlink.core.errors import FewlinkError
from fewlink.core.seeds import generator
from fewlink.data import Benchmark
from fewlink.data.training_graph import known_graph
from fewlink.graph import Graph
from fewlink.linker.evidence import COLUMNS, PathWorth, QueriedPairs, RelationEvidence
from fewlink.linker.logistic import fit_logistic
from fewlink.linker.query import find_relation
from fewlink.linker.tables import Answers

FITTED = 1000  # triples of a relation that weights are fitted to
MADE_UP = 3  # wrong pairs of each kind, for each of them and each of its ends
LEAST = 3  # triples of a relation that can be checked
TYPICAL = 500  # triples of a relation of middle size
OTHERS = 12  # other relations that are read for weights if few relations are checked
TOWARDS = 5.0  # ridge penalty on the difference from the weights of all relations
RIDGE, RELATION_WORTH = 1.0, 100.0  # of the weights of all relations, in which each relation counts as so many rows
MOST = 5.0  # deviations from the mean that are read
TRUE, SAME_KIND, ANY_ENTITY = 0, 1, 2
WORDS = {
    "tail by head": "entities like the head have other tails",
    "head by tail": "entities like the tail have other heads",
    "paths": "no path of other relations joins the two as it joins other pairs",
    "slots of tail": "the tail is of another kind than the other tails",
    "slots of head": "the head is of another kind than the other heads",
    "slots together": "the kind of the tail does not go with the kind of the head",
    "log": "head or tail are rare in this relation",
}


@dataclass(frozen=True)
class CheckedTriple:
    """A triple of the graph, how odd it is (near 0 it fits, near 1 it looks like a made-up pair), and why."""

    oddness: float
    head: str
    head_name: str
    relation: str
    relation_name: str
    tail: str
    tail_name: str
    reason: str


def check(
    benchmark: Benchmark, relation: str | None, top: int | None, on_relation: Callable[[int], None]
) -> Answers[CheckedTriple]:
    """The work of `Linker.check`, which describes the arguments."""
    graph = known_graph(benchmark)
    numbers = None
    if relation is not None:
        named = find_relation(benchmark, relation)
        number = graph.relations.find(named.name)
        if number is None:  # a relation of dev or test
            number = len(graph.relations)
            graph = graph.with_relations([named.name], np.insert(named.pairs(), 1, number, axis=1))
        numbers = [number]
        if (count := int((graph.relation_ids == number).sum())) < LEAST:
            raise FewlinkError(f"{relation} has {count} triples: checking needs at least {LEAST} to compare")
    return odd_triples(graph, check_relations(graph, numbers, on_relation=on_relation), top)


def odd_triples(graph: Graph, checked: Sequence[OddTriples], top: int | None = None) -> Answers[CheckedTriple]:
    """The oddest triples of all relations that were checked."""
    sizes = [len(each.heads) for each in checked]
    of = np.repeat(np.arange(len(checked)), sizes)
    within = np.concatenate([np.arange(size) for size in sizes]) if sizes else of
    oddness = np.concatenate([each.oddness for each in checked]) if sizes else np.zeros(0)
    rows = []
    for place in np.argsort(-oddness, kind="stable")[:top].tolist():
        odd, i = checked[of[place]], int(within[place])
        head, tail = int(odd.heads[i]), int(odd.tails[i])
        rows.append(
            CheckedTriple(
                oddness=float(odd.oddness[i]),
                head=graph.entities[head],
                head_name=graph.name(head),
                relation=graph.relations[odd.relation],
                relation_name=graph.relation_name(odd.relation),
                tail=graph.entities[tail],
                tail_name=graph.name(tail),
                reason=WORDS[odd.reasons[i]],
            )
        )
    notes = [] if checked else [f"no relation has {LEAST} triples or more: fewer cannot be compared"]
    return Answers(tuple(rows), tuple(notes))


class OddTriples(NamedTuple):
    """The triples of one relation, the oddest first.

    Shapes: `heads`, `tails` (n,) entities; `oddness` (n,) from 0 to 1; `reasons` (n,), keys of `WORDS`.
    """

    relation: int
    heads: np.ndarray
    tails: np.ndarray
    oddness: np.ndarray
    reasons: Sequence[str]


@dataclass(frozen=True)
class RelationReading:
    """The evidence of one relation: its n triples come first, then made-up pairs.

    Shapes: `columns` (m, COLUMNS); `kinds` (m,) TRUE, SAME_KIND or ANY_ENTITY; `fitted` (m,) bool, what weights are
    fitted to.
    """

    relation: int
    pairs: np.ndarray
    columns: np.ndarray
    kinds: np.ndarray
    fitted: np.ndarray
    evidence: RelationEvidence
    paths: PathWorth

    def ask(self, asked: QueriedPairs) -> np.ndarray:
        """The evidence (n, COLUMNS) for pairs that weights are not fitted to."""
        return self.evidence.columns(asked, self.paths.columns(*self.evidence.paths(asked), len(asked.heads)))


def check_relations(
    graph: Graph,
    relations: Sequence[int] | None = None,
    seed: int = 0,
    on_relation: Callable[[int], None] = lambda done: None,
) -> list[OddTriples]:
    """The triples of these relations of a graph, by default of all, each relation with the oddest first.

    Relations of under three triples are left out. `on_relation` is called with the number of relations read.
    """
    triples = graph.triples()
    counts = np.bincount(triples[:, 1], minlength=len(graph.relations))
    asked = [r for r in (range(len(counts)) if relations is None else relations) if counts[r] >= LEAST]
    others = [relation for relation in typical_relations(counts) if relation not in asked]
    random = generator(seed, "check")
    read = []
    for number, relation in enumerate([*asked, *others[: max(0, OTHERS - len(asked))]]):
        read.append(read_relation(graph, relation, triples[triples[:, 1] == relation][:, [0, 2]], random))
        on_relation(min(number + 1, len(asked)))
    of_all = fit_all(read)
    return [weigh(each, fit_relation(each, of_all)) for each in read[: len(asked)]]


def typical_relations(counts: np.ndarray) -> list[int]:
    """Relations that can be checked, those of middle size first: they say enough and are read soon."""
    apart = np.abs(np.log(np.maximum(counts, 1) / TYPICAL))
    return [int(r) for r in np.argsort(apart, kind="stable") if counts[r] >= LEAST]


def read_relation(
    graph: Graph, relation: int, pairs: np.ndarray, random: np.random.Generator, most: int = FITTED
) -> RelationReading:
    """The evidence for the pairs (n, 2) of a relation and for wrong ones made up from at most so many of them."""
    pairs = pairs.astype(np.int64)
    some = random.permutation(len(pairs))[:most]
    made_up, kinds = _wrong_pairs(pairs, some, len(graph.entities), random)
    asked = QueriedPairs.joined(QueriedPairs(*pairs.T, *pairs.T), made_up)
    kinds = np.concatenate([np.full(len(pairs), TRUE), kinds])
    fitted = kinds != TRUE
    fitted[some] = True
    evidence = RelationEvidence(graph, relation, pairs)
    joining = evidence.paths(asked)
    paths = PathWorth.of(*joining, kinds == TRUE, fitted)
    columns = evidence.columns(asked, paths.columns(*joining, len(kinds), kinds == TRUE, fitted))
    return RelationReading(relation, pairs, columns, kinds, fitted, evidence, paths)


def _wrong_pairs(
    pairs: np.ndarray, some: np.ndarray, entities: int, random: np.random.Generator
) -> tuple[QueriedPairs, np.ndarray]:
    """Some pairs with another head or tail, and the kind of each: another one of the relation, or any entity."""
    known = np.unique(pairs[:, 0] * entities + pairs[:, 1])
    parts, kinds = [], []
    for end in (1, 0):
        ends = np.unique(pairs[:, end])
        for kind in MADE_UP * (SAME_KIND, ANY_ENTITY):
            new = pairs[some]
            chosen = random.integers(len(ends) if kind == SAME_KIND else entities, size=len(some))
            new[:, end] = ends[chosen] if kind == SAME_KIND else chosen
            wrong = ~np.isin(new[:, 0] * entities + new[:, 1], known)
            parts.append(QueriedPairs(*new[wrong].T, *pairs[some[wrong]].T))
            kinds.append(np.full(int(wrong.sum()), kind))
    return QueriedPairs.joined(*parts), np.concatenate(kinds)


class RelationWeights(NamedTuple):
    """Weights against wrong pairs of the same kind and against any (2, 1 + COLUMNS), and how columns are scaled."""

    weights: np.ndarray
    mean: np.ndarray
    spread: np.ndarray

    def scaled(self, columns: np.ndarray) -> np.ndarray:
        values = np.clip((columns - self.mean) / self.spread, -MOST, MOST)
        return np.column_stack([np.ones(len(columns)), values])

    def logits(self, columns: np.ndarray) -> np.ndarray:
        """Two of each pair (n, 2)."""
        return np.asarray(self.scaled(columns) @ self.weights.T)

    def chances(self, columns: np.ndarray) -> np.ndarray:
        """How well pairs fit (n,), from 0 to 1: both regressions take them for right ones."""
        return np.asarray(np.exp(-np.logaddexp(0, -self.logits(columns)).sum(1)))


def fit_all(read: Sequence[RelationReading]) -> RelationWeights:
    """Weights for all relations together, in which each counts the same."""
    every = np.concatenate([np.zeros((1, len(COLUMNS))), *(each.columns[each.fitted] for each in read)])
    scale = RelationWeights(np.zeros((2, 1 + len(COLUMNS))), every.mean(0), every.std(0) + 1e-9)
    for number, kind in enumerate((SAME_KIND, ANY_ENTITY)):
        parts = [_rows(each, kind, scale) for each in read]
        if parts:
            features, right, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
            scale.weights[number] = fit_logistic(features, right, RELATION_WORTH * counts, RIDGE)
    return scale


def fit_relation(read: RelationReading, of_all: RelationWeights) -> RelationWeights:
    """Weights for one relation, drawn towards those of all."""
    weights = of_all.weights.copy()
    for number, kind in enumerate((SAME_KIND, ANY_ENTITY)):
        features, right, counts = _rows(read, kind, of_all)
        if not right.all():
            weights[number] = fit_logistic(features, right, len(right) * counts, TOWARDS, of_all.weights[number])
    return of_all._replace(weights=weights)


def _rows(read: RelationReading, kind: int, scale: RelationWeights) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What weights against one kind of wrong pairs are fitted to: features, whether right, and what each row counts."""
    of = read.fitted & np.isin(read.kinds, (TRUE, kind))
    right = read.kinds[of] == TRUE
    counts = np.where(right, 0.5 / max(1, right.sum()), 0.5 / max(1, (~right).sum()))
    return scale.scaled(read.columns[of]), right, counts


def weigh(read: RelationReading, fitted: RelationWeights) -> OddTriples:
    """The oddness of the triples of a relation."""
    columns = read.columns[: len(read.pairs)]
    chances, logits, scaled = fitted.chances(columns), fitted.logits(columns), fitted.scaled(columns)
    weights = fitted.weights[logits.argmin(1)]  # of the regression that takes the triple for a wrong one
    drawbacks = _drawbacks((scaled - np.median(scaled, 0)) * weights)
    order = np.argsort(chances, kind="stable")
    heads, tails = read.pairs[order].T
    return OddTriples(read.relation, heads, tails, 1 - chances[order], [drawbacks[i] for i in order.tolist()])


def _drawbacks(parts: np.ndarray) -> list[str]:
    """What speaks most against each triple, given what each column adds (n, 1 + COLUMNS): keys of `WORDS`."""
    keys = list(WORDS)
    sums = np.zeros((len(parts), len(keys)))
    for place, name in enumerate(COLUMNS, 1):
        key = next(number for number, each in enumerate(keys) if name.startswith(each))
        sums[:, key] += parts[:, place]
    return [keys[place] for place in sums.argmin(1).tolist()]
