"""Courses of training: what is chosen on dev and on test, by hand; a study that is stopped has every station once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fewlink.base.errors import FewlinkError
from fewlink.data import open_benchmark
from fewlink.report.series import by_step
from fewlink.studies import selection
from fewlink.studies.learning_curves import CHOICES, SAID, Course, Station, by_choice, read_courses
from fewlink.studies.plan import read_plan
from fewlink.studies.runner import Bench
from fewlink.training import trainer

PLAN = read_plan("selection").made_tiny()


def station(step: int, dev: float, test: float, hits: float) -> Station:
    return Station(
        step=step, dev={"mrr": dev}, test={"mrr": test, "hits@1": hits, "hits@5": hits / 2, "hits@10": 1 - hits}
    )


def course(seed: int, *stations: Station) -> Course:
    facts = {"benchmark": "small", "data_sha256": "0" * 64, "shots": 3, "candidates": "paper", "settings": {}}
    return Course(model="fsrl", seed=seed, stations=list(stations), **facts)


BOTH = [
    course(0, station(10, 0.2, 0.1, 0.25), station(20, 0.3, 0.2, 0.5), station(30, 0.3, 0.4, 0.125)),
    course(1, station(10, 0.5, 0.3, 0.25), station(20, 0.1, 0.2, 0.75)),
]


def test_each_choice_is_what_it_says() -> None:
    dev, test, each = ([choose(c) for c in BOTH] for choose in CHOICES.values())
    assert [f["mrr"] for f in dev] == [0.2, 0.3]  # of equal ones the first
    assert [f["mrr"] for f in test] == [0.4, 0.3]
    assert [f["hits@1"] for f in test] == [0.125, 0.25]
    assert each == [
        {"mrr": 0.4, "hits@10": 0.875, "hits@5": 0.25, "hits@1": 0.5},
        {"mrr": 0.3, "hits@10": 0.75, "hits@5": 0.375, "hits@1": 0.75},
    ]


def test_the_table_has_a_row_for_each_choice_and_the_published_one() -> None:
    figures = {"mrr": 0.318, "hits@10": 0.5, "hits@5": 0.4, "hits@1": 0.2}
    table = by_choice(BOTH, {"fsrl": {"test": figures}})
    assert [row[1] for row in table.rows] == [*SAID.values(), ""]
    assert table.rows[0][:4] == ["fsrl", "dev", "2", ".250 ± .071"]
    assert table.rows[-1] == ["*fsrl, as published*", "", "", "*.318*", "*.500*", "*.400*", "*.200*"]


def test_a_chart_has_the_steps_that_all_runs_came_to() -> None:
    drawn = by_step(BOTH)
    assert [point.x for point in drawn["test"]] == [10, 20]
    assert [round(point.mean, 3) for point in drawn["dev"]] == [0.35, 0.2]
    assert by_step([]) == {}


def test_a_run_that_goes_back_leaves_no_station_behind() -> None:
    again = BOTH[0].passed(station(20, 0.9, 0.9, 0.9))
    assert [s.step for s in again.stations] == [10, 20]
    assert again.stations[1].dev["mrr"] == 0.9


@pytest.mark.parametrize("when", ["before a checkpoint", "after it"])
def test_a_stopped_study_goes_on_to_the_same_courses(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = open_benchmark("umls")
    whole, parts = (Bench(benchmark, tmp_path / n / "results", tmp_path / n / "work") for n in ("whole", "parts"))
    selection.run(PLAN, whole)
    saved: list[Path] = []

    def stop(run: Path, *more: Any) -> None:
        saved.append(run)
        if len(saved) < 3 or when == "after it":
            save(run, *more)
        if len(saved) == 3:
            raise KeyboardInterrupt

    save = trainer.save_last
    monkeypatch.setattr(trainer, "save_last", stop)
    with pytest.raises(KeyboardInterrupt):
        selection.run(PLAN, parts)
    monkeypatch.undo()
    assert selection.todo(PLAN, parts) == ["fsrl, seeds 0, 1"]
    selection.run(PLAN, parts)
    assert selection.todo(PLAN, parts) == []
    assert [s.step for s in read_courses(parts.results)[0].stations] == [10, 20, 30, 40]
    assert [c.stations for c in read_courses(parts.results)] == [c.stations for c in read_courses(whole.results)]


@pytest.mark.parametrize("model", ["rules", "transe"])
def test_a_model_without_steps_is_refused(model: str, tmp_path: Path) -> None:
    bench = Bench(open_benchmark("umls"), tmp_path / "results", tmp_path / "work")
    with pytest.raises(FewlinkError, match=f"{model} has no steps to choose among"):
        selection.run(PLAN.model_copy(update={"models": [model]}), bench)


def test_other_settings_do_not_replace_a_course(tmp_path: Path) -> None:
    one = BOTH[0].model_copy(update={"settings": {"steps": 30, "device": "cpu", "seed": 0}})
    for same in (one, one.model_copy(update={"settings": {"steps": 30, "device": "cuda", "seed": 0}})):
        same.save(tmp_path)
        assert len(read_courses(tmp_path)) == 1
    for other in ({"settings": {"steps": 40}}, {"data_sha256": "1" * 64}, {"seed": 1}):
        one.model_copy(update=other).save(tmp_path)
    assert len(read_courses(tmp_path)) == 4
