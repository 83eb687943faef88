"""The benchmarks of check, relations and answer sets: figures by hand, planted errors, and small runs."""

from __future__ import annotations

import numpy as np
from tests.questions.graphs import people

import answer_sets
import check
import relations
from fewlink.questions.answer_sets import Ranks


def test_the_area_under_the_curve_counts_ties_as_one_half() -> None:
    oddness, wrong = np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False])
    assert check.area_under_curve(oddness, wrong) == (2 + 1.5) / 4
    assert check.area_under_curve(-oddness, wrong) == 0.5 / 4


def test_planted_triples_replace_right_ones() -> None:
    graph = people()
    for same_relation in (True, False):
        spoilt, planted = check.plant(graph, same_relation, 0)
        before, after = (set(map(tuple, each.triples().tolist())) for each in (graph, spoilt))
        assert planted == after - before and len(planted) == len(before - after)
        assert {relation for _, relation, _ in planted} <= {
            graph.relations.id(r) for r in ("lives", "speaks", "is", "likes")
        }
        if same_relation:
            tails = {t for _, r, t in before if r == graph.relations.id("speaks")}
            assert {t for _, r, t in planted if r == graph.relations.id("speaks")} <= tails


def test_planted_errors_are_found() -> None:
    row = check.measured("people", people(), False, 1, most=2)
    assert row["relations"] == 2 and row["area, mean of relations"] > 0.8


def test_hidden_relations_are_found() -> None:
    row = relations.measured("people", people(), 20)
    assert row["MRR"] > 0.8 and row["left out by the first stage"] == 0


def test_coverage_by_hand() -> None:
    ranks = Ranks(np.full(4, 0.5), np.full(4, 10), np.array([1.0, 3.0, 9.0, 2.0]), np.array([0, 0, 1, 1]))
    found = answer_sets.measured(ranks, np.array([1, 2, 9, 12]))
    assert found == {"coverage": 0.75, "mean size": 6.0, "median size": 2.0, "up to ten": 0.75}
