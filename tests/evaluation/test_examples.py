from __future__ import annotations

import numpy as np
from tests.conftest import benchmark_of, graph_of, task_of

from fewlink.evaluation import Protocol, evaluate
from fewlink.evaluation.examples import examples
from fewlink.scorers import Question


class ByNumber:
    """A candidate is the better the lower its number."""

    name = "by-number"

    def __call__(self, question: Question) -> np.ndarray:
        return -np.tile(question.candidates.astype(float), (len(question.heads), 1))


def test_a_right_and_a_wrong_prediction_of_each_relation_without_other_answers() -> None:
    graph = graph_of("a r b", "b r c", "c r d", "d r e", "e r f", "f r g")
    pairs = [(6, 0), (0, 1), (0, 4), (1, 0), (2, 5)]  # (6, 0) is the reference
    benchmark = benchmark_of(graph, test=[task_of(pairs, range=[0, 1, 2, 3, 4, 5], name="likes")])
    protocol = Protocol("test", 1, "full")
    evaluation = evaluate(benchmark, ByNumber(), protocol)
    right, wrong = examples(benchmark, ByNumber(), evaluation)
    assert (right["relation"], right["head"], right["tail"], right["rank"]) == ("likes", "b", "a", 1.0)
    assert right["best"] == ["a", "b", "c", "d", "e"]
    # ranks of the others: (0, 1) 2, (0, 4) 4 as b is known, (2, 5) 6; the one in the middle
    assert (wrong["head"], wrong["tail"], wrong["rank"]) == ("a", "e", 4.0)
    assert wrong["best"] == ["a", "c", "d", "e", "f"]
