"""Embedding baselines: scores, quality with three references, and the search for settings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fewlink.core.errors import FewlinkError
from fewlink.evaluation import Protocol, evaluate
from fewlink.models.baselines import links
from fewlink.models.baselines.embedding import EmbeddingScorer, train_baseline
from fewlink.models.baselines.links import link_settings, train_links
from fewlink.models.contract import Question
from fewlink.models.embeddings import Embeddings, EmbeddingSettings
from fewlink.models.family import Reporter
from fewlink.tasks import open_benchmark
from fewlink.training.tuning import tune

BENCHMARK = open_benchmark("umls")
QUICK = EmbeddingSettings(model="distmult", dim=16, epochs=3, negatives=32, batch_size=512, n3=0.0)


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


def test_every_entity_is_scored_where_there_are_few() -> None:
    assert link_settings("complex", 2_000).regime == "k-vs-all"
    assert link_settings("complex", 60_000).regime == "sampled"
    assert link_settings("transe", 2_000).n3 == 0


def links_of_umls() -> tuple[np.ndarray, np.ndarray]:
    triples = BENCHMARK.graph.triples()
    valid = np.random.default_rng(0).permutation(len(triples)) < 200
    return triples[~valid], triples[valid]


@pytest.mark.parametrize("model", ["complex", "transe"])
def test_link_prediction_is_trained_with_the_value_best_on_valid(model: str, tmp_path: Path) -> None:
    (train, valid), sizes = links_of_umls(), (len(BENCHMARK.graph.entities), len(BENCHMARK.graph.relations))
    name = links.searched_setting(model)
    settings = link_settings(model, sizes[0]).replace(dim=16, epochs=7)
    vectors, trials = train_links(train, valid, *sizes, settings, tmp_path)
    best = max(trials, key=lambda value: trials[value])
    assert vectors.settings[name] == best and vectors.facts["epochs"] == 7
    place = links.GRID.index(best)
    assert {*links.GRID[max(0, place - 1) : place + 2]} <= {*trials}
    assert vectors.trace[4]["best_held_out_mrr"] == trials[best] <= vectors.facts["held_out_mrr"]
    again, same = train_links(train, valid, *sizes, settings, tmp_path / "other")
    assert same == trials and torch.equal(again.entities, vectors.entities)


@pytest.mark.parametrize("change", [{"evaluate_every": 2}, {"n3": 0.0}])
def test_a_search_may_skip_evaluations_and_start_without_n3(change: dict[str, Any], tmp_path: Path) -> None:
    (train, valid), sizes = links_of_umls(), (len(BENCHMARK.graph.entities), len(BENCHMARK.graph.relations))
    settings = link_settings("distmult", sizes[0]).replace(dim=4, epochs=3, **change)
    vectors, trials = train_links(train, valid, *sizes, settings, tmp_path)
    assert vectors.settings["n3"] == max(trials, key=lambda value: trials[value]) and min(trials.values()) > 0


def test_a_stopped_search_continues_to_the_same_vectors(tmp_path: Path) -> None:
    (train, valid), sizes = links_of_umls(), (len(BENCHMARK.graph.entities), len(BENCHMARK.graph.relations))
    settings = link_settings("distmult", sizes[0]).replace(dim=8, epochs=6)
    whole, trials = train_links(train, valid, *sizes, settings, tmp_path / "whole")
    epochs = []

    def stop(title: str) -> Reporter:
        def report(trace: dict[str, Any]) -> None:
            epochs.append((title, trace["epoch"]))
            if len(epochs) == 8:
                raise KeyboardInterrupt

        return report

    with pytest.raises(KeyboardInterrupt):
        train_links(train, valid, *sizes, settings, tmp_path / "stopped", reporter=stop)
    vectors, same = train_links(train, valid, *sizes, settings, tmp_path / "stopped", reporter=stop)
    assert same == trials and torch.equal(vectors.entities, whole.entities)
    assert len(epochs) == len(set(epochs)) == 5 * len(trials) + 1, "no epoch is trained twice"
