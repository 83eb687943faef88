"""Studies on built-in data: what is finished is not run again, what is stopped goes on, each one shows something."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from fewlink.data import open_benchmark
from fewlink.evaluation.records import COURSE_SUFFIX, MAP_SUFFIX, Record, read_records
from fewlink.studies import runner
from fewlink.studies.catalogue import STUDIES, study
from fewlink.studies.jobs import RecordStore, jobs, of_plan, same_settings
from fewlink.studies.pair_maps import read_maps, true_and_false
from fewlink.studies.plan import Plan, read_plan
from fewlink.studies.runner import Bench, run_jobs
from fewlink.studies.study import finished
from fewlink.training import RunConfig

pytestmark = pytest.mark.slow

BENCHMARK = open_benchmark("umls")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    place = tmp_path_factory.mktemp("study")
    return Bench(BENCHMARK, place / "results", place / "work")


def cheap(**changes: object) -> Plan:
    """Two models that cost nothing."""
    told = {"title": "t", "about": "a", "expect": "e", "seeds": 2, "benchmark": "umls", "models": ["rules", "transe"]}
    return Plan.model_validate({**told, "settings": {"transe": ["epochs=1"]}, **changes})


@pytest.mark.parametrize("name", list(STUDIES))
def test_each_study_runs_and_shows_something(name: str, bench: Bench) -> None:
    plan, found = read_plan(name).made_tiny(), study(name)
    found.run(plan, bench)
    assert found.todo(plan, bench) == []
    shown = found.show(plan, bench)
    assert shown.tables and all(table.rows for table in shown.tables)
    assert all(picture.startswith("<svg") for picture in shown.pictures.values())
    assert bool(shown.pictures) == (name in ("relations", "shots", "embedding", "selection"))


def test_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    plan, told = cheap(), []
    bench = Bench(BENCHMARK, tmp_path / "results", tmp_path / "work", tell=told.append)
    todo = jobs(plan, BENCHMARK, RecordStore(bench.results))
    assert [str(job) for job in todo] == ["rules, K = 3", "transe, K = 3, seeds 0, 1"]
    run_jobs(todo, bench)
    assert [line.split(":")[0] for line in told if ": done" in line] == [
        "[1/2] rules, K = 3",
        "[2/2] transe, K = 3, seeds 0, 1",
    ]
    assert "left" in told[1] and "left" not in told[3]
    assert jobs(plan, BENCHMARK, RecordStore(bench.results)) == []
    assert len(read_records(bench.results)) == 4 * (1 + 2)
    (lost, *_) = bench.results.glob("*transe_test*full*seed1*")
    lost.unlink()
    (job,) = jobs(plan, BENCHMARK, RecordStore(bench.results))
    assert str(job) == "transe, K = 3, seeds 1"
    assert [(p.split, p.candidates) for p in job.asked[1]] == [("test", "full")]


def test_other_settings_are_another_measurement(tmp_path: Path) -> None:
    bench = Bench(BENCHMARK, tmp_path / "results", tmp_path / "work")
    plan = cheap(models=["transe"], seeds=1)
    run_jobs(jobs(plan, BENCHMARK, RecordStore(bench.results)), bench)
    other = cheap(models=["transe"], seeds=1, settings={"transe": ["epochs=2"]})
    assert len(jobs(other, BENCHMARK, RecordStore(bench.results))) == 1
    assert finished(other, bench) == []
    assert len(finished(plan, bench)) == 4


def test_settings_are_compared_without_what_is_a_runs_own() -> None:
    wanted = cheap().settings_of("transe")
    assert wanted is not None
    found = {**wanted.as_dict(), "seed": 7, "device": "cuda", "shots": 9, "no longer there": 1}
    assert same_settings(found, wanted)
    assert not same_settings({**found, "epochs": 9}, wanted)
    assert not same_settings(None, wanted)
    assert same_settings(None, None) and same_settings({}, None)
    assert not same_settings({"epochs": 1}, None)


def test_a_study_has_no_more_references_than_its_relations_have_pairs() -> None:
    fewest = min(len(t.pairs) for split in ("dev", "test") for t in BENCHMARK.split(split))
    (job,) = jobs(cheap(models=["rules"], shots=[1, fewest - 1, fewest]), BENCHMARK, RecordStore(Path("nowhere")))
    assert job.shots == [1, fewest - 1]


def test_records_of_another_benchmark_are_not_shown(tmp_path: Path) -> None:
    bench = Bench(BENCHMARK, tmp_path, tmp_path / "work")
    plan = cheap(models=["rules"])
    run_jobs(jobs(plan, BENCHMARK, RecordStore(tmp_path)), bench)
    records = read_records(tmp_path)
    assert of_plan(records, plan, BENCHMARK) == records
    others = [r.model_copy(update={"data_sha256": "0" * 64}) for r in records]
    assert of_plan(others, plan, BENCHMARK) == []


def test_what_was_measured_on_other_data_is_to_be_run_again(tmp_path: Path) -> None:
    plan = cheap(models=["rules"])
    run_jobs(jobs(plan, BENCHMARK, RecordStore(tmp_path)), Bench(BENCHMARK, tmp_path, tmp_path / "work"))
    assert jobs(plan, BENCHMARK, RecordStore(tmp_path)) == []
    for path in tmp_path.glob("*.json"):
        path.write_text(path.read_text().replace(BENCHMARK.fingerprint, "0" * 64))
    assert len(jobs(plan, BENCHMARK, RecordStore(tmp_path))) == 1


def test_each_number_of_references_has_a_run_of_its_own_but_for_trail(bench: Bench) -> None:
    plan = read_plan("shots").made_tiny()
    study("shots").run(plan, bench)
    shots = {
        model: [RunConfig.read(run).settings.shots for run in sorted(bench.work.glob(f"{model}-?shot-????????/seed-0"))]
        for model in plan.models
    }
    assert shots == {"gmatching-maxp": [1, 2, 3], "fsrl": [1, 2, 3], "trail": [3]}
    for record in (r for r in read_records(bench.results) if r.model in shots):
        assert record.config["settings"]["shots"] == (3 if record.model == "trail" else record.shots)


def test_maps_have_no_false_pair_that_is_true() -> None:
    for task in BENCHMARK.split("test"):
        positive, negative = true_and_false(task, 3, 0)
        known = {tuple(pair) for pair in task.known.tolist()}
        assert {tuple(pair) for pair in positive.tolist()} <= known
        assert not known & {tuple(pair) for pair in negative.tolist()}
        assert not {tuple(pair) for pair in task.pairs[:3].tolist()} & {tuple(pair) for pair in positive.tolist()}


def test_records_of_the_first_seed_hold_examples(bench: Bench) -> None:
    study("overall").run(read_plan("overall").made_tiny(), bench)
    told = [r for r in read_records(bench.results) if r.examples]
    assert {(r.split, r.candidates, r.seed) for r in told} == {("test", "full", 0)}
    assert {e["relation"] for e in told[0].examples} <= {t.name for t in BENCHMARK.split("test")}
    right = [e for r in told for e in r.examples if e["rank"] < 2]
    assert right and all(e["tail"] in e["best"] for e in right)


def test_a_stopped_study_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = cheap()
    bench = Bench(BENCHMARK, tmp_path / "results", tmp_path / "work")
    save: Callable[[Record, Path], Path] = Record.save

    def stop(self: Record, folder: Path) -> Path:
        if (self.model, self.seed) == ("transe", 1):
            raise KeyboardInterrupt
        return save(self, folder)

    monkeypatch.setattr(Record, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs(plan, BENCHMARK, RecordStore(bench.results)), bench)
    monkeypatch.undo()
    left = jobs(plan, BENCHMARK, RecordStore(bench.results))
    assert [str(job) for job in left] == ["transe, K = 3, seeds 1"]


def test_maps_of_a_relation_hold_the_same_pairs_for_each_model(bench: Bench) -> None:
    study("embedding").run(read_plan("embedding").made_tiny(), bench)
    maps = read_maps(bench.results)
    assert len({m.model for m in maps}) == len(maps) == 3
    assert len({tuple(kind for *_, kind in m.points) for m in maps}) == 1
    assert all(-1 <= m.silhouette <= 1 for m in maps)
    beside = (MAP_SUFFIX, COURSE_SUFFIX)
    assert len(read_records(bench.results)) == len([p for p in bench.results.iterdir() if not p.name.endswith(beside)])


def test_the_time_left_is_that_of_the_kinds_seen() -> None:
    plan = cheap()
    rules, transe = jobs(plan, BENCHMARK, RecordStore(Path("nowhere")))
    clock = runner.Clock()
    clock.took(transe, 20.0)  # two seeds
    assert clock.left([transe]) == 20.0
    assert clock.left([rules]) == 10.0
    clock.took(rules, 2.0)
    assert clock.left([rules, transe]) == 22.0


def test_runs_of_other_settings_have_other_folders(tmp_path: Path) -> None:
    bench = Bench(BENCHMARK, tmp_path, tmp_path)
    settings = cheap().settings_of("transe")
    assert settings is not None
    assert bench.place("x", settings) == bench.place("x", dataclasses.replace(settings, seed=3, device="cuda"))
    assert bench.place("x", settings) != bench.place("x", settings.adjusted(["epochs=5"]))
