"""Find triples that look wrong, without a model: the oddness of each triple of a relation.

Every triple is compared with negatives. Two logistic regressions separate them: one against pairs whose head or tail is
another one of the relation, one against pairs whose head or tail is any entity. Each relation has its own weights,
shrunk towards those of all relations together. A triple is odd if either regression classifies it as wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fewlink.core.engine import Engine
from fewlink.core.errors import FewlinkError
from fewlink.core.seeds import generator
from fewlink.graph import Graph
from fewlink.linker.evidence import COLUMNS, PathWorth, QueriedPairs, RelationEvidence
from fewlink.linker.predictions import Answers
from fewlink.linker.probability import fit_logistic
from fewlink.linker.query import find_relation
from fewlink.linker.reasons import drawn
from fewlink.tasks import Benchmark

MAX_FITTED = 1000  # triples of a relation to fit weights to
NEGATIVES = 3  # of each kind, for each of these triples and each of its ends
MIN_TRIPLES = 3  # of a relation that can be checked
TYPICAL = 500  # triples of a relation of medium size
MIN_RELATIONS = 12  # to fit the common weights to; if fewer are checked, others are added
RELATION_RIDGE = 5.0  # penalty on the difference from the weights of all relations
RIDGE = 1.0  # penalty on the weights of all relations
RELATION_ROWS = 100.0  # rows that a relation counts as when these are fitted
MAX_DEVIATION = 5.0  # standard deviations from the mean; larger values are clipped
TRUE = 0  # the kind of a row: a triple of the graph
SAME_KIND = 1  # one whose head or tail another of the relation's replaces
ANY_ENTITY = 2  # one whose head or tail any entity replaces
WORDS = {
    "tail by head": "entities like the head have other tails",
    "head by tail": "entities like the tail have other heads",
    "paths": "no path of other relations joins the two as it joins other pairs",
    "slots of tail": "the tail has other relations than the other tails",
    "slots of head": "the head has other relations than the other heads",
    "slots together": "the relations of the tail do not go with those of the head",
    "log count of tail": "the tail is unusually rare or common in this relation",
    "log count of head": "the head is unusually rare or common in this relation",
    "log degree of tail": "the tail has unusually few or many triples",
    "log degree of head": "the head has unusually few or many triples",
}
REASONS = tuple(WORDS.values())
ENDS = tuple(name.split()[-1] if " of " in name else name.split()[0] for name in WORDS)  # the end that looks wrong
MAX_TRIED = 50  # edges of an end, to draw a path from
ODD = 0.5  # oddness from which a triple has a reason
FITS = "nothing looks wrong"


@dataclass(frozen=True)
class CheckedTriple:
    """A triple of the graph, its oddness (0: it fits; 1: it looks wrong), and the reason if it looks wrong."""

    oddness: float
    head: str
    head_name: str
    relation: str
    relation_name: str
    tail: str
    tail_name: str
    reason: str


def check(
    benchmark: Benchmark,
    relation: str | None,
    top: int | None,
    on_relation: Callable[[int], None],
    engine: Engine | None = None,
) -> Answers[CheckedTriple]:
    """Check a relation of a benchmark, or all relations; `Linker.check` describes the arguments."""
    graph = benchmark.known_graph
    numbers = None
    if relation is not None:
        named = find_relation(benchmark, relation)
        number = graph.relations.find(named.name)
        if number is None:  # a relation of dev or test
            number = len(graph.relations)
            graph = graph.with_relations([named.name], np.insert(named.pairs(), 1, number, axis=1))
        numbers = [number]
        count = int((graph.relation_ids == number).sum())
        if count < MIN_TRIPLES:
            raise FewlinkError(f"{relation} has {count} triples: checking needs at least {MIN_TRIPLES}")
    odd = check_relations(graph, numbers, on_relation, engine)
    rows = []
    for (head, number, tail), oddness, column in zip(
        odd.triples[:top].tolist(), odd.oddness[:top].tolist(), odd.columns[:top].tolist(), strict=True
    ):
        reason = FITS
        if oddness >= ODD:
            if ENDS[column] == "head":
                path = contrast(graph, tail, number + len(graph.relations), head)
            else:
                path = contrast(graph, head, number, tail)
            reason = f"{REASONS[column]}: {path}" if path else REASONS[column]
        rows.append(
            CheckedTriple(
                oddness=oddness,
                head=graph.entities[head],
                head_name=graph.name(head),
                relation=graph.relations[number],
                relation_name=graph.relation_name(number),
                tail=graph.entities[tail],
                tail_name=graph.name(tail),
                reason=reason,
            )
        )
    notes = [] if rows else [f"nothing was checked: no relation has {MIN_TRIPLES} triples or more"]
    return Answers(tuple(rows), tuple(notes))


def contrast(graph: Graph, head: int, relation: int, tail: int) -> str:
    """A path drawn from the head over an entity like it to another tail of the relation, which may be an inverse one.

    It leads over the entity with the fewest edges that has such a path. Empty if there is none.
    """
    count = len(graph.relations)
    at, _ = graph.edges_of(np.array([head]))
    at = at[graph.tail_ids[at] != tail]
    for first in at[np.argsort(graph.degrees_of(graph.tail_ids[at]), kind="stable")][:MAX_TRIED].tolist():
        step = int(graph.relation_ids[first])
        shared = int(graph.tail_ids[first])
        back, _ = graph.edges_of(np.array([shared]))
        alike = np.unique(graph.tail_ids[back[graph.relation_ids[back] == (step + count) % (2 * count)]])
        alike = alike[alike != head]
        last, owners = graph.edges_of(alike)
        ends = graph.tail_ids[last]
        found = np.flatnonzero((graph.relation_ids[last] == relation) & ~np.isin(ends, [head, tail, shared]))
        if len(found):
            other = int(alike[owners[found[0]]])
            relations = (step, (step + count) % (2 * count), relation)
            return drawn(graph, relations, (head, shared, other, int(ends[found[0]])))
    return ""


class OddTriples(NamedTuple):
    """The checked triples, the oddest first.

    Shapes: `triples` (n, 3); `oddness` (n,) from 0 to 1; `columns` (n,), the place in `REASONS` of what speaks most
    against each.
    """

    triples: np.ndarray
    oddness: np.ndarray
    columns: np.ndarray


class RelationReading(NamedTuple):
    """The evidence for the n triples of one relation, followed by negatives, as columns.

    Shapes: `columns` (m, COLUMNS); `kinds` (m,) TRUE, SAME_KIND or ANY_ENTITY; `fitted` (m,) bool, the rows that
    weights are fitted to. `paths` says what kinds of paths are worth.
    """

    relation: int
    pairs: np.ndarray
    columns: np.ndarray
    kinds: np.ndarray
    fitted: np.ndarray
    paths: PathWorth


def check_relations(
    graph: Graph,
    relations: Sequence[int] | None = None,
    on_relation: Callable[[int], None] = lambda done: None,
    engine: Engine | None = None,
) -> OddTriples:
    """Check the triples of these relations, by default of all; relations with too few triples are skipped.

    `on_relation` is called with the number of relations done. The workers of the `engine`, by default this process,
    read the evidence for one relation at a time.
    """
    triples = graph.triples()
    counts = np.bincount(triples[:, 1], minlength=len(graph.relations))
    wanted = range(len(counts)) if relations is None else relations
    checked = [relation for relation in wanted if counts[relation] >= MIN_TRIPLES]
    others = [relation for relation in typical_relations(counts) if relation not in checked]
    random = generator(0, "check")
    drawn = [
        draw(graph, relation, random, MAX_FITTED)
        for relation in [*checked, *others[: max(0, MIN_RELATIONS - len(checked))]]
    ]
    readings = list(
        (engine or Engine()).in_order(
            functools.partial(_read, graph),
            [[each] for each in drawn],
            lambda number: f"the relation {graph.relations[drawn[number].relation]}",
            lambda done: on_relation(min(done, len(checked))),
        )
    )
    of_all = fit_all(readings)
    found = [weigh(each, fit_relation(each, of_all)) for each in readings[: len(checked)]]
    nothing = OddTriples(np.zeros((0, 3), int), np.zeros(0), np.zeros(0, int))
    every = OddTriples(*map(np.concatenate, zip(nothing, *found, strict=True)))
    order = np.argsort(-every.oddness, kind="stable")
    return OddTriples(*(each[order] for each in every))


def _read(graph: Graph, batch: Sequence[DrawnPairs]) -> RelationReading:
    """What any worker can read: a relation, the only one of its batch."""
    (drawn,) = batch
    return read_drawn(RelationEvidence(graph, drawn.relation, drawn.pairs), drawn)


def typical_relations(counts: np.ndarray) -> list[int]:
    """The relations that can be checked, those of medium size first: they are informative and quick to read."""
    apart = np.abs(np.log(np.maximum(counts, 1) / TYPICAL))
    return [int(relation) for relation in np.argsort(apart, kind="stable") if counts[relation] >= MIN_TRIPLES]


class DrawnPairs(NamedTuple):
    """The pairs (n, 2) of a relation, those of them that weights are fitted to (s,), and negatives made from these.

    Shapes: `kinds` of the negatives (m,), SAME_KIND or ANY_ENTITY.
    """

    relation: int
    pairs: np.ndarray
    some: np.ndarray
    negatives: QueriedPairs
    kinds: np.ndarray


def draw(graph: Graph, relation: int, random: np.random.Generator, most: int) -> DrawnPairs:
    """Draw negatives from at most `most` pairs of a relation."""
    triples = graph.triples()
    pairs = triples[triples[:, 1] == relation][:, [0, 2]].astype(np.int64)
    some = random.permutation(len(pairs))[:most]
    return DrawnPairs(relation, pairs, some, *_negatives(pairs, some, len(graph.entities), random))


def read_drawn(evidence: RelationEvidence, drawn: DrawnPairs) -> RelationReading:
    """Read the evidence for the pairs of a relation and for the negatives that were drawn."""
    relation, pairs, some, negatives, kinds = drawn
    asked = QueriedPairs.joined(QueriedPairs(*pairs.T, *pairs.T), negatives)
    kinds = np.concatenate([np.full(len(pairs), TRUE), kinds])
    fitted = kinds != TRUE
    fitted[some] = True
    joining = evidence.paths(asked)
    paths = PathWorth.of(*joining, kinds == TRUE, fitted)
    columns = evidence.columns(asked, paths.columns(*joining, len(kinds), kinds == TRUE, fitted))
    return RelationReading(relation, pairs, columns, kinds, fitted, paths)


def _negatives(
    pairs: np.ndarray, some: np.ndarray, entities: int, random: np.random.Generator
) -> tuple[QueriedPairs, np.ndarray]:
    """Pairs with a replaced head or tail, and their kinds: another one of the relation, or any entity."""
    known = np.unique(pairs[:, 0] * entities + pairs[:, 1])
    parts = []
    kinds = []
    for end in (1, 0):
        ends = np.unique(pairs[:, end])
        for kind in NEGATIVES * (SAME_KIND, ANY_ENTITY):
            new = pairs[some]
            chosen = random.integers(len(ends) if kind == SAME_KIND else entities, size=len(some))
            new[:, end] = ends[chosen] if kind == SAME_KIND else chosen
            wrong = ~np.isin(new[:, 0] * entities + new[:, 1], known)
            parts.append(QueriedPairs(*new[wrong].T, *pairs[some[wrong]].T))
            kinds.append(np.full(int(wrong.sum()), kind))
    return QueriedPairs.joined(*parts), np.concatenate(kinds)


class RelationWeights(NamedTuple):
    """Weights (2, 1 + COLUMNS) against negatives of the same kind and against any, and the scale of columns."""

    weights: np.ndarray
    mean: np.ndarray
    spread: np.ndarray

    def scaled(self, columns: np.ndarray) -> np.ndarray:
        """Standardised columns (n, 1 + COLUMNS), after a column of ones."""
        values = np.clip((columns - self.mean) / self.spread, -MAX_DEVIATION, MAX_DEVIATION)
        return np.column_stack([np.ones(len(columns)), values])

    def logits(self, columns: np.ndarray) -> np.ndarray:
        """The logits (n, 2) of each pair in both regressions."""
        return np.asarray(self.scaled(columns) @ self.weights.T)

    def chances(self, columns: np.ndarray) -> np.ndarray:
        """How well pairs fit (n,), from 0 to 1: the product of the probabilities of both regressions."""
        return np.asarray(np.exp(-np.logaddexp(0, -self.logits(columns)).sum(1)))


def fit_all(read: Sequence[RelationReading]) -> RelationWeights:
    """Fit weights to all relations together, with equal weight for each."""
    every = np.concatenate([np.zeros((1, len(COLUMNS))), *(each.columns[each.fitted] for each in read)])
    scale = RelationWeights(np.zeros((2, 1 + len(COLUMNS))), every.mean(0), every.std(0) + 1e-9)
    for number, kind in enumerate((SAME_KIND, ANY_ENTITY)):
        parts = [_rows(each, kind, scale) for each in read]
        if parts:
            features, right, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
            scale.weights[number] = fit_logistic(features, right, RELATION_ROWS * counts, RIDGE)
    return scale


def fit_relation(read: RelationReading, of_all: RelationWeights) -> RelationWeights:
    """Fit weights to one relation, shrunk towards those of all."""
    weights = of_all.weights.copy()
    for number, kind in enumerate((SAME_KIND, ANY_ENTITY)):
        features, right, counts = _rows(read, kind, of_all)
        if not right.all():
            weights[number] = fit_logistic(features, right, len(right) * counts, RELATION_RIDGE, of_all.weights[number])
    return of_all._replace(weights=weights)


def _rows(read: RelationReading, kind: int, scale: RelationWeights) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of the regression against one kind of negatives: features, whether right, and row weights."""
    of = read.fitted & np.isin(read.kinds, (TRUE, kind))
    right = read.kinds[of] == TRUE
    counts = np.where(right, 0.5 / max(1, right.sum()), 0.5 / max(1, (~right).sum()))
    return scale.scaled(read.columns[of]), right, counts


def weigh(read: RelationReading, fitted: RelationWeights) -> OddTriples:
    """How odd the triples of a relation are, and the strongest evidence against each: what its columns add."""
    columns = read.columns[: len(read.pairs)]
    chances = fitted.chances(columns)
    scaled = fitted.scaled(columns)
    weights = fitted.weights[fitted.logits(columns).argmin(1)]  # of the regression that finds the triple odder
    added = ((scaled - np.median(scaled, 0)) * weights)[:, 1:]
    places = [next(i for i, start in enumerate(WORDS) if name.startswith(start)) for name in COLUMNS]
    sums = np.stack([added[:, np.array(places) == place].sum(1) for place in range(len(WORDS))], 1)
    order = np.argsort(chances, kind="stable")
    return OddTriples(np.insert(read.pairs, 1, read.relation, axis=1)[order], 1 - chances[order], sums.argmin(1)[order])
