"""Explanations of TRAIL hold: removing the named paths lowers the score more than removing random ones."""

from __future__ import annotations

import itertools

import numpy as np
from tests.conftest import graph_of

import explanations
from fewlink.data import open_benchmark


def test_named_paths_lose_more_than_random_ones_on_umls() -> None:
    found = explanations.deletions(
        open_benchmark("umls"), explanations.shipped().network().eval(), heads=2, draws=2, shots=3
    )
    row = explanations.summary("umls", list(itertools.islice(found, 12)))
    assert row["pairs"] + row["left out"] == 12 and row["left out"] < 3 and row["circular"] == 0
    assert row["named"] > 2 * row["random"] and row["named lose more"] > 0.8
    assert row["named, read again"] > 2 * row["random, read again"] and row["named lose more, read again"] > 0.8


def test_random_paths_lie_between_the_same_ends() -> None:
    graph = graph_of("a r b", "b r c", "a s d", "d s c", "c r e", "e r f")
    ids = {name: i for i, name in enumerate(graph.entities)}
    named = {(ids["a"], 0, ids["b"]), (ids["b"], 0, ids["c"])}
    rng = np.random.default_rng(0)
    drawn = explanations.random_triples(graph, np.array([ids["a"]]), ids["c"], [2], named, rng)
    assert drawn == {(ids["a"], 1, ids["d"]), (ids["d"], 1, ids["c"])}  # not c r e, from which a is far


def test_means_and_shares_by_hand() -> None:
    deletion = explanations.Deletion(2, 1.0, (0.5, 1.5), 2.0, (0.0, 1.0), 0, 0.5)
    row = explanations.summary("x", [deletion, None])
    assert (row["named"], row["random"], row["named lose more"]) == (1.0, 1.0, 0.5)
    assert (row["named, read again"], row["random, read again"], row["named lose more, read again"]) == (2.0, 0.5, 1.0)
    assert row["pairs"] == row["left out"] == 1 and row["CPU ms"] == 500
