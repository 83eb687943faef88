"""A fit: it answers at once, what it measures, tunes and deploys, how it continues, and its errors."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import named, quickly
from tests.fitting.fits import MANY, QUICK_FIT, fitted, graph_file, town_lines, written

from fewlink.core.errors import FewlinkError
from fewlink.evaluation import Protocol, evaluate
from fewlink.fitting import fit as module
from fewlink.fitting.append import append
from fewlink.fitting.card import write_card
from fewlink.fitting.fit import fit, gain_text, is_clear
from fewlink.fitting.held_out import estimate, hides_relations
from fewlink.fitting.record import locked_folder
from fewlink.linker import Linker
from fewlink.models.baselines import learning_free
from fewlink.models.checkpoints import load_best
from fewlink.models.contract import Question
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.shipped import shipped
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.training import RunConfig, is_run

QUERY: dict[str, Any] = {"references": [("p1", "t1"), ("p3", "t3")], "heads": ["p2", "p4"]}


@pytest.fixture(autouse=True)
def without_fsync() -> Iterator[None]:
    with quickly():
        yield


def stop(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def same(weights: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]) -> bool:
    return all(torch.equal(weights[name], others[name]) for name in {*weights, *others})


@pytest.mark.parametrize(
    "lines",
    [
        [("a", "r", "b")],
        [(f"e{i}", "r", f"e{(7 * i) % 30}") for i in range(90)],
        town_lines()[:30],
    ],
    ids=["one triple", "one relation", "30 triples"],
)
def test_a_graph_of_which_nothing_can_be_held_out_answers_and_says_that_nothing_is_measured(
    lines: Any, tmp_path: Path
) -> None:
    told: list[str] = []
    made = fit(written(lines, tmp_path / "g.tsv"), tmp_path / "run", tell=told.append)
    assert made.deployed == "shipped" and made.why
    assert (made.held_out, made.figures, made.card) == ({}, {}, None)
    assert f"deployed: {made.deployed_text}" in told and told[-1].endswith(made.why)
    (head, _, tail), moved = lines[0], shutil.move(tmp_path / "run", tmp_path / "moved")
    linker = Linker.load(moved)
    assert set(named(linker.graph)) == {*lines} and linker.calibration is not None
    assert linker.predict([(head, tail)], [tail], candidates="all", k=1)
    assert Linker.load(linker.save_pretrained(tmp_path / "saved")).predict([(head, tail)], [tail], candidates="all")
    assert fit(tmp_path / "g.tsv", moved).why == made.why.replace("run:", "moved:")


@pytest.mark.parametrize("tasks", [6, MANY])
def test_a_fit_is_a_run_with_metrics_card_and_probabilities(tasks: int) -> None:
    made, new = fitted(tasks), tasks == MANY
    assert is_run(made.run) and {*made.figures} == ({"3", "all", "any"} if new else {"all"})
    assert {*made.held_out} == {"shipped", "fine-tuned", *(["rules"] if new else [])} and made.deployed in made.held_out
    assert not [path.name for path in made.run.iterdir() if path.name.startswith(".")]
    assert made.card is not None
    text = made.card.read_text()
    assert f"({made.why})" in text and all(f"| {name}" in text for name in made.held_out)
    assert all(f"{figures['mrr']:.3f}" in text for figures in made.figures.values())
    linker = Linker.load(made.run)
    assert hides_relations(linker.measured) == new
    assert linker.calibration is not None and linker.calibration.benchmark == linker.measured.fingerprint
    assert linker.predict([("p1", "t1")], "p2").trust is not None


def test_predictions_use_the_whole_graph_and_metrics_hide_held_out_relations() -> None:
    run = fitted(MANY).run
    linker, hidden = Linker.load(run), Linker.load(run, as_measured=True)
    assert set(named(linker.graph)) == set(town_lines(MANY))
    benchmark = open_benchmark(run / "benchmark")
    held = {task.name for task in benchmark.split("dev")}
    assert held and not held & {relation for _, relation, _ in named(hidden.benchmark.known_graph)}
    assert evaluate(benchmark, hidden.scorer, Protocol("dev", 3, "open")).queries


def test_a_run_folder_is_self_contained(tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(fitted().run, moved)
    expected = Linker.load(fitted().run).predict(**QUERY)
    assert Linker.load(moved).measured.source == str(moved / "benchmark")
    assert Linker.load(moved).predict(**QUERY) == expected
    saved = Linker.load(moved).save_pretrained(tmp_path / "saved")
    shutil.rmtree(moved)
    assert Linker.load(saved).predict(**QUERY) == expected


def worth(relations: int = 6, **mrr: float) -> Any:
    """In the place of `rank_held_out`: each kind of scorer has about this MRR on some relations."""

    def ranks(held: Benchmark, scorers: Any, half: int, until: float) -> Any:
        found = []
        for scorer in scorers:
            name = "rules" if scorer.name == "rules" else "tuned"
            if name == "tuned" and same(scorer.network.state_dict(), shipped().weights):
                name = "shipped"
            found.append([{"3": [1 / (mrr[name] + place / 100)]} for place in range(relations)])
        return found

    return ranks


BEST = {"fine-tuned": (0.3, 0.2, 0.4), "rules": (0.3, 0.5, 0.4)}


@pytest.mark.parametrize("deployed", BEST)
def test_what_does_best_on_held_out_relations_is_deployed(
    deployed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = dict(zip(("shipped", "rules", "tuned"), BEST[deployed], strict=True))
    monkeypatch.setattr(module, "rank_held_out", worth(**figures))
    lines: list[str] = []
    made = fit(graph_file(MANY), tmp_path / "towns", change=QUICK_FIT, tell=lines.append)
    weights, step = load_best(made.run)
    linker = Linker.load(made.run)
    config, calibration = RunConfig.read(made.run), linker.calibration
    assert made.deployed == deployed and calibration is not None and calibration.step == step == linker.step
    assert same(weights, shipped().weights) == (deployed != "fine-tuned") and step == 4 * (deployed == "fine-tuned")
    assert config.settings.steps == 4
    assert (config.answers_with, linker.scorer.name) == (("rules", "rules") if deployed == "rules" else ("", "trail"))
    assert f"deployed: {made.deployed_text}" in lines
    rise = figures["rules" if deployed == "rules" else "tuned"] - figures["shipped"]
    assert f"{rise:+.3f} ± 0.000 MRR on 6 held-out relations" in made.why
    assert made.card is not None and made.why in made.card.read_text()


@pytest.mark.parametrize(
    "gains, deployed",
    [
        ([0.09], "shipped"),  # one relation is never enough
        ([0.09, 0.09, 0.09], "shipped"),
        ([0.09, 0.09, 0.09, 0.09], "fine-tuned"),
        ([0.02, 0.06, 0.04, 0.05, 0.03, 0.04], "fine-tuned"),
        ([0.3, -0.1, 0.1, -0.05, 0.2, 0.02], "shipped"),  # +0.078 ± 0.084
        ([-0.01] * 8, "shipped"),
    ],
)
def test_weights_are_deployed_only_if_better_by_two_standard_errors(gains: list[float], deployed: str) -> None:
    found = estimate(gains)
    assert is_clear(found) == (deployed == "fine-tuned")
    text = gain_text("4 steps of fine-tuning", found, len(gains))
    assert f"{np.mean(gains):+.3f}" in text and ("±" in text) == (len(gains) > 3)


def test_a_fit_without_tuning_says_so(tmp_path: Path) -> None:
    made = fit(graph_file(), tmp_path / "towns", tune=False)
    assert made.deployed == "shipped" and "no fine-tuning" in made.why
    assert {*made.held_out} == {"shipped"} and made.figures and same(load_best(made.run)[0], shipped().weights)
    with pytest.raises(FewlinkError, match="tune"):
        fit(graph_file(), tmp_path / "towns")


def test_a_fit_without_names_reads_none(tmp_path: Path) -> None:
    made = fit(graph_file(), tmp_path / "towns", read_names=False, tune=False)
    scorer = Linker.load(made.run).scorer
    assert isinstance(scorer, TrailScorer) and not scorer.graph.reads_names
    with pytest.raises(FewlinkError, match="names"):
        fit(graph_file(), tmp_path / "towns", tune=False)


def test_deployed_rules_answer_wherever_a_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "rank_held_out", worth(shipped=0.3, rules=0.5, tuned=0.4))
    run = fit(graph_file(MANY), tmp_path / "towns", change=QUICK_FIT).run
    linker, hidden = Linker.load(run), Linker.load(run, as_measured=True)
    references, heads = linker.find_references([("p1", "t1")]), np.array([1, 2])
    question = Question("", references.ids, heads, np.arange(len(linker.graph.entities)))
    expected = learning_free("rules", linker.graph)(question)
    np.testing.assert_array_equal(linker.scorer(question), expected)
    benchmark = open_benchmark(run / "benchmark")
    protocol = Protocol("dev", 3, "open")
    measured = evaluate(benchmark, learning_free("rules", benchmark.known_graph), protocol)
    np.testing.assert_array_equal(measured.tasks[0].ranks, evaluate(benchmark, hidden.scorer, protocol).tasks[0].ranks)
    rows = linker.predict(**QUERY, explain="full")
    assert rows.trust is not None and all(row.reasons is not None for row in rows)
    saved = Linker.load(linker.save_pretrained(tmp_path / "saved"))
    assert saved.scorer.name == "rules" and saved.predict(**QUERY) == linker.predict(**QUERY)
    append(run, [written([("newcomer", "lives in", "t3")], tmp_path / "new.tsv")])
    assert Linker.load(run).predict([("p1", "t1")], ["newcomer"], k=1)[0].tail


def test_without_time_it_answers_and_says_that_nothing_is_measured(tmp_path: Path) -> None:
    lines: list[str] = []
    run = tmp_path / "towns"
    made = fit(graph_file(), run, minutes=1e-6, change=QUICK_FIT, tell=lines.append)
    assert made.deployed == "shipped" and "--minutes" in made.why
    assert f"deployed: {made.deployed_text}" in lines and not made.held_out and made.card is None
    assert len(Linker.load(run).predict(**QUERY)) > 2
    more = fit(graph_file(), run, change=QUICK_FIT)  # more time continues it
    assert set(more.held_out) >= {"shipped"} and more.seconds > made.seconds and more.card is not None


def test_more_minutes_tune_a_fit_again(tmp_path: Path) -> None:
    run = tmp_path / "towns"
    made = fit(graph_file(), run, minutes=8, change=QUICK_FIT)
    assert fit(graph_file(), run, minutes=5, change=QUICK_FIT) == replace(made, minutes=5)  # with less nothing is done
    again = fit(graph_file(), run, minutes=20, change=QUICK_FIT)
    assert (again.figures, again.held_out) == (made.figures, made.held_out) and again.seconds > made.seconds


KILLED = """
import os, signal, sys, torch
from fewlink.fitting import fit as module, tuning
torch.set_num_threads(1)
tuning.SAVE_EVERY = tuning.TELL_EVERY = 0.0
def tell(line):
    if sys.argv[3] in line:
        os.kill(os.getpid(), signal.SIGKILL)
