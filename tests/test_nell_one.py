"""What is published of NELL-One. Skipped where the data set is not beside the repository."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fewlink.cli.data import describe
from fewlink.evaluation import Protocol, evaluate
from fewlink.models.baselines import learning_free
from fewlink.tasks import SPLITS, Benchmark, candidates_of, competing_tails
from fewlink.tasks.catalogue import CATALOGUE
from fewlink.tasks.nell_layout import read_layout

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "nell-one"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there"),
]


@pytest.fixture(scope="module")
def nell() -> Benchmark:
    return read_layout(FOLDER)[0]


def test_the_counts_are_the_published_ones(nell: Benchmark) -> None:
    counts = describe(nell)["counts"]
    assert (counts["entities"], counts["background triples"], counts["background relations"]) == (68_544, 181_109, 291)
    assert [counts[f"{split} tasks"] for split in SPLITS] == [51, 5, 11]
    assert [counts[f"{split} pairs"] for split in SPLITS] == [8_526, 1_004, 2_158]


def test_the_optional_files_agree_with_what_is_rebuilt(nell: Benchmark) -> None:
    remarks = read_layout(FOLDER)[1]
    assert not [r for r in remarks if "ids" in r or "rel2candidates" in r or "e1rel_e2" in r]
    assert nell.fingerprint == CATALOGUE["nell-one"].fingerprint


def test_candidates_are_those_of_the_published_file(nell: Benchmark) -> None:
    listed = json.loads((FOLDER / "rel2candidates.json").read_text())
    for split in SPLITS:
        for task in nell.tasks[split]:
            pool = candidates_of("full", task, task.pairs[:3], nell.graph)
            assert sorted(nell.graph.entities[e] for e in pool.ids) == sorted(set(listed[task.name]))
    assert len(nell.task("concept:sportsgamesport").range) == 123
    assert len(nell.task("concept:geopoliticallocationresidenceofpersion").range) == 11_618


@pytest.mark.parametrize(("shots", "queries"), [(1, 2_147), (3, 2_125), (5, 2_103)])
def test_as_many_queries_are_ranked_as_are_published(nell: Benchmark, shots: int, queries: int) -> None:
    assert evaluate(nell, learning_free("popularity", nell.graph), Protocol(shots=shots)).queries == queries


def test_rules_reach_what_they_should(nell: Benchmark) -> None:
    assert evaluate(nell, learning_free("rules", nell.graph), Protocol(shots=3)).metrics()["micro"]["mrr"] >= 0.20


@pytest.mark.parametrize(
    ("protocol", "split", "candidates", "tails"),
    [
        ("paper", "dev", 0.60, 0.58),
        ("released", "dev", 0.93, 0.29),
        ("paper", "test", 0.68, 0.67),
        ("released", "test", 0.84, 0.40),
    ],
)
def test_candidates_in_set_order_were_negatives_in_training(
    nell: Benchmark, protocol: str, split: str, candidates: float, tails: float
) -> None:
    """The figures of docs/findings.md, of relations with more than 1000 tails: who is in a list of a train relation."""
    lists = np.unique(np.concatenate([competing_tails(protocol, task, nell.graph) for task in nell.split("train")]))
    long = [task for task in nell.split(split) if len(task.range) > 1000]
    found = [np.isin(competing_tails(protocol, task, nell.graph), lists).mean() for task in long]
    answers = [np.isin(task.split(3)[1][:, 1], lists).mean() for task in long]
    assert (round(float(np.mean(found)), 2), round(float(np.mean(answers)), 2)) == (candidates, tails)
