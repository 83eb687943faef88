"""Readings of the paper: what a name stands for, which curves answer it, choices by hand, and runs that stop."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import quickly

from fewlink.core.errors import FewlinkError, UnknownName
from fewlink.core.recipes import Vectors
from fewlink.evaluation import Protocol, evaluate
from fewlink.evaluation.curves import CurvePoint, ReadingCurve
from fewlink.evaluation.records import RecordStore
from fewlink.models import trained_family
from fewlink.studies import readings as study
from fewlink.studies.plan import Plan, read_plan
from fewlink.studies.readings import STUDY, Ranking, best_combination, curves_of, evaluation_steps, figures_of, resolve
from fewlink.studies.tables import COLUMNS
from fewlink.studies.workspace import StoredBenchmark, Workspace
from fewlink.tasks import open_benchmark
from fewlink.training import train_runs

PLAN = read_plan("readings")
TINY = PLAN.as_tiny()
METRICS = ("mrr", "hits@10", "hits@5", "hits@1")


def test_every_reading_of_the_plan_can_be_resolved() -> None:
    names = [name for question in PLAN.questions for name in question.readings]
    assert len(set(names)) == len(names)
    resolved = {name: resolve(PLAN, name) for name in names if "best" not in name.split("+")}
    whole = [(each.settings, each.vectors, each.ranking) for each in resolved.values()]
    assert len(set(whole)) == len(whole)
    used = {word for name in names for word in name.split("+")}
    assert used - {"best"} <= {*PLAN.readings}


def test_a_reading_is_a_base_and_its_changes() -> None:
    paper, program = resolve(PLAN, "paper"), resolve(PLAN, "program")
    assert (paper.settings.model, paper.settings.learning_rate, paper.settings.decays) == ("fsrl", 1e-3, 1000)
    assert (paper.vectors, paper.ranking) == (Vectors(), Ranking("paper", "first"))
    assert (program.settings.model, program.settings.steps, program.settings.dropout) == ("fsrl-released", 200_000, 0.5)
    changed = resolve(PLAN, "program+transe+raw+negatives-released+lists-released")
    assert changed.settings == program.settings.replace(standardise=False, negatives_from="released")
    assert (changed.vectors.recipe, changed.ranking) == ("transe", Ranking("released", "first"))
    seen = resolve(PLAN.model_copy(update={"shots": [5]}), "paper+vectors-references")
    assert (seen.vectors.with_train_tasks, seen.vectors.with_references, seen.settings.shots) == (True, 5, 5)


@pytest.mark.parametrize(
    ("name", "token"),
    [("transe", "base"), ("paper+program", "base"), ("paper+vectors-references+drawn-references", "first references")],
)
def test_readings_that_make_no_sense(name: str, token: str) -> None:
    with pytest.raises(FewlinkError, match=token):
        resolve(PLAN, name)


def test_some_readings_of_a_plan() -> None:
    part = PLAN.with_readings(["transe", "program", "paper+transe+dropout-5"], 500)
    assert part.only == ["paper+transe", "program", "paper+transe+dropout-5"]
    found = [(title, each.name, each.settings.steps) for title, each in study.readings_of(part, [], "")]
    assert found == [
        ("base", "program", 500),
        ("pretrained vectors", "paper+transe", 500),
        ("other", "paper+transe+dropout-5", 500),
    ]
    with pytest.raises(UnknownName, match="'transe'"):
        PLAN.with_readings(["trans"], None)
    with pytest.raises(FewlinkError, match="--readings"):
        read_plan("overall").with_readings(["paper"], None)


def test_evaluations_are_closer_before_the_first_of_the_regular_ones() -> None:
    settings = resolve(PLAN, "paper").settings
    assert evaluation_steps(settings) == [2000, 4000, 6000, 8000, 10000, 20000, 30000, 40000]
    assert evaluation_steps(settings.replace(steps=5000)) == [2000, 4000, 5000]
    assert evaluation_steps(settings.replace(steps=25000))[-2:] == [20000, 25000]
    assert evaluation_steps(settings.replace(steps=3, evaluate_every=1)) == [1, 2, 3]


def curve(name: str, seed: int, *dev: float, steps: int | None = None, **changes: Any) -> ReadingCurve:
    """A curve of a reading with these MRRs on dev, 2,000 steps apart, and half of them on test."""
    reading = resolve(PLAN, name)
    settings = reading.settings if steps is None else reading.settings.replace(steps=steps)
    points = [
        CurvePoint(step=2000 * i, dev=dict.fromkeys(METRICS, mrr), test=dict.fromkeys(METRICS, mrr / 2))
        for i, mrr in enumerate(dev, 1)
    ]
    facts = {
        "benchmark": "small",
        "data_sha256": "0",
        "model": settings.model,
        "seed": seed,
        "shots": 3,
        "candidates": reading.ranking.candidates,
        "references": reading.ranking.references,
        "settings": settings.replace(seed=seed).as_dict(),
        "vectors": {**reading.vectors.as_dict(), "set": list(reading.vectors.set), "sha256": "1"},
        "points": points,
    }
    return ReadingCurve(**{**facts, **changes})


def test_the_curves_of_a_reading() -> None:
    long = curve("paper+long", 0, 0.1, 0.2, 0.3)
    others = [
        curve("paper", 1, 0.1, data_sha256="other"),
        curve("paper+transe", 1, 0.1),
        curve("paper+lists-released", 1, 0.1),
        curve("paper+drawn-references", 1, 0.1),
        curve("paper", 5, 0.1),
        curve("paper", 1, 0.1, steps=20_000),
    ]
    (found,) = curves_of(PLAN, resolve(PLAN, "paper"), [long, *others], "0")  # a longer run is one of fewer steps
    assert (found.seed, len(found.points)) == (0, 3)
    short = PLAN.model_copy(update={"overrides": ["steps=4000"]})
    (cut,) = curves_of(short, resolve(short, "paper"), [long], "0")
    assert [point.step for point in cut.points] == [2000, 4000]
    again = curve("paper", 0, 0.4, vectors={**long.vectors, "sha256": "2"})  # the same seed with another table
    assert [each.points[0].dev["mrr"] for each in curves_of(PLAN, resolve(PLAN, "paper"), [again, long], "0")] == [
        0.1,
        0.4,
    ]


def test_choices_of_the_step_by_hand() -> None:
    figures = [(0.1, 0.5), (0.4, 0.1), (0.3, 0.6), (0.2, 0.2), (0.0, 0.3), (0.1, 0.4)]
    points = [
        CurvePoint(step=i, dev={"mrr": dev, "hits@1": 1 - dev}, test={"mrr": test, "hits@1": 1 - test})
        for i, (dev, test) in enumerate(figures)
    ]
    found = curve("paper", 0, 0.1).model_copy(update={"points": points})
    assert figures_of(found, "test", "dev") == {"mrr": 0.1, "hits@1": 0.9}
    assert figures_of(found, "dev", "test") == {"mrr": 0.3, "hits@1": 0.7}
    best = figures_of(found, "test", "five")
    assert best == {"mrr": pytest.approx((0.6 + 0.5 + 0.4 + 0.3 + 0.2) / 5), "hits@1": pytest.approx(3.5 / 5)}
    assert found.up_to(1).mean_of_best("test")["mrr"] == pytest.approx(0.3)


def test_tables_have_the_published_rows_and_say_what_is_reached(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    for seed, mrr in ((0, 0.2), (1, 0.3)):
        store.add(curve("paper", seed, 0.1, mrr, benchmark="nell-one"))
        store.add(curve("gmatching-maxp", seed, 0.7, mrr, 0.0, benchmark="nell-one"))
    stored = StoredBenchmark("nell-one", "0", FewlinkError("not here"))
    tables = STUDY.show(PLAN, Workspace(stored, tmp_path, tmp_path / "work")).tables
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    titles = [table.title.split(",")[0] for table in tables]
    assert titles == ["test", "dev", "test", "dev", "MRR after fewer steps"]
    test, dev, by_choice = tables[:3]
    assert test.rows[0][:5] == ["base", "paper", "2", "40,000", ".125 ± .035"]
    assert test.rows[-2][1:5] == ["*fsrl, as published*", "", "", "*.318*"]
    assert [row[:4] for row in by_choice.rows[:3]] == [
        ["paper", "dev", "2", ".125 ± .035"],
        ["paper", "test", "2", ".125 ± .035"],
        ["paper", "mean of the five best", "2", ".088 ± .018"],
    ]
    assert test.note.endswith(".300 is reached by gmatching-maxp with the step chosen on dev")
    assert ".700 by gmatching-maxp (step: dev)" in dev.note


def test_readings_that_only_a_choice_on_test_lifts_are_listed_separately(tmp_path: Path) -> None:
    points = [
        CurvePoint(step=step, dev=dict.fromkeys(COLUMNS.values(), dev), test=dict.fromkeys(COLUMNS.values(), test))
        for step, dev, test in ((1, 0.2, 0.1), (2, 0.1, 0.4))
    ]
    store = RecordStore(tmp_path)
    store.add(curve("paper", 0, 0.1, benchmark="nell-one").model_copy(update={"points": points}))
    workspace = Workspace(StoredBenchmark("nell-one", "0", FewlinkError("not here")), tmp_path, tmp_path / "work")
    test, dev = STUDY.show(PLAN, workspace).tables[:2]
    assert ".300 is reached by no reading with the step chosen on dev" in test.note
    assert test.note.endswith("and by paper only if the step is chosen otherwise")
    assert dev.note.endswith(".300 is reached by no reading with the step chosen on dev")


def small_plan(**fields: Any) -> Plan:
    questions = [
        {"title": "vectors", "readings": ["paper+transe", "paper+distmult", "program+transe"]},
        {"title": "dropout", "readings": ["paper+dropout-5"]},
        {"title": "lists", "readings": ["paper+lists-released"]},
        {"title": "together", "readings": ["paper+best"]},
    ]
    whole = {**PLAN.model_dump(), "seeds": 2, "questions": questions, **fields}
    return Plan.model_validate(whole)


def test_the_best_combination_has_the_best_change_of_each_question_by_dev() -> None:
    plan, means = small_plan(), {"paper": 0.2, "paper+transe": 0.3, "paper+distmult": 0.4, "paper+dropout-5": 0.1}
    curves = [curve(name, seed, mean - 0.05 + 0.1 * seed) for name, mean in means.items() for seed in (0, 1)]
    assert best_combination(plan, "paper", curves, "0") == "paper+distmult"
    better = [*curves[:-2], *(curve("paper+dropout-5", seed, 0.21) for seed in (0, 1))]
    assert best_combination(plan, "paper", better, "0") == "paper+distmult+dropout-5"
    assert best_combination(plan, "paper", curves[:-1], "0") is None  # a seed is missing
    assert [each.name for _, each in study.readings_of(plan, better, "0")][-1] == "paper+distmult+dropout-5"
    assert [each.name for _, each in study.readings_of(plan, [], "0")][-1] == "paper+lists-released"
    longer = small_plan(questions=[*plan.questions, {"title": "longer", "readings": ["paper+best+steps-100k"]}])
    *_, (_, last) = study.readings_of(longer, better, "0")
    assert (last.name, last.settings.steps) == ("paper+distmult+dropout-5+steps-100k", 100_000)


def test_readings_that_are_only_ranked_otherwise_share_their_runs(tmp_path: Path) -> None:
    plan = small_plan(only=["paper+transe", "paper+dropout-5", "paper+lists-released", "program+transe"])
    workspace = Workspace(open_benchmark("umls"), tmp_path / "results", tmp_path / "work")
    with_base = plan.with_readings(
        ["paper", "paper+lists-released", "paper+transe", "paper+dropout-5", "program"], None
    )
    jobs = study._jobs(with_base, replace(workspace, device="cuda"))
    shared = [job for job in jobs if len(job.rankings) == 2]
    assert [job.settings.seed for job in shared] == [0, 1]
    assert {r.candidates for r in shared[0].rankings} == {"paper", "released"}


def test_readings_of_fewer_steps_share_the_longest_run(tmp_path: Path) -> None:
    questions = [{"title": "steps", "readings": ["paper", "paper+long", "paper+lists-released"]}]
    workspace = Workspace(open_benchmark("umls"), tmp_path / "results", tmp_path / "work")
    jobs = study._jobs(small_plan(questions=questions), workspace)
    assert [(job.settings.seed, job.settings.steps) for job in jobs] == [(0, 200_000), (1, 200_000)]
    assert {r.candidates for r in jobs[0].rankings} == {"paper", "released"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    place = tmp_path_factory.mktemp("readings")
    workspace = Workspace(open_benchmark("umls"), place / "results", place / "work")
    with quickly():
        STUDY.run(TINY, workspace)
    return workspace


def points_of(workspace: Workspace) -> Mapping[str, list[CurvePoint]]:
    stored, fingerprint = workspace.store.read(ReadingCurve), workspace.benchmark.fingerprint
    found = study.readings_of(TINY, stored, fingerprint)
    return {each.name: curves_of(TINY, each, stored, fingerprint)[0].points for _, each in found}


def test_a_curve_has_what_training_and_evaluating_give(whole: Workspace, tmp_path: Path) -> None:
    """The slow way: a run folder, and the evaluator at every step of the curve."""
    reading = resolve(TINY, "paper+drawn-references")
    vectors = trained_family("fsrl").open_vectors(next(whole.work.glob("complex-vectors*")))
    found: list[CurvePoint] = []

    def watch(run: Path, step: int, scorer: Any) -> None:
        figures = {}
        for split in ("dev", "test"):
            micro = evaluate(whole.data, scorer, Protocol(split, 3, "paper", draw=1)).metrics()["micro"]
            figures[split] = {metric: round(micro[metric], 4) for metric in METRICS}
        found.append(CurvePoint(step=step, **figures))

    settings = reading.settings.replace(evaluate_every=2)
    train_runs(whole.data, vectors, settings, {0: tmp_path / "run"}, watch=watch)
    assert evaluation_steps(reading.settings) == [2, 4, 6, 8, 10, 20]
    assert points_of(whole)["paper+drawn-references"] == [p for p in found if p.step in (2, 4, 6, 8, 10, 20)]


def test_finished_readings_are_not_run_again(whole: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert STUDY.pending(TINY, whole) == []
    monkeypatch.setattr(study, "_run_group", lambda *a: pytest.fail("ran again"))
    STUDY.run(TINY, whole)
    more = TINY.model_copy(update={"seeds": 2})
    assert STUDY.pending(more, whole)[0] == "paper, 20 steps, seeds 1"


def test_a_stopped_study_continues_to_the_same_curves(
    whole: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "SAVE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(study, "SAVING_SHARE", float("inf"))
    again = Workspace(whole.benchmark, tmp_path / "results", tmp_path / "work")
    steps: list[int] = []
    evaluated = study._evaluate

    def stop(learner: Any, run: int, job: Any, benchmark: Any, step: int) -> Any:
        steps.append(step)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return evaluated(learner, run, job, benchmark, step)

    monkeypatch.setattr(study, "_evaluate", stop)
    with quickly(), pytest.raises(KeyboardInterrupt):
        STUDY.run(TINY, again)
    with quickly():
        STUDY.run(TINY, again)
    assert steps[:7] == [2, 4, 6, 8, 8, 10, 20]
    assert points_of(again) == points_of(whole)
    assert not [*(again.work / "readings").glob("*")]


def test_a_run_that_diverges_keeps_its_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(open_benchmark("umls"), tmp_path / "results", tmp_path / "work")
    finite = iter([True, True, False, False, False, False])
    monkeypatch.setattr(study, "_is_finite", lambda learner, run: next(finite))
    with quickly():
        STUDY.run(TINY.with_readings(["paper"], None), workspace)
    (found,) = workspace.store.read(ReadingCurve)
    assert [point.step for point in found.points] == [2, 4]


@pytest.mark.slow
def test_several_processes_store_the_same_curves(whole: Workspace, tmp_path: Path) -> None:
    lines: list[str] = []
    shutil.copytree(whole.work, tmp_path / "work")  # with its vectors
    shared = Workspace(whole.benchmark, tmp_path / "results", tmp_path / "work", processes=2, log=lines.append)
    STUDY.run(TINY.with_readings(["paper", "paper+negatives-released"], None), shared)
    found = {curve.key: curve.points for curve in shared.store.read(ReadingCurve)}
    one_process = {curve.key: curve.points for curve in whole.store.read(ReadingCurve)}
    assert len(found) == 2 and found == {key: one_process[key] for key in found}
    assert "fsrl, 1 run: done after" in lines[-1]
