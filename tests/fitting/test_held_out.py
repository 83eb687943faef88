"""Held-out questions: which they are, how many fit the time, and when one scorer is better than another."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import pytest
import torch
from tests.conftest import graph_of, named
from tests.fitting.fits import MANY, graph_file

from fewlink.core.errors import FewlinkError
from fewlink.fitting.held_out import (
    CHOOSING,
    EXPECTING,
    MAX_QUERIES,
    MIN_NEW,
    NEW_SHARE,
    PAIRS_SHARE,
    estimate,
    figures_by_shots,
    figures_of,
    gain,
    hides_relations,
    hold_out,
    questions,
    rank_held_out,
)
from fewlink.graph import Graph, compile_graph
from fewlink.models.contract import Question
from fewlink.tasks import Benchmark
from fewlink.tasks.candidates import open_candidates


class Counted:
    """Scores that depend on head and candidate alone, and the number of times they were asked for."""

    name = "counted"

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, question: Question) -> torch.Tensor:
        self.asked += 1
        mixed = question.heads[:, None].astype(np.int64) * 7919 + question.candidates[None]
        return torch.from_numpy(mixed * 104729 % 1009 / 1009)


class Forgetful(Counted):
    """A scorer of a graph that notes which relations it was told not to read."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: list[str] = []

    def for_many_heads(self) -> Self:
        return self

    def without_names(self) -> Self:
        return self

    def without(self, relation: str) -> Self:
        self.hidden.append(relation)
        return self


def towns(tasks: int = 6) -> tuple[Graph, Benchmark]:
    graph = compile_graph([graph_file(tasks)])
    return graph, hold_out(graph, "towns", 0)


def pairs_of(graph: Graph, relation: str) -> set[tuple[int, int]]:
    number = graph.relations.find(relation)
    return {(h, t) for h, r, t in graph.triples().tolist() if r == number}


def as_set(pairs: np.ndarray) -> set[tuple[int, int]]:
    return {(head, tail) for head, tail in pairs.tolist()}


def test_relations_are_hidden_entirely_where_there_are_enough() -> None:
    graph, held = towns(MANY)
    assert hides_relations(held) and MIN_NEW <= len(held.split("dev")) <= NEW_SHARE * len(graph.relations) + 1
    assert [*held.graph.entities] == [*graph.entities]
    assert held.graph.triple_count >= (1 - NEW_SHARE) * graph.triple_count
    hidden = {task.name for task in held.split("dev")}
    assert set(named(graph)) - set(named(held.graph)) == {line for line in named(graph) if line[1] in hidden}
    for task in held.split("dev"):
        assert as_set(task.known) == pairs_of(graph, task.name)
        halves = [questions(held, task, half) for half in (CHOOSING, EXPECTING)]
        assert all({*half} <= {"3", "30", "all"} and "3" in half and "all" in half for half in halves)
        queries = [as_set(own) for half in halves for _, own in half.values()]
        asked = set().union(*queries)
        assert sum(map(len, queries)) == len(asked) <= MAX_QUERIES  # no pair is asked about twice
        for half in halves:
            assert len(half["3"][0]) == 3 and as_set(half["all"][0]) | asked == as_set(task.known)
            assert not any(as_set(references) & asked for references, _ in half.values())
            assert np.array_equal(half["all"][0][:3], half["3"][0])


def test_pairs_are_hidden_where_relations_are_few() -> None:
    graph, held = towns()
    assert not hides_relations(held)
    assert len(held.split("dev")) == 9  # all relations but `is in`, which has 8 pairs
    for task in held.split("dev"):
        known, left = pairs_of(graph, task.name), pairs_of(held.graph, task.name)
        asked = as_set(task.pairs[3:])
        assert asked and asked <= known - left and len(known - left) <= PAIRS_SHARE * len(known)
        for half in (CHOOSING, EXPECTING):
            ((name, (references, queries)),) = questions(held, task, half).items()
            assert name == "all" and as_set(references) == known - asked and as_set(queries) <= asked


def test_nothing_to_hold_out_raises() -> None:
    with pytest.raises(FewlinkError, match="held out"):
        hold_out(graph_of("a r b", "b r c", "c s a"), "tiny", 0)
    with pytest.raises(FewlinkError, match="held out"):  # no other relation joins anything
        hold_out(graph_of(*(f"e{i} r e{i * 7 % 30}" for i in range(90))), "one relation", 0)