module.fit(sys.argv[1], sys.argv[2], change=sys.argv[4:], tell=tell)
"""


@pytest.mark.slow
@pytest.mark.parametrize("line", ["measuring the built-in", "fine-tuning  step 2 of", "deployed:", "what to expect"])
def test_a_killed_fit_answers_and_continues_to_the_same_weights(line: str, tmp_path: Path) -> None:
    run = tmp_path / "towns"
    words = [sys.executable, "-c", KILLED, str(graph_file()), str(run), line, *QUICK_FIT]
    assert subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300).returncode == -signal.SIGKILL
    assert len(Linker.load(run).predict(**QUERY)) > 2 and not (run / "README.md").exists()
    made = fit(graph_file(), run, change=QUICK_FIT)
    assert (made.figures, made.held_out) == (fitted().figures, fitted().held_out)
    assert same(load_best(run)[0], load_best(fitted().run)[0])
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    "words, named",
    [
        ({"seed": 1}, "seed = 0"),
        ({"change": (*QUICK_FIT, "shots=2")}, "set = "),
        ({"minutes": 0}, "^minutes is 0"),
        ({"minutes": float("nan")}, "^minutes is nan"),
        ({"change": ["stepz=1"]}, "'stepz'"),
        ({"change": ["width=16"]}, "width"),
    ],
)
def test_other_arguments_for_the_same_folder_raise(words: dict[str, Any], named: str) -> None:
    with pytest.raises(FewlinkError, match=named):
        fit(graph_file(), fitted().run, **{"change": QUICK_FIT, **words})


def test_another_graph_and_foreign_folders_raise(tmp_path: Path) -> None:
    other = written(town_lines()[:-1], tmp_path / "other.tsv")
    with pytest.raises(FewlinkError, match="another graph"):
        fit(other, fitted().run, change=QUICK_FIT)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    for place in (tmp_path / "full", other):
        with pytest.raises(FewlinkError, match=place.name):
            fit(other, place)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]


def test_a_second_fit_is_refused_and_leaves_the_first_alone(tmp_path: Path) -> None:
    run = tmp_path / "towns"
    with locked_folder(run), ThreadPoolExecutor(1) as other:
        for _ in range(2):  # the first has written nothing yet
            with pytest.raises(FewlinkError, match=run.name):
                other.submit(fit, graph_file(), run).result()
    assert not run.exists()  # it stayed empty


@pytest.mark.parametrize("part", ["calibration.json", "fit.json", "serving", "benchmark"])
def test_a_part_of_a_fit_that_is_missing_is_an_error(part: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(fitted().run, run)
    (shutil.rmtree if (run / part).is_dir() else os.unlink)(run / part)
    with pytest.raises(FewlinkError, match=part):
        Linker.load(run)
    if part == "calibration.json":
        assert "probability" in write_card(run).read_text() and Linker.load(run).calibration is not None
    elif part == "fit.json":
        with pytest.raises(FewlinkError, match=part):
            fit(graph_file(), run, change=QUICK_FIT)
    elif part == "serving":
        with pytest.raises(FewlinkError, match=part):
            append(run, [written([("newcomer", "lives in", "t3")], tmp_path / "new.tsv")])
