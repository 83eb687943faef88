"""The check of explanations: those of the shipped weights pass it, and made-up faults do not."""

from __future__ import annotations

import numpy as np
from tests.conftest import graph_of

import explanation_check
from fewlink.data import open_benchmark
from fewlink.prediction import Explanation, Linker
from fewlink.prediction.explanation import Path, Step
from fewlink.prediction.names import entity_of

GRAPH = graph_of("romania capital bucharest", "romania city cluj", "cluj near bucharest", "italy capital rome")
NAMES = {name: number for number, name in enumerate(GRAPH.entities)}
REFERENCES = np.array([[NAMES["italy"], NAMES["rome"]]])


def faults(head: str, tail: str, *paths: tuple[str, str, int | None]) -> set[str]:
    """Of an explanation with paths such as ("romania cluj bucharest", "city near", 0)."""
    made = []
    for nodes, relations, like in paths:
        steps = tuple(Step(name.removeprefix("-"), name.startswith("-")) for name in relations.split())
        made.append(Path(steps, 1.0, tuple(entity_of(GRAPH, NAMES[name]) for name in nodes.split()), like))
    ends = (entity_of(GRAPH, NAMES[name]) for name in (head, tail))
    explanation = Explanation(*ends, 1.0, {}, tuple(made), (), (), measured=True)
    return set(explanation_check.Edges(GRAPH).faults(explanation, REFERENCES, NAMES[head], NAMES[tail]))


def test_explanations_on_umls_have_no_faults() -> None:
    benchmark = open_benchmark("umls")
    row = explanation_check.summary("umls", list(explanation_check.sample(benchmark, Linker.shipped(benchmark), 24, 3)))
    assert row["explanations"] == 24 and row["paths"] > 24 and row["with a direct edge"] > 2
    assert [row[fault] for fault in explanation_check.FAULTS] == [0] * 5


def test_each_fault_is_found() -> None:
    direct = ("romania bucharest", "capital", 1)
    assert faults("romania", "bucharest", direct, ("romania cluj bucharest", "city near", 0)) == set()
    assert faults("romania", "bucharest", ("romania cluj bucharest", "city near", 0)) == {"direct edge not first"}
    assert faults("romania", "bucharest", ("romania bucharest", "capital", 0)) == {"wrong count"}
    around = ("romania bucharest romania bucharest", "capital -capital capital", 0)
    assert faults("romania", "bucharest", direct, around) == {"circular", "through its own answer"}
    assert faults("cluj", "romania", ("cluj romania", "-city", 0), ("cluj rome romania", "near city", 0)) == {
        "invented"
    }
    own = ("italy rome", "reference", None)
    assert "through its own answer" in faults("italy", "rome", ("italy rome", "capital", 1), own)
