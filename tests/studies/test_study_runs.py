"""Studies on built-in data: each shows something, finished parts are not run again, stopped ones continue."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from fewlink.core.errors import FewlinkError
from fewlink.core.files import with_sha256
from fewlink.core.recipes import same_settings
from fewlink.evaluation.records import Record, RecordStore, read_records
from fewlink.evaluation.stored import StoredResult
from fewlink.studies import NAMES, open_study, tables
from fewlink.studies.embedding import true_and_false
from fewlink.studies.jobs import Clock, finished_records, pending_jobs, run_jobs
from fewlink.studies.plan import Plan, read_plan
from fewlink.studies.study import Study, StudyOutput
from fewlink.studies.workspace import StoredBenchmark, Workspace, benchmark_or_records
from fewlink.tasks import open_benchmark
from fewlink.training import RunConfig

pytestmark = pytest.mark.slow

BENCHMARK = open_benchmark("umls")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    place = tmp_path_factory.mktemp("study")
    return Workspace(BENCHMARK, place / "results", place / "work")


def cheap(**changes: object) -> Plan:
    """Two models that cost nothing."""
    fields = {"title": "t", "about": "a", "expect": "e", "seeds": 2, "benchmark": "umls", "models": ["rules", "transe"]}
    return Plan.model_validate({**fields, "settings": {"transe": ["epochs=1"]}, **changes})


@pytest.mark.parametrize("name", NAMES)
def test_each_study_runs_and_shows_something(name: str, workspace: Workspace) -> None:
    plan, study = read_plan(name).as_tiny(), open_study(name)
    study.run(plan, workspace)
    assert study.pending(plan, workspace) == []
    shown = study.show(plan, workspace)
    assert shown.tables and all(table.rows for table in shown.tables)
    assert all("<svg" in chart.svg() for chart in shown.charts.values())
    assert bool(shown.charts) == (name in ("relations", "shots", "embedding", "selection"))


def test_finished_jobs_are_not_run_again(tmp_path: Path) -> None:
    plan, messages = cheap(), []
    workspace = Workspace(BENCHMARK, tmp_path / "results", tmp_path / "work", log=messages.append)
    todo = pending_jobs(plan, workspace)
    assert [str(job) for job in todo] == ["rules, K = 3", "transe, K = 3, seeds 0, 1"]
    run_jobs(todo, workspace)
    assert [line.split(":")[0] for line in messages if ": done" in line] == [
        "[1/2] rules, K = 3",
        "[2/2] transe, K = 3, seeds 0, 1",
    ]
    assert "left" in messages[1] and "left" not in messages[3]
    assert pending_jobs(plan, workspace) == []
    assert len(read_records(workspace.results)) == 4 * (1 + 2)
    file = workspace.results / "umls" / "transe.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    lost = [r for r in map(json.loads, lines) if (r["split"], r["candidates"], r["seed"]) == ("test", "full", 1)]
    kept = "".join(line for line in lines if json.loads(line) not in lost)
    file.write_text(re.sub(', "lines": [0-9]+', "", kept))
    (job,) = pending_jobs(plan, workspace)
    assert str(job) == "transe, K = 3, seeds 1"
    assert [(p.split, p.candidates) for p in job.protocols[1]] == [("test", "full")]


def test_other_settings_are_another_measurement(tmp_path: Path) -> None:
    workspace = Workspace(BENCHMARK, tmp_path / "results", tmp_path / "work")
    plan = cheap(models=["transe"], seeds=1)
    run_jobs(pending_jobs(plan, workspace), workspace)
    other = cheap(models=["transe"], seeds=1, settings={"transe": ["epochs=2"]})
    assert len(pending_jobs(other, workspace)) == 1
    assert finished_records(other, workspace) == []
    assert len(finished_records(plan, workspace)) == 4


def test_a_new_study_is_a_function_and_a_plan(tmp_path: Path) -> None:
    def show(plan: Plan, workspace: Workspace) -> StudyOutput:
        return StudyOutput([tables.in_short(finished_records(plan, workspace))])

    study, plan = Study(show), cheap(models=["rules"])
    workspace = Workspace(BENCHMARK, tmp_path / "results", tmp_path / "work")
    assert study.pending(plan, workspace) == ["rules, K = 3"]
    study.run(plan, workspace)
    assert study.pending(plan, workspace) == []
    assert [row[0] for table in study.show(plan, workspace).tables for row in table.rows] == ["rules"]


def test_settings_are_compared_without_seed_device_and_shots() -> None:
    settings = cheap().settings_of("transe")
    assert settings is not None
    stored = {**settings.as_dict(), "seed": 7, "device": "cuda", "shots": 9, "no longer there": 1}
    assert same_settings(stored, settings)
    assert not same_settings({**stored, "epochs": 9}, settings)
    assert not same_settings(None, settings)
    assert same_settings(None, None) and same_settings({}, None)
    assert not same_settings({"epochs": 1}, None)


def test_numbers_of_references_that_leave_no_query_are_skipped() -> None:
    fewest = min(len(t.pairs) for split in ("dev", "test") for t in BENCHMARK.split(split))
    plan = cheap(models=["rules"], shots=[1, fewest - 1, fewest])
    (job,) = pending_jobs(plan, Workspace(BENCHMARK, Path("nowhere"), Path("nowhere")))
    assert job.shots == [1, fewest - 1]


def test_records_of_other_data_are_not_shown_and_the_job_is_pending(tmp_path: Path) -> None:
    workspace = Workspace(BENCHMARK, tmp_path, tmp_path / "work")
    plan = cheap(models=["rules"])
    run_jobs(pending_jobs(plan, workspace), workspace)
    assert finished_records(plan, workspace) == read_records(tmp_path) != []
    _with_other_data(tmp_path)
    assert finished_records(plan, workspace) == []
    assert len(pending_jobs(plan, workspace)) == 1


def _with_other_data(folder: Path) -> None:
    for path in folder.rglob("*.jsonl"):
        text = path.read_text().replace(BENCHMARK.fingerprint, "0" * 64)
        lines = map(json.loads, text.splitlines())
        records = [{key: value for key, value in line.items() if key not in ("sha256", "lines")} for line in lines]
        path.write_text("".join(json.dumps(with_sha256(record)) + "\n" for record in records))


def test_each_number_of_references_has_its_own_run(workspace: Workspace) -> None:
    plan = read_plan("shots").as_tiny()
    open_study("shots").run(plan, workspace)
    shots = {
        model: [
            RunConfig.read(run).settings.shots for run in sorted(workspace.work.glob(f"{model}-?shot-????????/seed-0"))
        ]
        for model in plan.models
    }
    assert shots == {"gmatching-maxp": [1, 2, 3], "fsrl": [1, 2, 3]}
    for record in (r for r in read_records(workspace.results) if r.model in shots):
        assert record.config["settings"]["shots"] == record.shots


def test_false_pairs_of_a_map_are_not_known_to_be_true() -> None:
    for task in BENCHMARK.split("test"):
        positive, negative = true_and_false(task, 3, 0)
        known = {tuple(pair) for pair in task.known.tolist()}
        assert {tuple(pair) for pair in positive.tolist()} <= known
        assert not known & {tuple(pair) for pair in negative.tolist()}
        assert not {tuple(pair) for pair in task.pairs[:3].tolist()} & {tuple(pair) for pair in positive.tolist()}


def test_records_of_the_first_seed_hold_examples(workspace: Workspace) -> None:
    open_study("overall").run(read_plan("overall").as_tiny(), workspace)
    records = [r for r in read_records(workspace.results) if r.examples]
    assert {(r.split, r.candidates, r.seed) for r in records} == {("test", "full", 0)}
    assert {e["relation"] for e in records[0].examples} <= {t.name for t in BENCHMARK.split("test")}
    right = [e for r in records for e in r.examples if e["rank"] < 2]
    assert right and all(e["tail"] in e["best"] for e in right)


def test_a_stopped_study_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = cheap()
    workspace = Workspace(BENCHMARK, tmp_path / "results", tmp_path / "work")
    add = RecordStore.add

    def stop(self: RecordStore, result: StoredResult, **more: Any) -> Path:
        assert isinstance(result, Record)
        if (result.model, result.seed) == ("transe", 1):
            raise KeyboardInterrupt
        return add(self, result, **more)

    monkeypatch.setattr(RecordStore, "add", stop)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(pending_jobs(plan, workspace), workspace)
    monkeypatch.undo()
    left = pending_jobs(plan, workspace)
    assert [str(job) for job in left] == ["transe, K = 3, seeds 1"]


def test_maps_of_a_relation_have_the_same_pairs_for_each_model(workspace: Workspace) -> None:
    open_study("embedding").run(read_plan("embedding").as_tiny(), workspace)
    maps = workspace.store.maps
    assert len({m.model for m in maps}) == len(maps) == 2
    assert len({tuple(kind for *_, kind in m.points) for m in maps}) == 1
    assert all(-1 <= m.silhouette <= 1 for m in maps)
    assert all((workspace.results / "umls" / f"{m.model}.maps.jsonl").is_file() for m in maps)


def test_the_time_left_is_estimated_by_family() -> None:
    plan = cheap()
    rules, transe = pending_jobs(plan, Workspace(BENCHMARK, Path("nowhere"), Path("nowhere")))
    clock = Clock()
    clock.add(transe, 20.0)  # two seeds
    assert clock.left([transe]) == 20.0
    assert clock.left([rules]) == 10.0
    clock.add(rules, 2.0)
    assert clock.left([rules, transe]) == 22.0


def test_other_settings_have_another_run_folder(tmp_path: Path) -> None:
    workspace = Workspace(BENCHMARK, tmp_path, tmp_path)
    settings = cheap().settings_of("transe")
    assert settings is not None
    same, other = settings.replace(seed=3, device="cuda"), settings.adjusted(["epochs=5"])
    assert workspace.run_folder("x", settings) == workspace.run_folder("x", same)
    assert workspace.run_folder("x", settings) != workspace.run_folder("x", other)


def test_records_are_shown_without_the_benchmark(tmp_path: Path) -> None:
    plan, measured = cheap(models=["rules"]), Workspace(BENCHMARK, tmp_path, tmp_path / "work")
    run_jobs(pending_jobs(plan, measured), measured)
    records = finished_records(plan, measured)
    for record in records:
        measured.store.add(record.model_copy(update={"benchmark": "wiki-one"}))  # which is not downloaded
    stored = benchmark_or_records("wiki-one", tmp_path)
    assert isinstance(stored, StoredBenchmark)
    workspace = dataclasses.replace(measured, benchmark=stored)
    assert {r.model for r in finished_records(plan, workspace)} == {"rules"}
    with pytest.raises(FewlinkError, match="wiki-one"):
        pending_jobs(plan, workspace)
    with pytest.raises(FewlinkError, match="wiki-one"):
        benchmark_or_records("wiki-one", tmp_path / "empty")


def test_records_of_trained_models_have_their_dev_curve(tmp_path: Path) -> None:
    plan = cheap(models=["fsrl"], seeds=1, settings={"fsrl": ["steps=4", "evaluate_every=2", "batch=4"]})
    workspace = Workspace(BENCHMARK, tmp_path / "results", tmp_path / "work")
    run_jobs(pending_jobs(plan, workspace), workspace)
    (dev,) = (r for r in read_records(workspace.results) if (r.split, r.candidates) == ("dev", "full"))
    measured = dev.config["measured"]
    curve = dict(measured["dev_mrr"])
    assert list(curve) == [2, 4]
    assert curve[measured["best_step"]] == max(curve.values()) == pytest.approx(dev.metrics["micro"]["mrr"], abs=1e-4)
