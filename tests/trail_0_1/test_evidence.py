"""Extracted: every column against what its name and the docstrings say, one pair and one number at a time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tests.conftest import id_graph
from tests.trail_0_1.test_paths import Literal
from torch import Tensor

from fewlink.base.errors import FewlinkError
from fewlink.embeddings import Embeddings
from fewlink.graph import Graph, TypeTable, neighbour_table
from fewlink.trail_0_1 import context as context_module
from fewlink.trail_0_1 import evidence
from fewlink.trail_0_1.context import HELD_OUT, GraphContext, Pairs, QueryHeads, TaskContext, other_heads
from fewlink.trail_0_1.evidence import KINDS, extract, kinds_of, paths, reliability, scoring_kinds
from fewlink.trail_0_1.evidence.bilinear import FIT_WEIGHT, estimate, relation_vector
from fewlink.trail_0_1.evidence.paths import LENGTH_DISCOUNT, RULE_WIDTH, best_rules
from fewlink.trail_0_1.learner import hard_negatives

COLUMN_KINDS = ("paths", "bilinear", "translation", "profile")  # those with a number for each pair and column
SCORING = scoring_kinds(KINDS)
WIDTH, REFERENCE_WIDTH = 20, 8
ENTITIES, RELATIONS, DIM = 14, 3, 8
LONELY = [ENTITIES - 2, ENTITIES - 1]  # no edge reaches them
EVERYONE = range(ENTITIES)
Trails = dict[tuple[int, int, tuple[int, ...]], list[float]]  # by head, candidate and the relations of the rule

every_count = pytest.mark.parametrize("shots", [1, 3, 5])
with_and_without_types = pytest.mark.parametrize("typed", [False, True], ids=["untyped", "typed"])


# Small graphs, vectors and references


def ids(numbers: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.long)


def random_graph(seed: int, typed: bool = False, entities: int = ENTITIES, triples: int = 26) -> Graph:
    """Loops and several relations between two entities are among its triples; the last two entities have none."""
    draw = np.random.default_rng(seed)
    drawn = draw.integers(0, [entities - 2, RELATIONS, entities - 2], (triples, 3))
    graph = id_graph([(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0), *map(tuple, drawn.tolist())], entities, RELATIONS)
    if not typed:
        return graph
    owners = draw.choice(entities, entities // 2, replace=False)  # half of them have one type, a few of those two
    types = draw.integers(0, 3, len(owners))
    table = TypeTable.of(
        [b"x", b"y", b"z"], np.append(owners, owners[:2]), np.append(types, (types[:2] + 1) % 3), entities
    )
    return dataclasses.replace(graph, types=table)


def context_of(graph: Graph, seed: int = 0, dim: int = DIM) -> GraphContext:
    """A graph with random vectors."""
    draw = torch.Generator().manual_seed(seed)

    def vectors(model: str) -> Embeddings:
        entities, relations = torch.randn(len(graph.entities) + 2 * len(graph.relations), dim, generator=draw).split(
            [len(graph.entities), 2 * len(graph.relations)]
        )
        return Embeddings(entities, relations, model)

    return GraphContext(graph, vectors("complex"), vectors("transe"))


def references_of(seed: int, shots: int) -> Tensor:
    """Distinct pairs; the third has a tail without edges, the fifth the first one's tail."""
    draw = np.random.default_rng(seed)
    pairs = ids(np.stack([draw.permutation(ENTITIES - 2)[:shots] for _ in range(2)], 1).tolist())
    if shots > 2:
        pairs[2, 1] = LONELY[0]
    if shots > 4:
        pairs[4, 1] = pairs[0, 1]
    return pairs


def relation_of(seed: int) -> Tensor:
    return torch.randn(DIM, generator=torch.Generator().manual_seed(seed)) / 2


# What the docstrings say, as loops


def log(chance: float) -> float:
    return math.log(chance + context_module.LEAST_CHANCE) / 4 + 1


def mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def length(vector: Sequence[float]) -> float:
    return math.sqrt(sum(x * x for x in vector))


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """0 where one of them is nothing but zeros."""
    lengths = length(one) * length(other)
    return sum(x * y for x, y in zip(one, other, strict=True)) / lengths if lengths else 0.0


