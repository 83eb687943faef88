"""Learning curves: selection on dev and test worked out by hand; a study that is stopped has every point once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fewlink.core.errors import FewlinkError
from fewlink.evaluation.curves import CurvePoint, LearningCurve
from fewlink.evaluation.records import RecordStore
from fewlink.studies.charts import step_lines
from fewlink.studies.plan import read_plan
from fewlink.studies.selection import STUDY as SELECTION
from fewlink.studies.tables import SELECTION_LABELS, SELECTIONS, by_selection
from fewlink.studies.workspace import Workspace
from fewlink.tasks import open_benchmark
from fewlink.training import trainer

PLAN = read_plan("selection").as_tiny()


def point(step: int, dev: float, test: float, hits: float) -> CurvePoint:
    return CurvePoint(
        step=step, dev={"mrr": dev}, test={"mrr": test, "hits@1": hits, "hits@5": hits / 2, "hits@10": 1 - hits}
    )


def curve(seed: int, *points: CurvePoint) -> LearningCurve:
    facts = {"benchmark": "small", "data_sha256": "0" * 64, "shots": 3, "candidates": "paper", "settings": {}}
    return LearningCurve(model="fsrl", seed=seed, points=list(points), **facts)


BOTH = [
    curve(0, point(10, 0.2, 0.1, 0.25), point(20, 0.3, 0.2, 0.5), point(30, 0.3, 0.4, 0.125)),
    curve(1, point(10, 0.5, 0.3, 0.25), point(20, 0.1, 0.2, 0.75)),
]


def test_each_selection_takes_its_step() -> None:
    dev, test, each = ([choose(c) for c in BOTH] for choose in SELECTIONS.values())
    assert [f["mrr"] for f in dev] == [0.2, 0.3]  # of equal ones the first
    assert [f["mrr"] for f in test] == [0.4, 0.3]
    assert [f["hits@1"] for f in test] == [0.125, 0.25]
    assert each == [
        {"mrr": 0.4, "hits@10": 0.875, "hits@5": 0.25, "hits@1": 0.5},
        {"mrr": 0.3, "hits@10": 0.75, "hits@5": 0.375, "hits@1": 0.75},
    ]


def test_the_table_has_a_row_for_each_selection_and_the_published_one() -> None:
    figures = {"mrr": 0.318, "hits@10": 0.5, "hits@5": 0.4, "hits@1": 0.2}
    table = by_selection(BOTH, {"fsrl": {"test": figures}})
    assert [row[1] for row in table.rows] == [*SELECTION_LABELS.values(), ""]
    assert table.rows[0][:4] == ["fsrl", "dev", "2", ".250 ± .071"]
    assert table.rows[-1] == ["*fsrl, as published*", "", "", "*.318*", "*.500*", "*.400*", "*.200*"]


def test_a_chart_has_the_steps_that_all_curves_have() -> None:
    drawn = step_lines(BOTH)
    assert [point.x for point in drawn["test"]] == [10, 20]
    assert [round(point.mean, 3) for point in drawn["dev"]] == [0.35, 0.2]
    assert step_lines([]) == {}


def test_a_point_of_a_resumed_run_replaces_later_ones() -> None:
    again = BOTH[0].with_point(point(20, 0.9, 0.9, 0.9))
    assert [p.step for p in again.points] == [10, 20]
    assert again.points[1].dev["mrr"] == 0.9


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A study that was not stopped."""
    place = tmp_path_factory.mktemp("whole")
    workspace = Workspace(open_benchmark("umls"), place / "results", place / "work")
    SELECTION.run(PLAN, workspace)
    return workspace


@pytest.mark.slow
@pytest.mark.parametrize("when", [pytest.param("before a checkpoint", marks=pytest.mark.long), "after it"])
def test_a_stopped_study_continues_to_the_same_curves(
    when: str, whole: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Workspace(whole.benchmark, tmp_path / "results", tmp_path / "work")
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
        SELECTION.run(PLAN, parts)
    monkeypatch.undo()
    assert SELECTION.pending(PLAN, parts) == ["fsrl, seeds 0, 1"]
    SELECTION.run(PLAN, parts)
    assert SELECTION.pending(PLAN, parts) == []
    assert [point.step for point in parts.store.curves[0].points] == [10, 20, 30, 40]
    assert [c.points for c in parts.store.curves] == [c.points for c in whole.store.curves]


@pytest.mark.parametrize("model", ["rules", "transe"])
def test_a_model_without_steps_is_refused(model: str, tmp_path: Path) -> None:
    workspace = Workspace(open_benchmark("umls"), tmp_path / "results", tmp_path / "work")
    with pytest.raises(FewlinkError, match=model):
        SELECTION.run(PLAN.model_copy(update={"models": [model]}), workspace)


def test_other_settings_are_another_curve(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    one = BOTH[0].model_copy(update={"settings": {"steps": 30, "device": "cpu", "seed": 0}})
    for same in (one, one.model_copy(update={"settings": {"steps": 30, "device": "cuda", "seed": 0}})):
        store.add(same)
        assert len(store.curves) == 1
    for other in ({"settings": {"steps": 40}}, {"data_sha256": "1" * 64}, {"seed": 1}):
        store.add(one.model_copy(update=other))
    assert len(store.curves) == 4
