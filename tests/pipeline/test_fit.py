"""A fit: the settings it chooses, the files it writes, how it continues, and its errors."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fewlink.pipeline.time_plan import SAFETY, SHARES, TimePlan, Timings, Workload, scaled_down
from tests.conftest import named, quickly
from tests.pipeline.fits import QUICK_FIT, fitted, graph_file, town_lines, written

from fewlink.base.errors import FewlinkError
from fewlink.data import Benchmark, open_benchmark, training_graph
from fewlink.data.carving import BACKGROUND, carve_any
from fewlink.evaluation import Protocol, evaluate
from fewlink.graph import compile_graph
from fewlink.graph import graph as graph_module
from fewlink.pipeline import time_plan
from fewlink.pipeline.fit import fit
from fewlink.prediction import Linker, write_card
from fewlink.trail_0_1.learner import Trail01Learner
from fewlink.trail_0_1.model import Trail01Settings
from fewlink.trail_0_1.scorer import Trail01Scorer
from fewlink.training import is_run
from fewlink.training.run import Deployed
from fewlink.training.trainer import check

PLAN = TimePlan(
    Timings(complex_epoch=2.0, transe_epoch=3.0, lesson=0.5, step=0.1, query=0.01),
    Workload(hidden=10, dev=100, test=200, whole=1.5),
)


@pytest.fixture(autouse=True)
def without_fsync() -> Iterator[None]:
    with quickly():
        yield


def test_expected_seconds_of_each_stage() -> None:
    settings = Trail01Settings(complex_epochs=10, transe_epochs=5, views=3, lessons=6, steps=100, evaluate_every=50)
    assert PLAN.expected(settings) == {
        "vectors": pytest.approx(4 * (10 * 2 + 5 * 3)),
        "training": pytest.approx(60 * 0.5 + 100 * 0.1 + 2 * 100 * 0.01),
        "whole graph": pytest.approx(1.5 * 35),
        "measuring": pytest.approx((3 * 100 + 2 * 200) * 0.01),
    }
    few = dataclasses.replace(settings, steps=1, relations=2)  # two episodes of a step, and those that set the scale
    assert PLAN.expected(few)["training"] == pytest.approx(60 * 0.5 + 0.1 + 1.0)


@pytest.mark.parametrize("minutes", [3, 5, 8, 12, 100])
def test_the_largest_settings_that_fit_the_time_are_chosen(minutes: float) -> None:
    full = Trail01Settings(complex_epochs=48, transe_epochs=36)
    scaled, share = PLAN.choose(full, 60 * minutes)
    assert sum(PLAN.expected(scaled).values()) <= SAFETY * 60 * minutes
    if share < 1:
        larger = scaled_down(full, SHARES[SHARES.index(share) - 1])
        assert sum(PLAN.expected(larger).values()) > SAFETY * 60 * minutes
    else:
        assert scaled.steps == full.steps and scaled.complex_epochs == 48


def test_too_little_time_raises_with_the_least_time() -> None:
    full = Trail01Settings(complex_epochs=48, transe_epochs=36)
    with pytest.raises(FewlinkError, match=r"0.5 minutes are left .* give --minutes (\d+)") as error:
        PLAN.choose(full, 30)
    least = int(str(error.value).split("--minutes ")[1].split(",")[0])
    PLAN.choose(full, 60 * least)
    assert "\n" not in str(error.value)


def test_settings_of_the_user_stay() -> None:
    scaled = scaled_down(Trail01Settings(steps=77, views=4), 0.1, ["steps", "views"])
    assert (scaled.steps, scaled.views, scaled.lessons, scaled.complex_epochs) == (77, 4, 1, 2)


def test_training_is_shortened_if_vectors_took_long() -> None:
    settings = Trail01Settings(complex_epochs=10, transe_epochs=5)
    same = PLAN.shorten_training(settings, 1e6, pace=3.0)
    late = PLAN.shorten_training(settings, 150, pace=1.0)
    assert same == settings and late.steps < settings.steps and late.complex_epochs == 10
    assert PLAN.shorten_training(settings, 0, pace=9.0).steps == 100  # never fewer


def test_a_small_graph_is_carved_with_wider_bounds_and_a_remark() -> None:
    graph = compile_graph([graph_file()])
    benchmark, remarks = carve_any(graph, "towns", seed=0, check=lambda carved: check(carved, Trail01Settings()))
    assert sum(map(len, benchmark.tasks.values())) == 6 and min(map(len, benchmark.tasks.values())) == 1
    assert benchmark.graph.triple_count >= BACKGROUND * graph.triple_count
    assert any("relations of 20 to" in text for text in remarks) and any("less precise" in text for text in remarks)


@pytest.mark.parametrize(
    "lines",
    [[("a", "r", "b")], [(f"e{i}", f"r{i % 2}", f"e{i + 1}") for i in range(200)]],
    ids=["one", "two relations"],
)
def test_a_graph_without_tasks_raises_and_leaves_nothing(lines: Any, tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match="no tasks can be carved") as error:
        fit(written(lines, tmp_path / "g.tsv"), tmp_path / "run")
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


def test_a_fit_is_a_run_with_metrics_card_and_probabilities() -> None:
    made = fitted()
    assert is_run(made.run) and set(made.figures) == {"dev full", "dev open", "test full", "test open"}
    assert not [path.name for path in made.run.iterdir() if path.name.startswith(".")]
    text = made.card.read_text()
    assert "Predictions use more than the metrics" in text and "Expected calibration error" in text
    linker = Linker.load(made.run)
    assert linker.calibration is not None and all(row.probability for row in linker.predict([("p1", "t1")], "p2"))


def test_a_fit_derives_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def count(place: Any, name: str) -> None:
        function = getattr(place, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(place, name, counted)

    monkeypatch.setattr(Benchmark, "open", lambda *_: pytest.fail("the benchmark is at hand and was opened again"))
    monkeypatch.setattr(Deployed, "open", lambda *_: pytest.fail("the deployed graph is at hand and was opened again"))
    for name in ("_known_graph", "_masked_views"):
        count(training_graph, name)
    for name in ("_sorted_edges", "_triples"):
        count(graph_module, name)
    fit(graph_file(), tmp_path / "towns", change=QUICK_FIT)
    assert calls["_known_graph"] == 1 and calls["_masked_views"] == 1
    assert calls["_sorted_edges"] <= 6, "edges that are sorted are sorted again"
    graphs = 1 + 1 + 1 + 2  # the whole one, the background, what is known, and two views
    assert calls["_triples"] <= graphs


def test_predictions_use_the_whole_graph_and_metrics_hide_dev_and_test() -> None:
    run = fitted().run
    linker, hidden = Linker.load(run), Linker.load(run, as_measured=True)
    assert isinstance(linker.scorer, Trail01Scorer) and isinstance(hidden.scorer, Trail01Scorer)
    lines = set(named(linker.scorer.graph.graph))
    assert lines == set(town_lines())
    seen = set(named(hidden.scorer.graph.graph))
    benchmark = open_benchmark(run / "benchmark")
    held = {task.name for split in ("dev", "test") for task in benchmark.split(split)}
    assert held and not held & {relation for _, relation, _ in seen}
    assert linker.as_measured().benchmark.fingerprint == benchmark.fingerprint
    measured = evaluate(benchmark, hidden.scorer, Protocol("test", 3, "full")).metrics()["micro"]
    assert measured["mrr"] == fitted().figures["test full"]["mrr"]


def test_every_relation_of_the_graph_has_a_range() -> None:
    options: dict[str, Any] = {"candidates": "full", "relation": "task 1", "exclude_known": False}
    predictions = Linker.load(fitted().run).predict([("p1", "l1")], ["p2"], **options)
    assert {row.tail for row in predictions} == {"l0", "l1", "l2", "l3"}


def test_a_run_folder_is_self_contained(tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(fitted().run, moved)
    query: dict[str, Any] = {"references": [("p1", "t1"), ("p3", "t3")], "heads": ["p2", "p4"]}
    expected = Linker.load(fitted().run).predict(**query)
    assert Linker.load(moved).measured.source == str(moved / "benchmark")
    assert Linker.load(moved).predict(**query) == expected
    saved = Linker.load(moved).save_pretrained(tmp_path / "saved")
    shutil.rmtree(moved)
    assert Linker.load(saved).predict(**query) == expected


def test_a_new_card_of_a_fit_also_hides_dev_and_test(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(fitted().run, run)
    (run / "calibration.json").unlink()
    linker = Linker.load(run)
    write_card(linker, test=True)
    before = json.loads((fitted().run / "calibration.json").read_text())
    assert linker.calibration is not None and json.loads((run / "calibration.json").read_text()) == before
    assert (run / "README.md").read_text().split("## Data")[1] == fitted().card.read_text().split("## Data")[1]


@pytest.mark.parametrize("stage", ["vectors", "training", "whole graph", "measuring"])
def test_an_interrupted_fit_continues(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "towns"

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if stage == "vectors":
            patch.setattr("fewlink.trail_0_1.vectors.known_graph", stop)
        elif stage == "training":
            patch.setattr(Trail01Learner, "step", _until(Trail01Learner.step, 3))
        elif stage == "whole graph":
            patch.setattr("fewlink.pipeline.fit._deploy", stop)
        else:
            patch.setattr("fewlink.pipeline.fit.measure_and_write", stop)
        patch.setattr(time_plan, "measure", lambda *_: PLAN)
        with pytest.raises(KeyboardInterrupt):
            fit(graph_file(), run, change=QUICK_FIT, minutes=100)
    monkeypatch.setattr(time_plan, "measure", stop)  # settings are chosen once
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
from fewlink.pipeline.fit import fit
torch.set_num_threads(1)
def tell(line):
    if line.startswith(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
fit(sys.argv[1], sys.argv[2], change=sys.argv[4:], tell=tell)
"""


@pytest.mark.slow
def test_a_killed_fit_continues_to_the_same_weights(tmp_path: Path) -> None:
    run = tmp_path / "towns"
    words = [sys.executable, "-c", KILLED, str(graph_file()), str(run), "training  step 2/4", *QUICK_FIT]
    assert subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300).returncode == -signal.SIGKILL
    assert (run / "fit.json").exists() and not (run / "README.md").exists()
    assert fit(graph_file(), run, change=QUICK_FIT).figures == fitted().figures
    own, other = (folder / "best" / "weights.safetensors" for folder in (run, fitted().run))
    assert own.read_bytes() == other.read_bytes()
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]


def _until(step: Any, number: int) -> Any:
    """TRAIL's step, which raises at this number; steps that measure the speed pass."""

    def limited(self: Trail01Learner, at: int, lessons: Any) -> Any:
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
def test_other_arguments_for_the_same_folder_raise(words: dict[str, Any], message: str) -> None:
    with pytest.raises(FewlinkError, match=message):
        fit(graph_file(), fitted().run, **{"change": QUICK_FIT, **words})


def test_another_graph_and_foreign_folders_raise(tmp_path: Path) -> None:
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


def test_a_serving_folder_is_replaced_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
