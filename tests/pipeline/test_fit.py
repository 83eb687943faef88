"""From a file of triples to a run that answers: what is chosen, what is written, what continues, what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import named, quickly
from tests.pipeline.fits import QUICK_FIT, fitted, graph_file, town_lines, written

from fewlink.base.errors import FewlinkError
from fewlink.data import open_benchmark
from fewlink.evaluation import Protocol, evaluate
from fewlink.graph import compile_graph
from fewlink.pipeline import time_plan
from fewlink.pipeline.auto_carve import BACKGROUND, carve_any
from fewlink.pipeline.fit import fit
from fewlink.pipeline.time_plan import SAFETY, SHARES, Speed, Work, chosen, expected, shrunk
from fewlink.prediction import Linker, write_card
from fewlink.trail.learner import TrailLearner
from fewlink.trail.scorer import TrailScorer
from fewlink.trail.settings import TrailSettings
from fewlink.training import is_run
from fewlink.training.run import Deployed

SPEED = Speed(complex_epoch=2.0, transe_epoch=3.0, lesson=0.5, step=0.1, query=0.01)
WORK = Work(hidden=10, dev=100, test=200, whole=1.5)


@pytest.fixture(autouse=True)
def no_power_is_lost() -> Iterator[None]:
    with quickly():
        yield


def test_the_time_of_each_part_is_counted() -> None:
    settings = TrailSettings(complex_epochs=10, transe_epochs=5, views=3, lessons=6, steps=100, evaluate_every=50)
    assert expected(settings, SPEED, WORK) == {
        "vectors": pytest.approx(4 * (10 * 2 + 5 * 3)),
        "training": pytest.approx(60 * 0.5 + 100 * 0.1 + 2 * 100 * 0.01),
        "whole graph": pytest.approx(1.5 * 35),
        "measuring": pytest.approx((3 * 100 + 2 * 200) * 0.01),
    }
    few = dataclasses.replace(settings, steps=1, relations=2)  # two lessons of a step, and those of the scale
    assert expected(few, SPEED, WORK)["training"] == pytest.approx(60 * 0.5 + 0.1 + 1.0)


@pytest.mark.parametrize("minutes", [3, 5, 8, 12, 100])
def test_what_is_chosen_fits_the_time_and_is_the_most_that_does(minutes: float) -> None:
    wanted = TrailSettings(complex_epochs=48, transe_epochs=36)
    made, share = chosen(wanted, SPEED, WORK, 60 * minutes)
    assert sum(expected(made, SPEED, WORK).values()) <= SAFETY * 60 * minutes
    if share < 1:
        larger = shrunk(wanted, SHARES[SHARES.index(share) - 1])
        assert sum(expected(larger, SPEED, WORK).values()) > SAFETY * 60 * minutes
    else:
        assert made.steps == wanted.steps and made.complex_epochs == 48


def test_too_little_time_names_the_least_that_would_do() -> None:
    wanted = TrailSettings(complex_epochs=48, transe_epochs=36)
    with pytest.raises(FewlinkError, match=r"0.5 minutes are left .* give --minutes (\d+)") as error:
        chosen(wanted, SPEED, WORK, 30)
    least = int(str(error.value).split("--minutes ")[1].split(",")[0])
    chosen(wanted, SPEED, WORK, 60 * least)
    assert "\n" not in str(error.value)


def test_what_the_user_set_stays() -> None:
    made = shrunk(TrailSettings(steps=77, views=4), 0.1, ["steps", "views"])
    assert (made.steps, made.views, made.lessons, made.complex_epochs) == (77, 4, 1, 2)


def test_steps_are_left_out_where_vectors_took_long() -> None:
    settings = TrailSettings(complex_epochs=10, transe_epochs=5)
    same = time_plan.caught_up(settings, SPEED, WORK, 1e6, pace=3.0)
    late = time_plan.caught_up(settings, SPEED, WORK, 150, pace=1.0)
    assert same == settings and late.steps < settings.steps and late.complex_epochs == 10
    assert time_plan.caught_up(settings, SPEED, WORK, 0, pace=9.0).steps == 100  # never nothing


def test_a_small_graph_is_carved_with_wider_bounds_and_says_so() -> None:
    graph = compile_graph([graph_file()])
    benchmark, notes = carve_any(graph, "towns", TrailSettings())
    assert sum(map(len, benchmark.tasks.values())) == 6 and min(map(len, benchmark.tasks.values())) == 1
    assert benchmark.graph.triple_count >= BACKGROUND * graph.triple_count
    assert any("relations of 20 to" in note for note in notes) and any("rougher" in note for note in notes)


@pytest.mark.parametrize(
    "lines",
    [[("a", "r", "b")], [(f"e{i}", f"r{i % 2}", f"e{i + 1}") for i in range(200)]],
    ids=["one", "two relations"],
)
def test_a_graph_without_tasks_is_refused_and_nothing_is_left(lines: Any, tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match="no tasks can be carved") as error:
        fit(written(lines, tmp_path / "g.tsv"), tmp_path / "run")
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


def test_a_fit_is_a_run_with_figures_a_card_and_probabilities() -> None:
    made = fitted()
    assert is_run(made.run) and set(made.figures) == {"dev full", "dev open", "test full", "test open"}
    assert not [path.name for path in made.run.iterdir() if path.name.startswith(".")]
    text = made.card.read_text()
    assert "answers with more than it was measured on" in text and "Expected calibration error" in text
    linker = Linker.load(made.run)
    assert linker.calibration is not None and all(row.probability for row in linker.predict([("p1", "t1")], "p2"))


def test_it_answers_with_the_whole_graph_and_was_measured_without_dev_and_test() -> None:
    run = fitted().run
    linker, hidden = Linker.load(run), Linker.load(run, as_measured=True)
    assert isinstance(linker.scorer, TrailScorer) and isinstance(hidden.scorer, TrailScorer)
    lines = set(named(linker.scorer.known.graph))
    assert lines == set(town_lines())
    seen = set(named(hidden.scorer.known.graph))
    benchmark = open_benchmark(run / "benchmark")
    held = {task.name for split in ("dev", "test") for task in benchmark.split(split)}
    assert held and not held & {relation for _, relation, _ in seen}
    assert linker.as_measured().benchmark.fingerprint == benchmark.fingerprint
    measured = evaluate(benchmark, hidden.scorer, Protocol("test", 3, "full")).metrics()["micro"]
    assert measured["mrr"] == fitted().figures["test full"]["mrr"]


def test_every_relation_of_the_graph_has_a_range() -> None:
    words: dict[str, Any] = {"candidates": "full", "relation": "task 1", "exclude_known": False}
    told = Linker.load(fitted().run).predict([("p1", "l1")], ["p2"], **words)
    assert {row.tail for row in told} == {"l0", "l1", "l2", "l3"}


def test_a_run_needs_nothing_but_its_folder(tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(fitted().run, moved)
    asked: dict[str, Any] = {"references": [("p1", "t1"), ("p3", "t3")], "heads": ["p2", "p4"]}
    wanted = Linker.load(fitted().run).predict(**asked)
    assert Linker.load(moved).measured.source == str(moved / "benchmark")
    assert Linker.load(moved).predict(**asked) == wanted
    saved = Linker.load(moved).save_pretrained(tmp_path / "saved")
    shutil.rmtree(moved)
    assert Linker.load(saved).predict(**asked) == wanted


def test_the_card_of_a_fit_is_measured_without_dev_and_test_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(fitted().run, run)
    (run / "calibration.json").unlink()
    linker = Linker.load(run)
    write_card(linker, test=True)
    before = json.loads((fitted().run / "calibration.json").read_text())
    assert linker.calibration is not None and json.loads((run / "calibration.json").read_text()) == before
    assert (run / "README.md").read_text().split("## Made")[1] == fitted().card.read_text().split("## Made")[1]


@pytest.mark.parametrize("stage", ["vectors", "training", "whole graph", "measuring"])
def test_a_fit_that_was_stopped_continues(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "towns"

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if stage == "vectors":
            patch.setattr("fewlink.trail.vectors.known_graph", stop)
        elif stage == "training":
            patch.setattr(TrailLearner, "step", _until(TrailLearner.step, 3))
        elif stage == "whole graph":
            patch.setattr("fewlink.pipeline.fit._serve", stop)
        else:
            patch.setattr("fewlink.pipeline.fit.measure_and_write", stop)
        patch.setattr(time_plan, "measure", lambda *_: (SPEED, WORK))
        with pytest.raises(KeyboardInterrupt):
            fit(graph_file(), run, change=QUICK_FIT, minutes=100)
    monkeypatch.setattr(time_plan, "measure", stop)  # what was chosen is not chosen again
    lines: list[str] = []
    made = fit(graph_file(), run, change=QUICK_FIT, minutes=100, tell=lines.append)
    assert any("continues with the settings" in line for line in lines)
    assert made.figures == fitted().figures
    own, other = (folder / "best" / "weights.safetensors" for folder in (run, fitted().run))
    assert own.read_bytes() == other.read_bytes()
    again = fit(graph_file(), run, change=QUICK_FIT, minutes=100)
    assert again == made


KILLED = """
import os, signal, sys, torch
from fewlink.prediction import fit
torch.set_num_threads(1)
def tell(line):
    if line.startswith(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
fit(sys.argv[1], sys.argv[2], change=sys.argv[4:], tell=tell)
"""


@pytest.mark.slow
def test_a_fit_that_was_killed_continues_to_the_same_weights(tmp_path: Path) -> None:
    run = tmp_path / "towns"
    words = [sys.executable, "-c", KILLED, str(graph_file()), str(run), "training  step 2/4", *QUICK_FIT]
    assert subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300).returncode == -signal.SIGKILL
    assert (run / "fit.json").exists() and not (run / "README.md").exists()
    assert fit(graph_file(), run, change=QUICK_FIT).figures == fitted().figures
    own, other = (folder / "best" / "weights.safetensors" for folder in (run, fitted().run))
    assert own.read_bytes() == other.read_bytes()
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]


def _until(step: Any, number: int) -> Any:
    """TRAIL's step that stops before this one; those that only measure the speed go on."""

    def limited(self: TrailLearner, at: int, lessons: Any) -> Any:
        if at == number:
            raise KeyboardInterrupt
        return step(self, at, lessons)

    return limited


@pytest.mark.parametrize(
    "words, message",
    [
        ({"seed": 1}, "was fitted with seed = 0, not 1"),
        ({"minutes": 11.0}, "was fitted with minutes = 10.0, not 11.0"),
        ({"change": (*QUICK_FIT, "shots=2")}, "was fitted with set = "),
        ({"minutes": 0}, "minutes is 0: it must be a finite number over 0"),
        ({"minutes": float("nan")}, "minutes is nan"),
        ({"change": ["stepz=1"]}, "unknown setting 'stepz'"),
    ],
)
def test_another_wish_for_the_same_folder_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(FewlinkError, match=message):
        fit(graph_file(), fitted().run, **{"change": QUICK_FIT, **words})


def test_another_graph_and_other_folders_are_refused(tmp_path: Path) -> None:
    other = written(town_lines()[:-1], tmp_path / "other.tsv")
    with pytest.raises(FewlinkError, match="was fitted with another graph"):
        fit(other, fitted().run, change=QUICK_FIT)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(FewlinkError, match="was not made by fewlink fit"):
        fit(other, tmp_path / "full")
    with pytest.raises(FewlinkError, match="is a file"):
        fit(other, other)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]


def test_a_serving_folder_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    shutil.copytree(fitted().run, run)
    serving = Deployed.open(run)
    assert serving is not None

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(type(serving.vectors), "save", fail)
    with pytest.raises(FewlinkError):
        serving.save(run)
    kept = Deployed.open(run)
    assert kept is not None and np.array_equal(kept.benchmark.graph.tail_ids, serving.benchmark.graph.tail_ids)
    assert not [path for path in run.iterdir() if path.name.startswith(".")]
