"""A fit: it answers at once, what it measures, tunes and deploys, how it continues, and its errors."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import named, quickly
from tests.pipeline.fits import QUICK_FIT, fitted, graph_file, town_lines, written

from fewlink.base.errors import FewlinkError
from fewlink.data import Benchmark, open_benchmark, training_graph
from fewlink.data.carving import BACKGROUND, carve_any
from fewlink.evaluation import Protocol, evaluate
from fewlink.graph import compile_graph
from fewlink.graph import graph as graph_module
from fewlink.pipeline import fit as module
from fewlink.pipeline import tuning
from fewlink.pipeline.fit import Fit, fit
from fewlink.prediction import Linker, write_card
from fewlink.prediction.calibration import shipped_calibration
from fewlink.trail.learner import TrailLearner
from fewlink.trail.shipped import shipped
from fewlink.training import RunConfig, is_run
from fewlink.training.checkpoints import load_best
from fewlink.training.run import Deployed

QUERY: dict[str, Any] = {"references": [("p1", "t1"), ("p3", "t3")], "heads": ["p2", "p4"]}


@pytest.fixture(autouse=True)
def without_fsync() -> Iterator[None]:
    with quickly():
        yield


def stop(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def record_of(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "fit.json").read_text())
    return content


def same(weights: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]) -> bool:
    return all(torch.equal(weights[name], others[name]) for name in {*weights, *others})


def test_a_small_graph_is_carved_with_wider_bounds_and_a_remark() -> None:
    graph = compile_graph([graph_file()])
    benchmark, remarks = carve_any(graph, "towns", seed=0, check=lambda carved: None)
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
    assert set(made.held_out) == {"shipped", "rules", "fine-tuned"} and made.deployed in ("shipped", "fine-tuned")
    assert not [path.name for path in made.run.iterdir() if path.name.startswith(".")]
    text = made.card.read_text()
    assert "Predictions use more than the metrics" in text and "Expected calibration error of first answers" in text
    assert f"Deployed are the {made.deployed} weights ({made.why})" in text
    assert all(f"| {name}" in text for name in made.held_out)
    linker = Linker.load(made.run)
    known = shipped_calibration()  # five relations are too few to calibrate on
    assert known is not None
    assert linker.calibration == replace(known, step=linker.step, shots=3, benchmark=linker.measured.fingerprint)
    assert linker.predict([("p1", "t1")], "p2").trust is not None


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
    count(training_graph, "_known_graph")
    count(graph_module, "_sorted_edges")
    fit(graph_file(), tmp_path / "towns", change=QUICK_FIT)
    assert calls["_known_graph"] == 4  # as carved, with fewer queries, of a fold, and without held-out relations
    assert calls["_sorted_edges"] <= 6, "edges that are sorted are sorted again"


def test_predictions_use_the_whole_graph_and_metrics_hide_dev_and_test() -> None:
    run = fitted().run
    linker, hidden = Linker.load(run), Linker.load(run, as_measured=True)
    assert set(named(linker.graph)) == set(town_lines())
    benchmark = open_benchmark(run / "benchmark")
    held = {task.name for split in ("dev", "test") for task in benchmark.split(split)}
    assert held and not held & {relation for _, relation, _ in named(training_graph.known_graph(hidden.benchmark))}
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
    expected = Linker.load(fitted().run).predict(**QUERY)
    assert Linker.load(moved).measured.source == str(moved / "benchmark")
    assert Linker.load(moved).predict(**QUERY) == expected
    saved = Linker.load(moved).save_pretrained(tmp_path / "saved")
    shutil.rmtree(moved)
    assert Linker.load(saved).predict(**QUERY) == expected


def test_a_new_card_says_the_same(tmp_path: Path) -> None:
    run = tmp_path / "towns"
    shutil.copytree(fitted().run, run)
    write_card(Linker.load(run), test=True)
    assert (run / "README.md").read_text() == fitted().card.read_text()
    (run / "calibration.json").unlink()
    linker = Linker.load(run)
    write_card(linker)
    assert linker.calibration is not None and linker.calibration.relations == 1  # the one of dev


def tuning_worth(rise: float) -> Any:
    """In the place of `gain`: fine-tuning raises MRR by so much."""
    return lambda before, after: (rise, 0.01)


@pytest.mark.parametrize("rise, deployed", [(0.02, "fine-tuned"), (0.005, "shipped"), (-0.02, "shipped")])
def test_fine_tuned_weights_are_deployed_if_they_are_clearly_better(
    rise: float, deployed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "gain", tuning_worth(rise))
    lines: list[str] = []
    made = fit(graph_file(), tmp_path / "towns", change=QUICK_FIT, tell=lines.append)
    weights, step = load_best(made.run)
    linker = Linker.load(made.run)
    config, calibration = RunConfig.read(made.run), linker.calibration
    assert made.deployed == deployed and calibration is not None and calibration.step == step == linker.step
    assert same(weights, shipped().weights) == (deployed == "shipped") and step == (
        4 if deployed == "fine-tuned" else 0
    )
    assert config.settings.steps == 4 and config.benchmark["train"] == []  # all are held out
    assert any(line.startswith(f"deployed: the {deployed} weights ({rise:+.3f} ± 0.010 MRR") for line in lines)
    assert f"the {deployed} weights" in made.card.read_text()


def test_without_time_it_answers_measures_a_little_and_says_so(tmp_path: Path) -> None:
    lines: list[str] = []
    made = fit(graph_file(), tmp_path / "towns", minutes=1e-6, tell=lines.append)
    assert made.deployed == "shipped" and "there is no time for 50 steps" in made.why
    assert made.why in "\n".join(lines) and "fine-tuned" not in made.held_out
    plan = record_of(made.run)["plan"]
    assert (plan["relations"], plan["queries"], plan["tuning"]) == (2, 2, False)
    assert any(f"at most {plan['queries']} queries each" in note for note in made.notes)
    assert Linker.load(made.run).predict(**QUERY).trust is not None


def test_steps_fit_the_time_and_time_is_given_back(tmp_path: Path) -> None:
    lines: list[str] = []
    change = [*QUICK_FIT[1:], "average=0.9"]
    made = fit(graph_file(), tmp_path / "towns", minutes=0.1, change=change, tell=lines.append)
    assert any(line.startswith("fine-tuning  ") and " steps, about " in line for line in lines)
    assert 50 <= record_of(made.run)["settings"]["steps"] <= 2000 and made.seconds < 12


def test_a_graph_with_nothing_to_learn_from_is_not_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewlink.trail.family.relation_pairs", lambda graph: [])
    made = fit(graph_file(), tmp_path / "towns", change=QUICK_FIT)
    assert "nothing to learn on" in made.why and "fine-tuned" not in made.held_out


def test_weights_that_are_not_finite_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = torch.full((1, 3, 1), float("nan"))
    monkeypatch.setattr(TrailLearner, "advance", lambda *_: (nothing, 0.0))
    made = fit(graph_file(), tmp_path / "towns", change=QUICK_FIT)
    assert "the loss is nan" in made.why and made.deployed == "shipped"


@pytest.mark.parametrize("stage", ["measure_shipped", "tune", "choose", "measure_and_write"])
def test_an_interrupted_fit_answers_and_continues(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "towns"
    with monkeypatch.context() as patch:
        if stage == "tune":
            patch.setattr(tuning, "SAVE_EVERY", 0.0)
            patch.setattr(TrailLearner, "advance", _until(TrailLearner.advance, 3))
        else:
            patch.setattr(Fit if hasattr(Fit, stage) else module, stage, stop)
        with pytest.raises(KeyboardInterrupt):
            fit(graph_file(), run, change=QUICK_FIT)
    assert len(Linker.load(run).predict(**QUERY)) > 2
    lines: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(Fit, "answer", stop)
        if stage in ("choose", "measure_and_write"):
            patch.setattr(TrailLearner, "advance", stop)
        made = fit(graph_file(), run, change=QUICK_FIT, tell=lines.append)
    assert f"{run} continues" in lines
    assert (made.figures, made.held_out, made.why) == (fitted().figures, fitted().held_out, fitted().why)
    assert same(load_best(run)[0], load_best(fitted().run)[0])
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]
    assert fit(graph_file(), run, change=QUICK_FIT) == made


def test_the_first_thing_a_fit_writes_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "towns"
    monkeypatch.setattr(Fit, "deploy", stop)
    with pytest.raises(KeyboardInterrupt):
        fit(graph_file(), run, change=QUICK_FIT)
    assert not is_run(run)
    monkeypatch.undo()
    made = fit(graph_file(), run, change=QUICK_FIT)
    assert (made.figures, made.notes) == (fitted().figures, fitted().notes)


def test_a_continued_fit_without_time_left_is_not_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "tune", lambda *_, **__: 0)
    made = fit(graph_file(), tmp_path / "towns", change=QUICK_FIT)
    assert made.deployed == "shipped" and made.why == "no fine-tuning: no time was left"


KILLED = """
import os, signal, sys, torch
from fewlink.pipeline import fit as module, tuning
torch.set_num_threads(1)
tuning.SAVE_EVERY = tuning.TELL_EVERY = 0.0
def tell(line):
    if line.startswith(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
module.fit(sys.argv[1], sys.argv[2], change=sys.argv[4:], tell=tell)
"""


@pytest.mark.slow
@pytest.mark.parametrize("line", ["measuring on", "fine-tuning  step 2/4", "deployed:", "test figures"])
def test_a_killed_fit_answers_and_continues_to_the_same_weights(line: str, tmp_path: Path) -> None:
    run = tmp_path / "towns"
    words = [sys.executable, "-c", KILLED, str(graph_file()), str(run), line, *QUICK_FIT]
    assert subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300).returncode == -signal.SIGKILL
    assert len(Linker.load(run).predict(**QUERY)) > 2 and not (run / "README.md").exists()
    made = fit(graph_file(), run, change=QUICK_FIT)
    assert (made.figures, made.held_out) == (fitted().figures, fitted().held_out)
    assert same(load_best(run)[0], load_best(fitted().run)[0])
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]


def _until(advance: Any, number: int) -> Any:
    """The learner's `advance`, which is interrupted at this step."""

    def limited(self: TrailLearner, first: int, count: int) -> Any:
        return stop() if first == number else advance(self, first, count)

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
        ({"change": ["width=16"]}, "the shipped weights have width = 32: fit cannot change it"),
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
