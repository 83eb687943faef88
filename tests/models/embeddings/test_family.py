"""Embedding baselines: scores, and quality with three references."""

import numpy as np
import pytest
import torch

from fewlink.core.errors import FewlinkError
from fewlink.evaluation import Protocol, evaluate
from fewlink.models.contract import Question
from fewlink.models.embeddings import Embeddings, EmbeddingSettings
from fewlink.models.embeddings.family import EmbeddingScorer, train_baseline
from fewlink.tasks import open_benchmark

BENCHMARK = open_benchmark("umls")


def test_scores_are_those_of_the_relation_vector() -> None:
    table = Embeddings(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.ones(4, 2) * 2, "distmult")
    scorer = EmbeddingScorer(table, ["a", "b"])
    question = Question("b", np.zeros((1, 2), np.int32), np.array([0], np.int32), np.array([1, 2], np.int32))
    assert scorer(question).tolist() == [[2 * (3 + 8), 2 * (5 + 12)]]


def test_a_relation_without_references_raises() -> None:
    scorer = EmbeddingScorer(Embeddings(torch.ones(2, 2), torch.ones(2, 2), "distmult"), ["a"])
    with pytest.raises(FewlinkError, match="'b'"):
        scorer(Question("b", np.zeros((1, 2), np.int32), np.array([0]), np.array([1])))


def test_a_baseline_trained_on_three_references_beats_chance() -> None:
    settings = EmbeddingSettings(model="complex", dim=32, epochs=15, negatives=123, batch_size=256, learning_rate=0.3)
    scorer = train_baseline(BENCHMARK, settings, shots=3)
    figures = evaluate(BENCHMARK, scorer, Protocol("dev", 3, "full")).metrics()["micro"]
    assert figures["mrr"] > 0.2 and figures["amri"] > 0.4
