"""The script that learns how much names count: relations are hidden, and what helps gets weight."""

from __future__ import annotations

import numpy as np

import names_gate as script
from fewlink.data import open_benchmark
from fewlink.names.columns import COLUMNS, ReferenceNames


def test_relations_are_hidden_and_none_is_of_dev_or_test() -> None:
    benchmark = open_benchmark("umls")
    hidden = list(script.hidden_relations(benchmark, 1, ["affects"]))
    left = {task.name for split in ("dev", "test") for task in benchmark.split(split)}
    assert hidden and not left & {each.task.name for each in hidden}
    assert {each.part for each in hidden if each.task.name == "affects"} == {"apart"}
    for graph, task, _ in hidden:
        assert not (graph.relation_ids == graph.relations.id(task.name)).any()


def query(by_head: float, column: int) -> script.Query:
    """Ten candidates: TRAIL knows nothing, and one column tells the fourth from the others."""
    columns = np.zeros((10, len(COLUMNS)), np.float32)
    columns[3, column] = 1
    said = ReferenceNames(by_head, 0.0, None)
    return script.Query("g", "single", f"{by_head}", True, np.zeros(10, np.float32), columns, said, 3)


def test_a_column_that_helps_gets_weight_and_no_other() -> None:
    gate = script.learn(script.Examples.of([query(0.8, 0), query(0.0, 1)]))
    assert gate.weights[0] > 3 and gate.weights[0] > 3 * gate.weights[1:].max()
    before, after = (script.reciprocal_ranks([query(0.8, 0)], each) for each in (None, gate))
    key = ("g", "single", "3 references", "0.8")
    assert before[key] == [1 / 5.5] and after[key] == [1]


def test_random_candidates_stand_for_all_that_are_left_out() -> None:
    columns = np.zeros((2_000, len(COLUMNS)), np.float32)
    scores = np.arange(2_000, dtype=np.float32)
    said = ReferenceNames(0.0, 0.0, None)
    some = script.Query("g", "single", "r", True, scores, columns, said, 0)
    places, offsets = script._some(some, np.random.default_rng(0))
    assert len(set(places.tolist())) == len(places) < 500 and 0 in places and 1_999 in places
    assert abs(np.exp(offsets).sum() - 2_000) < 1e-6