def kind_of(graph: Graph, entities: Sequence[int]) -> list[int]:
    """Those that share a type with one of these, or a relation slot with one that has no type; and these."""

    def types(e: int) -> set[int]:
        return set() if graph.types is None else set(graph.types.of_entities(np.array([e])).tolist())

    edges = list(zip(graph.head_ids.tolist(), graph.relation_ids.tolist(), strict=True))
    wanted = {kind for e in entities for kind in types(e)}
    slots = {r for h, r in edges if h in entities and not types(h)}
    everyone = range(len(graph.entities))
    return [e for e in everyone if e in entities or types(e) & wanted or any(h == e and r in slots for h, r in edges)]


class Rule(NamedTuple):
    """A trail that joins references: what it is worth by itself and what is context of it."""

    worth: float
    best: float
    about: list[float]


class Said:
    """What is said about each pair, given references and the relation that was estimated from them."""

    def __init__(self, context: GraphContext, references: Tensor, relation: Tensor) -> None:
        self.graph = context.graph
        self.paths = Literal([(h, r, t) for h, r, t in context.graph.triples().tolist()], len(context.graph.relations))
        self.references = [(h, t) for h, t in references.tolist()]
        self.heads, self.tails = ([pair[end] for pair in self.references] for end in (0, 1))
        self.relation = relation.double().tolist()
        self.bilinear, self.translation = context.bilinear.double().tolist(), context.translation.double().tolist()
        self.others = kind_of(self.graph, self.heads)
        self.rules = self._rules()

    def _rules(self) -> dict[tuple[int, ...], Rule]:
        found = self.paths.joining(self.references, 3)
        rules = {}
        for trail in {trail for trail, _, _ in found}:
            there, back = (
                mean([found.get((trail, k, way), 0.0) for k in range(len(self.references))]) for way in (0, 1)
            )
            joined = mean([float((trail, k, 0) in found) for k in range(len(self.references))])
            hops = len(trail) - 1
            about = [joined, there, back, log(there), log(back), log(there / joined), log(back / joined)]
            about += [float(hops == n) for n in range(3)]
            rules[trail] = Rule(there * LENGTH_DISCOUNT**hops, max(there, back) * LENGTH_DISCOUNT**hops, about)
        return rules

    def walks(self, head: int, tail: int, hops: int) -> Iterator[tuple[tuple[int, ...], float, float]]:
        return ((trail, a, b) for trail, end, a, b in self.paths.walks(head, hops) if end == tail)

    def profile(self, entity: int) -> list[float]:
        """log(1 + edges) in each relation, inverse ones as well."""
        return [math.log1p(self.paths.count[entity, r]) for r in range(2 * len(self.graph.relations))]

    def fame(self, entity: int) -> float:
        return math.log1p(sum(head == entity for head, _, _ in self.paths.edges)) / 4

    def score(self, head: int, tail: int) -> float:
        """Re Σ h r conj(t)."""
        h, r, t = (
            [complex(*z) for z in zip(row[: len(row) // 2], row[len(row) // 2 :], strict=True)]
            for row in (self.bilinear[head], self.relation, self.bilinear[tail])
        )
        return sum((a * b * c.conjugate()).real for a, b, c in zip(h, r, t, strict=True))

    def offset(self, head: int, tail: int) -> list[float]:
        return [t - h for h, t in zip(self.translation[head], self.translation[tail], strict=True)]

    def moved(self, head: int, offset: Sequence[float], tail: int) -> float:
        """−‖h + offset − t‖."""
        own = self.offset(head, tail)
        return -length([o - needed for o, needed in zip(offset, own, strict=True)])

    def usual(self) -> list[float]:
        """The mean of the references' offsets."""
        return [mean(numbers) for numbers in zip(*(self.offset(h, t) for h, t in self.references), strict=True)]

    def against(self, own: float, others: Sequence[float]) -> float:
        return own - math.log(sum(math.exp(score) for score in others))

    def shared(self, tail: int) -> tuple[float, float]:
        """The chances that a reference's tail leads there along an edge and back along its relation."""
        chances = [
            (a, b)
            for other in self.tails
            for trail, a, b in self.walks(other, tail, 2)
            if trail[1] == self.paths.inverse(trail[0])
        ]
        there, back = (sum(pair[way] for pair in chances) / len(self.tails) for way in (0, 1))
        return there, back

    def near(self, head: int, tail: int, hops: int) -> tuple[float, float]:
        walks = list(self.walks(head, tail, hops))
        return sum(a for _, a, _ in walks), sum(b for _, _, b in walks)

    def pair(self, head: int, tail: int) -> dict[str, dict[str, float]]:
        """The columns of `Extracted.pairs` by kind and name."""
        (near, near_back), (two, two_back) = self.near(head, tail, 1), self.near(head, tail, 2)
        usual, (shared, shared_back) = self.usual(), self.shared(tail)
        bilinear, moved = self.score(head, tail), self.moved(head, usual, tail)
        profile = self.profile(tail)
        slots = mean([cosine(profile, self.profile(t)) for t in self.tails])
        alike, turned = (
            [cosine(table[tail], table[t]) for t in self.tails] for table in (self.translation, self.bilinear)
        )
        return {
            "paths": {
                "near": log(near),
                "near back": log(near_back),
                "two hops": log(two),
                "two hops back": log(two_back),
            },
            "bilinear": {
                "score": bilinear,
                "against other heads": self.against(bilinear, [self.score(o, tail) for o in self.others]),
            },
            "translation": {
                "score": moved,
                "against other heads": self.against(moved, [self.moved(o, usual, tail) for o in self.others]),
                "best reference": max(self.moved(head, self.offset(h, t), tail) for h, t in self.references),
            },
            "profile": {
                "tail of references": mean([float(t == tail) for t in self.tails]),
                "same relations": slots,
                "in more of them": slots * length(profile) / 4,
                "shared neighbours": log(shared),
                "shared neighbours back": log(shared_back),
                "translation likeness": mean(alike),
                "nearest translation": max(alike),
                "bilinear likeness": mean(turned),
                "degree": self.fame(tail),
                "itself": float(head == tail),
                "head degree": self.fame(head),
            },
        }

    def beside(self, head: int, tail: int) -> list[list[float]]:
        """The rows of `Extracted.references`."""
        return [
            [
                *(cosine(table[head], table[h]) for table in (self.translation, self.bilinear)),
                cosine(self.profile(head), self.profile(h)),
                *(cosine(table[tail], table[t]) for table in (self.translation, self.bilinear)),
                cosine(self.profile(tail), self.profile(t)),
                float(tail == t),
                self.moved(head, self.offset(h, t), tail),
            ]
            for h, t in self.references
        ]

    def led(self, head: int, tails: Sequence[int], rules: Sequence[tuple[int, ...]]) -> Trails:
        """The rows of `Extracted.trails` of the rules that lead from head to one of the tails."""
        found = self.paths.follow_together([head], rules, tails, context_module.LEAST_CHANCE)
        rows: Trails = {}
        for _, rule, tail in {key[:3] for key in found}:
            there, back = (found[0, rule, tail, way] for way in (0, 1))
            about = self.rules[rule].about
            rows[head, tail, rule] = [*about, log(there), log(back), about[1] * there]
        return rows

    def singles(self, head: int, tail: int) -> list[float]:
        """The four scores that need no learning."""
        rows = self.led(head, [tail], list(self.rules))
        followed = sum(
            self.rules[rule].worth * (math.exp(4 * row[-3] - 4) - context_module.LEAST_CHANCE)
            for (_, _, rule), row in rows.items()
        )
        profile = self.pair(head, tail)["profile"]
        trodden = followed + 0.01 * self.near(head, tail, 1)[0] + 0.001 * self.near(head, tail, 2)[0]
        return [
            trodden + 0.01 * profile["tail of references"],
            self.score(head, tail),
            self.moved(head, self.usual(), tail),
            profile["same relations"] + self.shared(tail)[0],
        ]


# Comparisons


def agree(found: Tensor, expected: Sequence[object]) -> None:
    wanted = torch.tensor(expected, dtype=torch.float64).to(found.dtype).reshape(found.shape)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=2e-5)


def trails_of(query: TaskContext, found: Extracted, heads: Sequence[int], candidates: Sequence[int]) -> Trails:
    """What was found of each rule, by name; each comes once for a pair."""
    table = {}
    for place, rule, row in zip(found.places.tolist(), found.rules.tolist(), found.trails.tolist(), strict=True):
        head, candidate = divmod(place, len(candidates))
        trail = query.graph.paths.relations_of(int(query.once(best_rules).paths[rule]))
        table[heads[head], candidates[candidate], trail] = row
    assert len(table) == len(found.places)
    return table


def same_trails(found: Trails, expected: Trails) -> None:
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        assert found[key] == pytest.approx(row, rel=1e-4, abs=2e-5), key


class Extracted(NamedTuple):
    """The features of all kinds: rules that lead to cells, the columns of each pair, and the rows of each reference."""

    places: Tensor
    rules: Tensor
    trails: Tensor
    pairs: Tensor
    references: Tensor


def task_of(context: GraphContext, references: Tensor, relation: Tensor | None = None) -> TaskContext:
    """A task, with a given relation vector in place of the estimated one."""
    query = TaskContext(context, references)
    if relation is not None:
        query.__dict__["_derived"] = {(relation_vector, (), ()): relation}
    return query


def extracted(query: TaskContext, heads: Sequence[int], candidates: Sequence[int]) -> tuple[Extracted, Tensor]:
    """All features of pairs, and the own scores of the kinds that have one: (S, H, C)."""
    pairs = Pairs.of(query, ids(heads), ids(candidates))
    features = extract(pairs, KINDS)
    columns = torch.cat([features[kind][0] for kind in COLUMN_KINDS], -1)
    _, places, rules, trails = features["paths"]
    singles = torch.stack([kind.single_score(pairs) for kind in kinds_of(SCORING)])
    return Extracted(places, rules, trails, columns, features["matching"][0]), singles


def compare(query: TaskContext, said: Said, heads: Sequence[int], candidates: Sequence[int]) -> None:
    """All findings about these pairs, and the four scores."""
    found, singles = extracted(query, heads, candidates)
    h, c, k = len(heads), len(candidates), len(said.references)
    assert found.pairs.shape == (h, c, WIDTH) and found.references.shape == (h, c, k, REFERENCE_WIDTH)
    columns = [(kind, name) for kind in COLUMN_KINDS for name in KINDS[kind].columns]
    told = {(i, j): said.pair(head, tail) for i, head in enumerate(heads) for j, tail in enumerate(candidates)}
    for at, (kind, name) in enumerate(columns):
        agree(found.pairs[..., at], [pair[kind][name] for pair in told.values()])
    agree(found.references, [said.beside(head, tail) for head in heads for tail in candidates])
    rules = list(said.rules)
    expected: Trails = {}
    for head in set(heads):
        expected |= said.led(head, candidates, rules)
    same_trails(trails_of(query, found, heads, candidates), expected)
    assert (found.trails.shape[1], singles.shape) == (RULE_WIDTH, (len(SCORING), h, c))
    agree(singles.permute(1, 2, 0), [said.singles(head, tail) for head in heads for tail in candidates])


# Pairs, references and trails


@every_count
@with_and_without_types
@pytest.mark.parametrize("seed", [0, 1])
def test_findings_are_what_is_said_of_them(shots: int, typed: bool, seed: int) -> None:
    context, references = context_of(random_graph(seed, typed), seed), references_of(seed, shots)
    relation = relation_of(seed)
    query, said = task_of(context, references, relation), Said(context, references, relation)
    assert query.once(other_heads).tolist() == said.others
    heads = [int(references[0, 0]), LONELY[1], 3]
    candidates = sorted({*references[:, 1].tolist(), heads[0], LONELY[1], 5, 8})
    compare(query, said, heads, candidates)


@with_and_without_types
def test_findings_about_every_pair_of_a_graph(typed: bool) -> None:
    context, references = context_of(random_graph(2, typed)), references_of(2, 2)
    relation = relation_of(2)
    compare(task_of(context, references, relation), Said(context, references, relation), EVERYONE, EVERYONE)


@every_count
@pytest.mark.parametrize("candidate", [0, 1, LONELY[0], None])
def test_findings_about_a_single_candidate(shots: int, candidate: int | None) -> None:
    context, references = context_of(random_graph(3)), references_of(3, shots)
    tail = int(references[0, 1]) if candidate is None else candidate
    relation = relation_of(3)
    compare(
        task_of(context, references, relation), Said(context, references, relation), [int(references[0, 0]), 2], [tail]
    )


@every_count
def test_findings_with_the_relation_that_the_references_give(shots: int) -> None:
    context, references = context_of(random_graph(4)), references_of(4, shots)
    query = task_of(context, references)
    torch.testing.assert_close(query.once(relation_vector), estimate(context, references.unsqueeze(0))[0])
    compare(query, Said(context, references, query.once(relation_vector)), [6, LONELY[0]], [1, 4, 7])


def test_references_that_nothing_joins_leave_no_trails() -> None:
    context, references = context_of(random_graph(5)), ids([[LONELY[0], LONELY[1]], [LONELY[1], 0]])
    relation = relation_of(5)
    query, said = task_of(context, references, relation), Said(context, references, relation)
    assert not len(query.once(best_rules).paths) and not said.rules
    compare(query, said, [0, LONELY[0]], [0, 3, *LONELY])
    assert torch.isfinite(reliability(task_of(context, references), SCORING)).all()


def test_findings_in_a_graph_without_edges() -> None:
    context, references = context_of(id_graph([], 5, 2)), ids([[0, 1], [2, 3]])
    relation = relation_of(6)
    compare(task_of(context, references, relation), Said(context, references, relation), [0, 4], [1, 2, 4])
    assert torch.isfinite(reliability(task_of(context, references), SCORING)).all()


def test_rules_are_what_joins_the_references() -> None:
    for seed, shots in enumerate((1, 3, 5)):
        context, references = context_of(random_graph(seed)), references_of(seed, shots)
        query, said = task_of(context, references, relation_of(0)), Said(context, references, relation_of(0))
        trails = [context.paths.relations_of(rule) for rule in query.once(best_rules).paths.tolist()]
        assert set(trails) == set(said.rules) and (query.once(best_rules).paths.diff() > 0).all()
        agree(query.once(best_rules).worth, [said.rules[trail].worth for trail in trails])
        agree(query.once(best_rules).facts, [said.rules[trail].about for trail in trails])


@pytest.mark.parametrize(("most", "seed"), [(1, 0), (20, 0), (3, 1), (7, 2)])
def test_of_many_rules_the_best_are_kept(most: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    context, references = context_of(random_graph(seed)), references_of(seed, 3)
    said = Said(context, references, relation_of(0))
    monkeypatch.setattr(paths, "MOST_RULES", most)
    query = task_of(context, references, relation_of(0))
    kept = [context.paths.relations_of(rule) for rule in query.once(best_rules).paths.tolist()]
    assert len(set(kept)) == most < len(said.rules) and (query.once(best_rules).paths.diff() > 0).all()
    left = [rule.best for trail, rule in said.rules.items() if trail not in kept]
    assert min(said.rules[trail].best for trail in kept) >= max(left) - 1e-6
    agree(query.once(best_rules).facts, [said.rules[trail].about for trail in kept])
    found, _ = extracted(query, EVERYONE, EVERYONE)
    expected: Trails = {}
    for head in EVERYONE:
        expected |= said.led(head, EVERYONE, kept)
    same_trails(trails_of(query, found, EVERYONE, EVERYONE), expected)


def test_chances_that_are_as_good_as_none_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    context, references = context_of(random_graph(0)), references_of(0, 5)
    query = task_of(context, references, relation_of(0))
    everything = len(extracted(query, EVERYONE, EVERYONE)[0].places)
    for module in (context_module, paths):
        monkeypatch.setattr(module, "LEAST_CHANCE", math.pi / 11)  # no chance is exactly this
    query, said = task_of(context, references, relation_of(0)), Said(context, references, relation_of(0))
    found, _ = extracted(query, EVERYONE, EVERYONE)
    assert 0 < len(found.places) < everything
    compare(query, said, [0, 3, 7], EVERYONE)


def test_widths_and_columns_agree() -> None:
    assert tuple(KINDS) == (*COLUMN_KINDS, "matching") and tuple(SCORING) == COLUMN_KINDS
    assert [len(kind.columns) for kind in KINDS.values()] == [4, 2, 3, 11, REFERENCE_WIDTH]
    context, references = context_of(random_graph(0)), references_of(0, 3)
    query = task_of(context, references)
    found, singles = extracted(query, [0, 1], [2, 3, 4])
    assert found.pairs.shape == (2, 3, WIDTH)
    assert found.trails.shape == (len(found.places), RULE_WIDTH) and len(found.rules) == len(found.places) > 0
    assert found.references.shape == (2, 3, 3, REFERENCE_WIDTH)
    rules = query.once(best_rules)
    assert rules.facts.shape == (len(rules.paths), RULE_WIDTH - 3)
    assert reliability(query, SCORING).shape == (2 * len(SCORING) + 2,) and singles.shape == (len(SCORING), 2, 3)
    assert {part.dtype for part in (*found, singles)} == {torch.int64, torch.float32}


# What else is asked


@every_count
def test_findings_of_a_pair_do_not_depend_on_what_else_is_asked(shots: int) -> None:
    context, references = context_of(random_graph(6)), references_of(6, shots)
    query = task_of(context, references)
    whole, scores = extracted(query, EVERYONE, EVERYONE)
    trails = trails_of(query, whole, EVERYONE, EVERYONE)
    draw = np.random.default_rng(0)
    asked = [([head], [tail]) for head in (int(references[-1, 0]), 2, LONELY[0]) for tail in EVERYONE]
    for _ in range(8):
        asked.append((draw.permutation(ENTITIES)[:5].tolist(), sorted(draw.permutation(ENTITIES)[:6].tolist())))
    for heads, candidates in asked:
        some, singles = extracted(query, heads, candidates)
        for found, expected in (
            (some.pairs, whole.pairs),
            (some.references, whole.references),
            (singles.permute(1, 2, 0), scores.permute(1, 2, 0)),
        ):
            torch.testing.assert_close(found, expected[heads][:, candidates], rtol=1e-5, atol=1e-5)
        own = {key: row for key, row in trails.items() if key[0] in heads and key[1] in candidates}
        same_trails(trails_of(query, some, heads, candidates), own)


def test_a_head_may_be_asked_about_twice() -> None:
    context, references = context_of(random_graph(7)), references_of(7, 3)
    query = task_of(context, references)
    once, _ = extracted(query, [4, 1], [0, 2, 5])
    twice, _ = extracted(query, [4, 1, 4], [0, 2, 5])
    torch.testing.assert_close(twice.pairs, once.pairs[[0, 1, 0]])
    torch.testing.assert_close(twice.references, once.references[[0, 1, 0]])
    counts = [torch.bincount(found.places, minlength=9) for found in (once, twice)]
    assert torch.equal(counts[1].view(3, 3), counts[0].view(3, 3)[[0, 1, 0]])


def test_the_order_of_the_references_moves_nothing_but_their_rows() -> None:
    context, references = context_of(random_graph(8)), references_of(8, 5)
    order = [3, 1, 4, 0, 2]
    one, other = (task_of(context, given, relation_of(8)) for given in (references, references[order]))
    (a, singles), (b, turned) = (extracted(query, [0, 5], [1, 2, 9]) for query in (one, other))
    torch.testing.assert_close(b.pairs, a.pairs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(b.references, a.references[:, :, order])
    torch.testing.assert_close(turned, singles, rtol=1e-5, atol=1e-5)
    same_trails(trails_of(other, b, [0, 5], [1, 2, 9]), trails_of(one, a, [0, 5], [1, 2, 9]))


@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_the_hardest_are_the_best_of_some_head_by_vectors_or_trails(count: int) -> None:
    by_trails_alone = 0
    for seed in range(6):
        context, references = context_of(random_graph(seed)), references_of(seed, 3)
        query, said = task_of(context, references, relation_of(seed)), Said(context, references, relation_of(seed))
        heads, candidates = [0, 4, 7], [1, 2, 3, 5, 6, 8, 10]
        tails = references[:, 1].tolist()
        trodden = extracted(query, heads, candidates)[1][0]  # compared with the literal version elsewhere
        vectors: set[int] = set()
        trails: set[int] = set()
        for row, head in enumerate(heads):
            for scores in (
                [(said.score(head, tail), tail) for tail in candidates],
                [(said.moved(head, said.usual(), tail), tail) for tail in candidates],
            ):
                vectors |= {tail for _, tail in sorted(scores, reverse=True)[:count]}
            joined = [float(trodden[row, c]) - 0.01 * tails.count(t) / 3 for c, t in enumerate(candidates)]
            trails |= {
                t for score, t in sorted(zip(joined, candidates, strict=True), reverse=True)[:count] if score > 1e-6
            }
        found = set(hard_negatives(QueryHeads(query, ids(heads)), ids(candidates), SCORING, count).tolist())
        assert vectors | trails <= found <= set(candidates)
        assert len(found) <= min(len(candidates), 9 * count)
        by_trails_alone += len(trails - vectors)
    assert by_trails_alone or count >= 5


# What is context


def test_neighbours_are_the_graphs_and_each_knows_how_many_of_its_relation_there_are() -> None:
    crowd = [(0, 0, t) for t in range(1, 25)] + [(t, 1, 0) for t in range(3, 20)]  # 41 edges, 30 of which have room
    graph = id_graph([*crowd, (2, 1, 3), (2, 0, 3), (4, 0, 4)], 40, 2)
    context, paths = context_of(graph), Literal([(h, r, t) for h, r, t in graph.triples().tolist()], 2)
    table = neighbour_table(graph, 30)
    for entity in range(40):
        places = context.neighbours.places(torch.tensor(entity))
        there = context.neighbours.present(places).tolist()
        assert sum(there) == min(30, sum(h == entity for h, _, _ in paths.edges))
        assert there == sorted(there, reverse=True)
        for place, (relation, other) in zip(places.tolist(), table.of(entity), strict=False):
            assert context.neighbours.entities[place] == other and (entity, relation, other) in paths.edges
            assert context.neighbour_groups[place] == paths.count[entity, relation]


@with_and_without_types
def test_entities_of_a_kind_are_few_always_the_same_and_among_them_those_asked_about(typed: bool) -> None:
    graph = random_graph(10, typed)
    context = context_of(graph)
    for asked in ([0], [3, LONELY[0]], [5, 1, 2]):
        every = kind_of(graph, asked)
        assert context.same_type(ids(asked), ENTITIES).tolist() == every
        for most in (1, 3):
            some = context.same_type(ids(asked), most).tolist()
            assert set(asked) <= set(some) <= set(every) and some == sorted(some)
            assert len(set(some) - set(asked)) <= most and torch.equal(context.same_type(ids(asked), most), ids(some))


def test_other_heads_are_at_most_so_many_and_the_references_own(monkeypatch: pytest.MonkeyPatch) -> None:
    context, references = context_of(random_graph(11)), references_of(11, 3)
    monkeypatch.setattr(context_module, "OTHER_HEADS", 2)
    query, said = task_of(context, references, relation_of(0)), Said(context, references, relation_of(0))
    assert set(references[:, 0].tolist()) <= set(query.once(other_heads).tolist()) < set(said.others)
    said.others = query.once(other_heads).tolist()
    compare(query, said, [0, 9], [1, 4, 6])


def test_vectors_of_other_models_or_graphs_are_refused() -> None:
    graph = random_graph(0)
    good = {m: Embeddings(torch.randn(ENTITIES, DIM), torch.randn(6, DIM), m) for m in ("complex", "transe")}
    GraphContext(graph, good["complex"], good["transe"])
    with pytest.raises(FewlinkError, match=r"trail-0\.1 reads complex and transe vectors, and got transe for complex"):
        GraphContext(graph, good["transe"], good["complex"])
    with pytest.raises(FewlinkError, match="got complex for transe"):
        GraphContext(graph, good["complex"], good["complex"])
    with pytest.raises(FewlinkError, match="train them on this graph"):
        GraphContext(random_graph(0, entities=ENTITIES + 1), good["complex"], good["transe"])


# The estimated relation


def objective(context: GraphContext, references: Tensor, relation: Tensor) -> Tensor:
    """−log softmax of each tail and of each head against far entities, the mean over references, and N3."""

    def numbers(vectors: Tensor) -> Tensor:
        re, im = vectors.double().chunk(2, -1)
        return torch.complex(re, im)

    r, far = numbers(relation), [numbers(context.bilinear[e]) for e in context.negatives.tolist()]
    losses = []
    for head, tail in references.tolist():
        h, t = numbers(context.bilinear[head]), numbers(context.bilinear[tail])
        true = (h * r * t.conj()).sum().real
        tails = torch.stack([true, *((h * r * other.conj()).sum().real for other in far)])
        heads = torch.stack([true, *((other * r * t.conj()).sum().real for other in far)])
        losses.append(tails.logsumexp(0) - true + heads.logsumexp(0) - true)
    return torch.stack(losses).mean() + FIT_WEIGHT * (r.real.square() + r.imag.square()).pow(1.5).sum()


def slope(context: GraphContext, references: Tensor, relation: Tensor) -> float:
    at = relation.double().requires_grad_()
    (gradient,) = torch.autograd.grad(objective(context, references, at), [at])
    return float(gradient.norm())


@every_count
def test_the_estimate_minimises_its_objective(shots: int) -> None:
    context, references = context_of(random_graph(12)), references_of(12, shots)
    found = estimate(context, references.unsqueeze(0))[0]
    starts = [relation_of(seed) / 5 for seed in range(3)]
    assert slope(context, references, found) < min(slope(context, references, start) for start in starts) / 5
    best = found.double().requires_grad_()
    optimizer = torch.optim.LBFGS([best], max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = objective(context, references, best)
        loss.backward()
        return loss

    optimizer.step(closure)
    least, reached = (float(objective(context, references, r).detach()) for r in (best, found))
    for start in starts:
        assert reached - least < 0.05 * (float(objective(context, references, start)) - least)


def planted(pairs: int = 12, dim: int = 32) -> tuple[GraphContext, Tensor]:
    """Entities 2i and 2i + 1 whose vectors differ by one turn of every complex number, and those pairs."""
    draw = torch.Generator().manual_seed(0)
    heads = torch.randn(pairs, dim // 2, generator=draw, dtype=torch.complex64)
    turn = torch.polar(torch.ones(dim // 2), 6.28 * torch.rand(dim // 2, generator=draw))
    both = torch.stack([heads, heads * turn], 1).flatten(0, 1)
    bilinear = Embeddings(torch.cat([both.real, both.imag], -1), torch.zeros(2, dim), "complex")
    translation = Embeddings(torch.randn(2 * pairs, dim, generator=draw), torch.zeros(2, dim), "transe")
    context = GraphContext(id_graph([(0, 0, 1)], 2 * pairs, 1), bilinear, translation)
    return context, torch.arange(2 * pairs).view(-1, 2)


@every_count
def test_the_estimate_scores_references_and_their_like_above_all_other_tails(shots: int) -> None:
    context, pairs = planted()
    query = task_of(context, pairs[:shots])
    scores = extracted(query, pairs[:, 0].tolist(), range(pairs.numel()))[1][1]  # (pairs, entities)
    assert torch.equal(scores.argmax(1), pairs[:, 1])  # what holds for some holds for the others


@every_count
def test_estimates_together_are_those_one_at_a_time(shots: int) -> None:
    context = context_of(random_graph(13))
    references = torch.stack([references_of(seed, shots) for seed in range(4)])
    together = estimate(context, references)
    assert together.shape == (4, DIM) and together.isfinite().all()
    alone = torch.cat([estimate(context, one.unsqueeze(0)) for one in references])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_an_estimate_is_found_where_no_gradients_are_kept_and_leaves_none() -> None:
    context, references = context_of(random_graph(13)), references_of(13, 3).unsqueeze(0)
    before = context.bilinear.clone()
    with torch.no_grad():
        found = estimate(context, references)
    assert torch.equal(found, estimate(context, references)) and not found.requires_grad
    assert torch.equal(context.bilinear, before) and context.bilinear.grad is None


# How reliable the four scores are


def said_reliability(context: GraphContext, references: Tensor, rivals: Sequence[int]) -> list[float]:
    count, pairs = len(references), references.tolist()
    told: list[list[float]] = [[] for _ in range(2 * len(SCORING))]
    for out in range(min(count, HELD_OUT)):
        rest = [pair for k, pair in enumerate(pairs) if k != out]
        scores = extracted(task_of(context, ids(rest)), [pairs[out][0]], rivals)[1].squeeze(1)
        for i, row in enumerate(scores.tolist()):
            own = row[rivals.index(pairs[out][1])]
            competing = [score for e, score in zip(rivals, row, strict=True) if e not in references[:, 1].tolist()]
            rank = 1 + sum(score > own for score in competing) + sum(score == own for score in competing) / 2
            told[i].append(1 / rank)
            told[len(SCORING) + i].append(math.log(rank) / math.log(2 + len(rivals)))
    return [*(mean(numbers) for numbers in told), 0.0, math.log(count)]


@pytest.mark.parametrize(("shots", "typed"), [(2, False), (3, True), (5, True), (7, False)])
def test_reliability_is_how_well_each_score_finds_what_is_held_out(shots: int, typed: bool) -> None:
    context, references = context_of(random_graph(14, typed)), references_of(14, shots)
    rivals = kind_of(context.graph, references[:, 1].tolist())
    agree(reliability(task_of(context, references), SCORING), said_reliability(context, references, rivals))


def test_reliability_of_a_single_reference_is_not_known() -> None:
    agree(reliability(task_of(context_of(random_graph(0)), references_of(0, 1)), SCORING), [0.3] * 8 + [1.0, 0.0])


def test_trails_are_reliable_where_references_follow_one() -> None:
    # h r m q t for every reference, and among the tails' kind nobody else is reached
    triples = [triple for i in range(0, 30, 3) for triple in ((i, 0, i + 1), (i + 1, 1, i + 2))]
    context = context_of(id_graph(triples, 30, 2))
    references = ids([[i, i + 2] for i in range(0, 12, 3)])
    found = reliability(task_of(context, references), SCORING)
    agree(found[[0, len(SCORING)]], [1.0, 0.0])  # each time the first of those that are no reference's tail
    agree(found[[3, len(SCORING) + 3]], [1 / 4, math.log(4) / math.log(12)])  # tied with the six others
    agree(found[2 * len(SCORING) :], [0.0, math.log(4)])


def test_reliability_compares_with_some_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    context, references = context_of(random_graph(15)), references_of(15, 3)
    monkeypatch.setattr(evidence, "MOST_SAME_TYPE", 2)
    some = context.same_type(references[:, 1], 2).tolist()
    assert len(some) < len(kind_of(context.graph, references[:, 1].tolist()))
    agree(reliability(task_of(context, references), SCORING), said_reliability(context, references, some))
