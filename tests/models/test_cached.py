"""Cached scores are those of the scorer, computed once; the best tails of any scorer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fewlink.evaluation import Protocol, evaluate
from fewlink.models.baselines import learning_free
from fewlink.models.cached import CachedScorer
from fewlink.models.contract import Question, best_tails
from fewlink.tasks import open_benchmark

REFERENCES = np.array([[0, 1]], np.int32)


class Counting:
    """Scores 10·head + candidate, and counts its calls."""

    name = "counting"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, question: Question) -> np.ndarray:
        self.calls += 1
        return (10 * question.heads[:, None] + question.candidates).astype(np.float32)


def scores(scorer: CachedScorer, heads: list[int], candidates: list[int], relation: str = "r") -> list[list[float]]:
    question = Question(relation, REFERENCES, np.array(heads, np.int32), np.array(candidates, np.int32))
    return np.asarray(scorer(question)).tolist()


def test_a_subset_of_cached_candidates_is_not_scored_again() -> None:
    counting = Counting()
    scorer = CachedScorer(counting)
    assert scores(scorer, [1, 2], [5, 3, 4]) == [[15, 13, 14], [25, 23, 24]]
    assert scores(scorer, [2], [4, 5]) == [[24, 25]]
    assert scores(scorer, [2, 1], [3]) == [[23], [13]]
    assert counting.calls == 1


def test_new_candidates_heads_and_relations_are_scored() -> None:
    counting = Counting()
    scorer = CachedScorer(counting)
    scores(scorer, [1], [3, 4])
    assert scores(scorer, [1], [4, 5]) == [[14, 15]]
    assert scores(scorer, [3], [3, 4]) == [[33, 34]]
    assert scores(scorer, [1], [3], relation="other") == [[13]]
    assert counting.calls == 4
    assert scores(scorer, [1, 3], [4]) == [[14], [34]]
    assert counting.calls == 4


def test_other_references_are_scored_anew() -> None:
    counting = Counting()
    scorer = CachedScorer(counting)
    for references in (REFERENCES, REFERENCES + 1):
        scorer(Question("r", references, np.array([1], np.int32), np.array([3, 4], np.int32)))
    assert counting.calls == 2


def test_metrics_equal_those_of_the_uncached_scorer() -> None:
    benchmark = open_benchmark("umls")
    rules = learning_free("rules", benchmark.graph)
    scorer = CachedScorer(rules)
    for candidates in ("full", "paper", "open"):
        protocol = Protocol("dev", 3, candidates)
        assert evaluate(benchmark, scorer, protocol).metrics() == evaluate(benchmark, rules, protocol).metrics()


class Learnt:
    """Scores on a device that follow from a parameter: those of a model that is being trained."""

    name = "learnt"

    def __init__(self, device: str) -> None:
        self.worth = torch.tensor([1.0, 3.0, 3.0, 2.0], device=device, requires_grad=True)

    def __call__(self, question: Question) -> torch.Tensor:
        return self.worth[torch.from_numpy(question.candidates.astype(np.int64)).to(self.worth.device)].unsqueeze(0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_best_tails_of_scores_on_any_device_with_or_without_gradients(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    question = Question("r", REFERENCES, np.array([0], np.int32), np.array([3, 2, 1, 0], np.int32))
    assert best_tails(Learnt(device), question, 3) == [[(2, 3.0), (1, 3.0), (3, 2.0)]]
