"""Trust: references are held out and ranked as a user's question would rank them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.conftest import benchmark_of, graph_of
from tests.linker.graphs import people
from tests.linker.linkers import umls

from fewlink.fitting.calibrating import Sample, fitted
from fewlink.graph import Graph
from fewlink.graph.vocabulary import Vocabulary
from fewlink.linker import Linker
from fewlink.linker.probability import FEATURES, Coverage
from fewlink.linker.query import References, find_relation, open_candidates
from fewlink.linker.trust import Trust, evidence_for, measure_trust, trust_note
from fewlink.models.contract import Question
from fewlink.tasks import Benchmark


class Numbers:
    """Scores each tail by its number, the highest best; remembers what it is asked."""

    name = "numbers"

    def __init__(self) -> None:
        self.asked: list[Question] = []

    def __call__(self, question: Question) -> np.ndarray:
        self.asked.append(question)
        return np.repeat(question.candidates[None].astype(float), len(question.heads), 0)


def references(*pairs: tuple[int, int]) -> References:
    return References(pairs)


def test_each_reference_is_ranked_with_the_others_given() -> None:
    graph, scorer, everything = umls().graph, Numbers(), np.arange(100, dtype=np.int32)
    asked = references((0, 99), (1, 89), (2, 0))
    trust = measure_trust(scorer, graph, asked, everything)
    assert trust.ranks == (1.0, 11.0) and (trust.tested, trust.shots) == (2, 3)
    assert (trust.found(), trust.found(1), trust.share_found) == (1, 1, 0.5)
    assert trust.sentence() == "2 of 3 references were held out, and 1 was found in the first ten"
    for question, (head, tail) in zip(scorer.asked, asked.pairs[:2], strict=True):
        assert question.heads.tolist() == [head] and [head, tail] not in question.references.tolist()
        assert len(question.references) == 2
    both = measure_trust(scorer, graph, references((0, 99), (1, 90)), everything)
    assert both.sentence() == "2 of your 2 references were found in the first ten when held out"


def test_open_candidates_are_those_of_the_other_references() -> None:
    # persons have a job, animals have an owner: nothing but the reference itself shows that a tail may be a person
    triples = np.array([[0, 0, 4], [1, 0, 4], [2, 0, 5], [6, 1, 0], [7, 1, 1]], np.int32)
    graph = Graph.of(Vocabulary.of([str(i).encode() for i in range(9)]), Vocabulary.of([b"job", b"owner"]), triples)
    asked = references((8, 4), (3, 7))
    assert 7 in open_candidates(graph, asked.ids)
    trust = measure_trust(Numbers(), graph, asked)
    assert 7 not in open_candidates(graph, asked.ids[:1])
    assert trust.ranks == (np.inf, np.inf) and trust.found() == 0


def test_a_hidden_relation_does_not_make_held_out_tails_candidates() -> None:
    # nothing but the hidden relation 0 joins the tails 4 to 7
    triples = np.array([[0, 0, 4], [1, 0, 5], [2, 0, 6], [3, 0, 7], [0, 1, 8], [1, 1, 8]], np.int32)
    graph = Graph.of(Vocabulary.of([str(i).encode() for i in range(9)]), Vocabulary.of([b"site", b"kind"]), triples)
    asked = references((0, 4), (1, 5), (2, 6), (3, 7))
    assert measure_trust(Numbers(), graph, asked).found() == 2
    trust = measure_trust(Numbers(), graph, asked, hidden=0)
    assert trust.ranks == (np.inf, np.inf) and (trust.candidates, trust.domain) == (4, 4)
    rest = graph.without(np.array([0]))
    for pairs in (asked.ids, asked.ids[1:], asked.ids[:, ::-1]):
        assert open_candidates(graph, pairs, 0).tolist() == open_candidates(rest, pairs).tolist()
    linker = Linker.shipped(benchmark_of(graph))
    query = linker.resolve(relation="site", heads=["3"])
    assert linker.trust(query).ranks == (np.inf, np.inf)  # type: ignore[union-attr]


def test_many_references_are_held_out_together() -> None:
    scorer = Numbers()
    pairs = tuple((number, number + 50) for number in range(9))
    trust = measure_trust(scorer, umls().graph, references(*pairs), np.arange(100, dtype=np.int32))
    assert len(scorer.asked) == 1 and trust.tested == 3 < trust.shots == 9
    (asked,) = scorer.asked
    assert len(asked.references) == 6 and not set(asked.heads) & set(asked.references[:, 0])
    assert set(trust.ranks) == {50.0 - head for head in asked.heads}
    assert "3 of 9 references were held out, and none was found" in trust.sentence()


@pytest.mark.parametrize("shots", [3, 9, 60])
def test_trust_does_not_depend_on_the_order_of_references(shots: int) -> None:
    pairs = [(number, (7 * number) % 50 + 50) for number in range(shots)]
    turned = np.random.default_rng(0).permutation(pairs).tolist()
    one, other = (
        measure_trust(Numbers(), umls().graph, references(*map(tuple, each)), np.arange(100, dtype=np.int32))
        for each in (pairs, turned)
    )
    assert one == other


def test_the_facts_of_references() -> None:
    trust = measure_trust(Numbers(), umls().graph, references((0, 9), (1, 9), (1, 8), (2, 9)), np.arange(100))
    assert (trust.shots, trust.largest, trust.candidates, trust.whole) == (4, 3, 100, False)
    assert trust.skew == 0.5 and Trust(1).skew == 0.0 and Trust(10, largest=10).skew == 0.9
    relation = find_relation(umls(), umls().split("dev")[0].name)
    pairs = tuple(map(tuple, relation.pairs().tolist()))
    assert measure_trust(Numbers(), umls().graph, References(pairs, relation)).whole
    assert not measure_trust(Numbers(), umls().graph, References(pairs[:3], relation)).whole


def test_a_scorer_may_tell_which_heads_it_has_evidence_for() -> None:
    class Knowing(Numbers):
        def has_evidence(self, references: np.ndarray, heads: np.ndarray) -> np.ndarray:
            return np.asarray(heads > references.max())

    graph, pairs, heads = islands().graph, np.array([[0, 1]]), np.arange(6)
    assert evidence_for(Numbers(), graph, pairs, heads).tolist() == [True] * 4 + [False] * 2
    assert evidence_for(Knowing(), graph, pairs, heads).tolist() == [False] * 2 + [True] * 4


def test_a_single_candidate_gets_no_percentage() -> None:
    linker, pairs = calibrated(islands()), [("n0", "n1"), ("n1", "n2")]
    only = linker.predict(pairs, ["n3"], 2, candidates=["n2"])
    assert [row.probability for row in only] == [None] and only.trust is not None and not only.sets
    assert only.trust.sentence == "there is a single candidate for the heads: ranks only, no percentages"
    mixed = linker.predict(pairs, ["n0", "n3"], 2, candidates=["n1", "n2"])
    assert [row.probability is None for row in mixed] == [True, False, False]  # n1 is a known tail of n0
    assert any("there is a single candidate for 'n0': ranks only, no percentages" in note for note in mixed.notes)


def test_one_reference_and_a_relation_of_the_graph_cannot_be_held_out() -> None:
    scorer, graph = Numbers(), umls().graph
    one = measure_trust(scorer, graph, references((0, 1)))
    assert (one.tested, one.known, one.share_found) == (0, False, 1.0) and "one reference alone" in one.sentence()
    relation = find_relation(umls(), graph.relations[0])
    known = measure_trust(scorer, graph, References(((0, 1), (2, 3)), relation))
    assert known.known and not known.tested and "sees this relation in the graph" in known.sentence()
    assert not scorer.asked
    assert not trust_note(known, False, 0.1, False).shown and trust_note(one, False, 0.1, False).shown


def test_the_note_says_how_many_references_are_found() -> None:
    whole = trust_note(Trust(200, (50.0,) * 16, whole=True), False, 0.1, False)
    assert (
        whole.shown and "16 of 200 references were held out, and none was" in whole.sentence
    )  # its percentages are small
    lost, found = (trust_note(Trust(2, ranks), ranks[1] > 10, 0.1, False) for ranks in ((50.0, 60.0), (50.0, 6.0)))
    assert lost.low and lost.shown and lost.sentence.startswith("low trust: none of your 2 references was found")
    assert found.shown and not found.low and (found.found, found.tested) == (1, 2)
    assert "10 points" in found.sentence


@pytest.mark.parametrize(
    ("shots", "ranks", "words"),
    [
        (2, (1.0, 4.0), "1 of your 2 references was first among 4 candidates when held out"),
        (65, (1.0, 2.0, 1.0, 3.0), "4 of 65 references were held out, and 2 were first among 4 candidates"),
        (65, (2.0, 3.0), "2 of 65 references were held out, and none was first among 4 candidates"),
    ],
)
def test_of_few_candidates_the_note_counts_those_that_are_first(
    shots: int, ranks: tuple[float, ...], words: str
) -> None:
    note = trust_note(Trust(shots, ranks, candidates=4), False, 0.1, False)
    assert note.sentence.startswith(f"{words}; ")
    assert (note.found, note.tested) == (ranks.count(1.0), len(ranks))
    assert "first ten" in trust_note(Trust(shots, ranks, candidates=11), False, 0.1, False).sentence


def test_a_note_says_that_most_heads_have_no_tail() -> None:
    linker = Linker.shipped(benchmark_of(people(*(f"new{i} likes hobby1" for i in range(90)))))
    new, old = ([f"{name}" for name in linker.graph.entities if name.startswith(start)] for start in ("new", "person"))
    (note,) = [each for each in linker.predict(None, new, 1, relation="lives").notes if "assume" in each]
    assert note == "percentages assume that each head has a tail, but 90 of these 90 heads have none in the graph"
    for heads in (new[:9], [*old[:20], *new[:20]]):
        assert not any("assume" in each for each in linker.predict(None, heads, 1, relation="lives").notes)


def test_a_second_father_is_improbable() -> None:
    linker = Linker.shipped(benchmark_of(people()))
    asked = linker.predict(None, ["person0x1", "person3x2"], 2, relation="lives")
    assert all(row.probability is not None and row.probability < 0.03 for row in asked)
    (note,) = [note for note in asked.notes if "is known already" in note]
    assert "hardly any head of this relation has two: 'person0x1', 'person3x2'" in note
    shown = linker.predict(None, "person0x1", 3, relation="lives", exclude_known=False)
    assert max(row.probability or 0.0 for row in shown if row.known) > 0.1
    back = linker.heads("town01", k=2, relation="lives")
    assert not any("is known already" in note for note in back.notes)


def test_heads_that_have_their_tail_do_not_lower_trust() -> None:
    chance, rows = random.Random(0), []
    for i in range(30):
        rows += [f"p{i} father q{i}", f"p{i} knows q{chance.randrange(30)}", f"n{i} knows q{chance.randrange(30)}"]
        rows += [f"n{i} mother m{1 + 2 * chance.randrange(15)}"]
        rows += [f"p{i} mother m{i}", f"q{i} wife m{i}"] if i % 2 else []
    linker = Linker.shipped(benchmark_of(graph_of(*dict.fromkeys(rows))))
    new, answered = ["n1", "n3"], [f"p{i}" for i in range(10, 20)]
    alone, beside = (linker.predict(None, heads, 3, relation="father", shots=2) for heads in (new, new + answered))
    assert any("is known already" in note for note in beside.notes)
    assert alone.trust is not None and beside.trust is not None
    assert not alone.trust.low and not beside.trust.low


def calibrated(benchmark: Benchmark, **changes: Any) -> Linker:
    """A linker that ranks by number, whose first answers have a probability of one half or more."""
    linker = Linker(benchmark, Numbers())
    ones = np.ones(2)
    sample = Sample(np.ones((2, len(FEATURES))), np.array([True, False]), ones > 0, np.arange(2), ones, 3 * ones)
    made = fitted(sample, crossed="relation", shots=3, top=10, step=0, benchmark="")
    weights = {**dict.fromkeys(FEATURES, 0.0), "constant": 2.0, "lead": 0.1}
    facts: dict[str, Any] = {
        "weights": weights,
        "coverage": Coverage((3.0, 0.0, 0.0, 0.0)),
        "first_error": 0.0,
        "over_relations": 0.1,
        "by_references": (),
    }
    linker.calibration = replace(made, **{**facts, **changes})
    return linker


def islands() -> Benchmark:
    """Towns 0 to 3 in one country, and towns 4 and 5, which know only each other."""
    names = [f"n{number}" for number in range(8)]
    triples = np.array([[0, 0, 6], [1, 0, 6], [2, 0, 6], [3, 0, 7], [2, 1, 3], [4, 1, 5]], np.int32)
    graph = Graph.of(Vocabulary.of([name.encode() for name in names]), Vocabulary.of([b"in", b"near"]), triples)
    return benchmark_of(graph)


def test_a_head_without_a_path_gets_ranks_and_no_percentage() -> None:
    linker, pairs = calibrated(islands()), [("n0", "n1"), ("n1", "n2")]
    both = linker.predict(pairs, ["n3", "n4"], 2, candidates="all")
    assert [row.probability is None for row in both] == [False, False, True, True]
    assert [each.asked for each in both.sets] == ["n3"] and {row.base_probability for row in both[2:]} == {None}
    assert any("no path joins 'n4' to the references" in note for note in both.notes)
    alone = linker.predict(pairs, ["n4"], 2, candidates="all")
    assert alone.trust is not None and not alone.trust.shown and not alone.sets and not alone.notes[1:]
    assert alone.trust.sentence == "no path joins the heads to the references: ranks only, no percentages"
    assert [row.head for row in linker.predict_pairs(pairs, ["n4", "n3"], 4, candidates="all")] == ["n3"] * 4
    sure = linker.complete(pairs, heads=["n4", "n3"], candidates="all", min_probability=0.01)
    assert {row.head for row in sure} == {"n3"}


@pytest.mark.parametrize(
    ("trust", "changes", "words"),
    [
        (Trust(2, (1.0, 2.0)), {"over_relations": 0.4}, "ranks only: percentages were off by 40 points"),
        (Trust(2, known=True), {}, "the model sees this relation in the graph; ranks only"),
    ],
)
def test_without_percentages_nothing_promises_right_answers(trust: Trust, changes: dict[str, Any], words: str) -> None:
    linker, pairs = calibrated(islands(), **changes), [("n0", "n1"), ("n1", "n2")]
    linker.trust = lambda query: trust  # type: ignore[method-assign]
    found = linker.predict(pairs, ["n3"], 2, candidates="all")
    assert found.trust is not None and words in found.trust.sentence and not found.trust.shown
    assert {row.probability for row in found} == {None} and not found.sets
    assert "right in" not in repr(found)


def test_references_that_a_relation_of_the_graph_joins_get_percentages() -> None:
    found = calibrated(islands()).predict([("n0", "n6"), ("n1", "n6")], ["n3"], 2, candidates="all")
    assert found.trust is not None and found.trust.shown and found.trust.tested == 2
    assert any("the graph has the relation in between all references" in note for note in found.notes)