def test_exact_inverses_are_hidden_too() -> None:
    graph, _ = towns(MANY)
    names = [*graph.relations, "inverse"]
    own = graph.triples()[graph.triples()[:, 1] == graph.relations.find("task 3")]
    turned = np.stack([own[:, 2], np.full(len(own), len(graph.relations)), own[:, 0]], 1)
    rows = np.concatenate([graph.triples(), turned])
    larger = Graph.of(graph.entities, type(graph.relations).of(names), rows)
    for seed in range(20):
        held = hold_out(larger, "towns", seed)
        hidden = {task.name for task in held.split("dev")}
        assert "inverse" not in hidden
        if "task 3" in hidden:
            assert not {"task 3", "inverse"} & {*held.graph.relations}
            return
    raise AssertionError("task 3 was never held out")


@pytest.mark.parametrize("tasks", [6, MANY])
def test_ranks_are_those_of_a_literal_version(tasks: int) -> None:
    _, held = towns(tasks)
    ((*ranks,),) = rank_held_out(held, [Counted()], CHOOSING, math.inf)
    everything = np.arange(len(held.graph.entities))
    for task, own in zip(held.split("dev"), ranks, strict=True):
        for name, (references, queries) in questions(held, task, CHOOSING).items():
            likely = {*open_candidates(held.graph, references).tolist()}
            expected = []
            for head, tail in queries[np.argsort(queries[:, 0], kind="stable")].tolist():
                scores = Counted()(Question("", references, np.array([head]), everything))[0].tolist()
                rivals = [e for e in everything.tolist() if e == tail or (head, e) not in as_set(task.known)]
                values = {e: scores[e] if e in likely else -1.0 for e in rivals}
                higher = sum(value > values[tail] for value in values.values())
                tied = sum(value == values[tail] for value in values.values()) - 1
                expected.append(1 + higher + tied / 2)
            assert own[name] == pytest.approx(expected)


def test_a_relation_of_the_graph_is_not_read_beside_its_references() -> None:
    for tasks, hidden in ((6, True), (MANY, False)):
        _, held = towns(tasks)
        scorer = Forgetful()
        rank_held_out(held, [scorer], CHOOSING, math.inf)
        assert scorer.hidden == ([task.name for task in held.split("dev")] if hidden else [])


def test_figures_are_means_over_relations() -> None:
    ranks: Any = [{"3": [1, 2], "all": [4]}, {"all": [1]}]
    figures = figures_of(ranks)
    assert figures["mrr"] == pytest.approx(((1 + 1 / 2 + 1 / 4) / 3 + 1) / 2)
    assert figures["hits@1"] == pytest.approx((1 / 3 + 1) / 2) and figures["hits@10"] == 1
    assert (figures["relations"], figures["queries"]) == (2, 4) and "error" not in figures
    by_shots = figures_by_shots(ranks)
    assert [*by_shots] == ["3", "all", "any"] and by_shots["any"] == figures
    assert [*figures_by_shots([{"all": [1, 2]}])] == ["all"]
    assert by_shots["3"]["mrr"] == 0.75 and by_shots["3"]["relations"] == 1
    assert by_shots["all"]["mrr"] == pytest.approx(0.625) and by_shots["all"]["queries"] == 2


def test_a_gain_is_a_mean_over_relations_with_a_standard_error_for_few() -> None:
    assert estimate([1, 2, 3, 4, 5]) == pytest.approx((3, 1))  # √(2.5 / 5) · √(4 / 2)
    before: Any = [{"all": [2]}, {"all": [2, 2]}, {"all": [1]}, {"all": [4]}]
    after: Any = [{"all": [1]}, {"all": [1, 2]}, {"all": [1]}, {"all": [2]}]
    rises = [0.5, 0.25, 0, 0.25]
    assert gain(before, after) == pytest.approx((0.25, np.std(rises, ddof=1) / 2 * 3**0.5))
    for count in (1, 2, 3):  # one relation, however many queries it has, says nothing about others
        assert gain(before[:count], after[:count]).error == math.inf
