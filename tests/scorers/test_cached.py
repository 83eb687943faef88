from __future__ import annotations

import numpy as np
import pytest

from fewlink.baselines.learning_free import learning_free
from fewlink.data import open_benchmark
from fewlink.evaluation import Protocol, evaluate
from fewlink.scorers import Question, cached
from fewlink.scorers.cached import CachedScorer

REFERENCES = np.array([[0, 1]], np.int32)


class Counting:
    """Scores 10·head + candidate, and counts how often it is asked."""

    name = "counting"

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, question: Question) -> np.ndarray:
        self.asked += 1
        return (10 * question.heads[:, None] + question.candidates).astype(np.float32)


def ask(scorer: CachedScorer, heads: list[int], candidates: list[int], relation: str = "r") -> list[list[float]]:
    question = Question(relation, REFERENCES, np.array(heads, np.int32), np.array(candidates, np.int32))
    return np.asarray(scorer(question)).tolist()


def test_fewer_candidates_of_the_same_heads_are_not_scored_again() -> None:
    counting = Counting()
    scorer = CachedScorer(counting)
    assert ask(scorer, [1, 2], [5, 3, 4]) == [[15, 13, 14], [25, 23, 24]]
    assert ask(scorer, [2], [4, 5]) == [[24, 25]]
    assert ask(scorer, [2, 1], [3]) == [[23], [13]]
    assert counting.asked == 1


def test_what_is_new_is_scored() -> None:
    counting = Counting()
    scorer = CachedScorer(counting)
    ask(scorer, [1], [3, 4])
    assert ask(scorer, [1], [4, 5]) == [[14, 15]]
    assert ask(scorer, [3], [3, 4]) == [[33, 34]]
    assert ask(scorer, [1], [3], relation="other") == [[13]]
    assert counting.asked == 4
    assert ask(scorer, [1, 3], [4]) == [[14], [34]]
    assert counting.asked == 4


def test_other_references_are_another_question() -> None:
    counting = Counting()
    scorer = CachedScorer(counting)
    for references in (REFERENCES, REFERENCES + 1):
        scorer(Question("r", references, np.array([1], np.int32), np.array([3, 4], np.int32)))
    assert counting.asked == 2


def test_it_does_not_remember_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached, "REMEMBERED", 3)
    counting = Counting()
    scorer = CachedScorer(counting)
    for _ in range(2):
        ask(scorer, [1, 2], [3, 4])
    assert counting.asked == 2


def test_ranks_are_the_same_with_it() -> None:
    benchmark = open_benchmark("umls")
    rules = learning_free("rules", benchmark.graph)
    scorer = CachedScorer(rules)
    for candidates in ("full", "paper", "open"):
        protocol = Protocol("dev", 3, candidates)
        assert evaluate(benchmark, scorer, protocol).metrics() == evaluate(benchmark, rules, protocol).metrics()
