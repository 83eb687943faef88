"""Embedding baselines: scores, quality with three references, and the search for settings."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fewlink.base.errors import FewlinkError
from fewlink.baselines.embedding import EmbeddingScorer, train_baseline, tune
from fewlink.data import open_benchmark
from fewlink.embeddings import Embeddings, EmbeddingSettings
from fewlink.evaluation import Protocol, evaluate
from fewlink.scorers import Question

BENCHMARK = open_benchmark("umls")
QUICK = EmbeddingSettings(model="distmult", dim=16, epochs=3, negatives=32, batch_size=512, n3=0.0)


def test_scores_are_those_of_the_relation_vector() -> None:
    table = Embeddings(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.ones(4, 2) * 2, "distmult")
    scorer = EmbeddingScorer(table, ["a", "b"])
    question = Question("b", np.zeros((1, 2), np.int32), np.array([0], np.int32), np.array([1, 2], np.int32))
    assert scorer(question).tolist() == [[2 * (3 + 8), 2 * (5 + 12)]]


def test_a_relation_without_references_raises() -> None:
    scorer = EmbeddingScorer(Embeddings(torch.ones(2, 2), torch.ones(2, 2), "distmult"), ["a"])
    with pytest.raises(FewlinkError, match="without references of 'b'"):
        scorer(Question("b", np.zeros((1, 2), np.int32), np.array([0]), np.array([1])))


def test_a_baseline_trained_on_three_references_beats_chance() -> None:
    settings = EmbeddingSettings(model="complex", dim=32, epochs=15, negatives=123, batch_size=256, learning_rate=0.3)
    scorer = train_baseline(BENCHMARK, settings, shots=3)
    figures = evaluate(BENCHMARK, scorer, Protocol("dev", 3, "full")).metrics()["micro"]
    assert figures["mrr"] > 0.2 and figures["amri"] > 0.4


def test_a_search_resumes_and_stops_at_the_total_number_of_trials(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    first = tune(BENCHMARK, QUICK, tmp_path, trials=1)
    again = tune(BENCHMARK, QUICK, tmp_path, trials=2)
    last = tune(BENCHMARK, QUICK, tmp_path, trials=2)
    assert (first[2], again[2], last[2]) == (1, 2, 2)
    assert first[1] <= again[1] == last[1] and again[0] == last[0]


def test_the_base_settings_are_the_first_trial(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    base = EmbeddingSettings(model="transe", dim=8, epochs=4, negatives=512, n3=0.0, batch_size=512)
    best, _, _ = tune(BENCHMARK, base, tmp_path, trials=1)
    assert best == base
