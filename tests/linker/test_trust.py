"""Trust: references are held out and ranked as a user's question would rank them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.linker.linkers import REFERENCES, umls

from fewlink.graph import Graph
from fewlink.graph.vocabulary import Vocabulary
from fewlink.linker import Linker
from fewlink.linker.calibration import Sample, fitted
from fewlink.linker.query import References, find_relation, open_candidates
from fewlink.linker.trust import FEATURES, MAX_HELD_OUT, Trust, head_fans, measure_trust, question_features, trust_note
from fewlink.scorers import Question


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
    asked = references((0, 99), (1, 90), (2, 0))
    trust = measure_trust(scorer, graph, asked, everything)
    assert trust.ranks == (1.0, 10.0, 100.0) and trust.tested == trust.shots == 3
    assert (trust.found(), trust.found(1), trust.share_found) == (2, 1, pytest.approx(2 / 3))
    assert trust.sentence() == "it would have found 2 of your 3 references in its first ten"
    for question, (head, tail) in zip(scorer.asked, asked.pairs, strict=True):
        assert question.heads.tolist() == [head] and [head, tail] not in question.references.tolist()
        assert len(question.references) == 2


def test_other_tails_of_a_references_head_do_not_compete() -> None:
    trust = measure_trust(Numbers(), umls().graph, references((0, 99), (0, 50), (1, 7)), np.arange(100, dtype=np.int32))
    assert trust.ranks[1] == 49.0  # 99 is a known tail of the same head


def test_open_candidates_are_those_of_the_other_references() -> None:
    # persons have a job, animals have an owner: nothing but the reference itself shows that a tail may be a person
    triples = np.array([[0, 0, 4], [1, 0, 4], [2, 0, 5], [6, 1, 0], [7, 1, 1]], np.int32)
    graph = Graph.of(Vocabulary.of([str(i).encode() for i in range(9)]), Vocabulary.of([b"job", b"owner"]), triples)
    asked = references((8, 4), (3, 7))
    assert 7 in open_candidates(graph, asked.ids)
    trust = measure_trust(Numbers(), graph, asked)
    assert 7 not in open_candidates(graph, asked.ids[:1])
    assert trust.ranks == (np.inf, np.inf) and trust.found() == 0


def test_the_number_of_questions_is_bounded() -> None:
    scorer = Numbers()
    pairs = tuple((number, number + 50) for number in range(16))
    trust = measure_trust(scorer, umls().graph, references(*pairs), np.arange(100, dtype=np.int32))
    assert len(scorer.asked) == trust.tested == MAX_HELD_OUT < trust.shots == 16
    assert "0 of the 3 tested references" in trust.sentence()
    assert all(len(question.references) == 15 for question in scorer.asked)


def test_one_reference_and_a_relation_of_the_graph_cannot_be_held_out() -> None:
    scorer, graph = Numbers(), umls().graph
    one = measure_trust(scorer, graph, references((0, 1)))
    assert (one.tested, one.known, one.share_found) == (0, False, 1.0) and "one reference alone" in one.sentence()
    relation = find_relation(umls(), graph.relations[0])
    known = measure_trust(scorer, graph, References(((0, 1), (2, 3)), relation))
    assert known.known and not known.tested and "the graph has this relation" in known.sentence()
    assert not scorer.asked
    features = [dict(zip(FEATURES, question_features(each), strict=True)) for each in (one, known)]
    assert [each["one reference"] for each in features] == [1.0, 0.0]
    assert all(each["found in ten"] == 0 for each in features)


def test_no_percentages_if_no_reference_is_found() -> None:
    lost, found = (trust_note(Trust(2, ranks), False, 0.1, False) for ranks in ((50.0, 60.0), (50.0, 6.0)))
    assert not lost.shown and "0 of your 2 references" in lost.sentence
    assert found.shown and (found.found, found.tested) == (1, 2)
    assert "10 points" in found.sentence


def test_the_fan_says_how_many_tails_a_head_may_have() -> None:
    triples = np.array([[0, 0, 2], [0, 0, 3], [0, 0, 4], [0, 0, 5], [1, 0, 6], [1, 0, 7], [0, 1, 2]], np.int32)
    graph = Graph.of(Vocabulary.of([str(i).encode() for i in range(8)]), Vocabulary.of([b"made", b"knows"]), triples)
    many = measure_trust(Numbers(), graph, references((0, 2)))
    back = measure_trust(Numbers(), graph, references((2, 0)))
    assert many.fan == pytest.approx(np.log(6 / 2)) and back.fan == pytest.approx(-many.fan)
    fans = head_fans(graph)
    assert fans[0] == pytest.approx(np.log(5 / 2)) and fans[1] == pytest.approx(np.log(2)) and fans[7] == 0
    assert head_fans(graph) is fans


def test_trust_is_measured_once_for_each_set_of_references() -> None:
    scorer = Numbers()
    linker = Linker(umls(), scorer)
    linker.predict(REFERENCES, ["alga"], 1)
    assert len(scorer.asked) == 1  # without a calibration nothing is held out
    sample_features = np.ones((2, len(FEATURES)))
    sample = Sample(sample_features, np.array([True, False]), np.ones(2, bool), np.arange(2), np.ones(2))
    linker.calibration = fitted(sample, crossed="relation", shots=3, top=10, step=0, benchmark="")
    counts = []
    for heads, candidates in ((["alga"], None), (["fish", "human"], None), (["alga"], "all"), (["fish"], "all")):
        before = len(scorer.asked)
        assert linker.predict(REFERENCES, heads, 1, candidates=candidates).trust is not None
        counts.append(len(scorer.asked) - before)
    assert counts == [3, 1, 3, 1]
