"""Readings of the paper: what a name stands for, which curves are its own, and figures by the choice of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import readings
from common import RESULTS
from fewlink.core.errors import FewlinkError, UnknownName
from fewlink.evaluation.records import RecordStore
from readings import CurvePoint, Reading, ReadingCurve, curves_of

METRICS = ("mrr", "hits@10", "hits@5", "hits@1")


def curve(seed: int, dev: Sequence[float], test: Sequence[float], **changes: Any) -> ReadingCurve:
    """A curve with these MRRs, 2,000 steps apart."""
    points = [
        CurvePoint(step=2000 * i, dev=dict.fromkeys(METRICS, d), test=dict.fromkeys(METRICS, t))
        for i, (d, t) in enumerate(zip(dev, test, strict=True), 1)
    ]
    facts: dict[str, Any] = {
        "benchmark": "small", "data_sha256": "0", "model": "fsrl", "seed": seed, "shots": 3, "candidates": "paper",
        "references": "first", "settings": {}, "vectors": {"sha256": "1"}, "points": points,
        "readings": {"paper": 4000, "paper+long": 6000},
    }  # fmt: skip
    return ReadingCurve(**{**facts, **changes})


def test_a_reading_is_a_base_and_its_changes() -> None:
    program = Reading("program")
    changed = Reading("program+transe+raw+negatives-released+lists-released")
    assert (program.settings.model, program.settings.steps) == ("fsrl-released", 200_000)
    assert changed.settings == program.settings.replace(standardise=False, negatives_from="released")  # type: ignore[call-arg]
    assert (changed.vectors.recipe, changed.candidates, changed.references) == ("transe", "released", "first")


@pytest.mark.parametrize(
    ("name", "token"),
    [("transe", "base"), ("paper+program", "base"), ("paper+vectors-references+drawn-references", "first references")],
)
def test_readings_that_make_no_sense(name: str, token: str) -> None:
    with pytest.raises(FewlinkError, match=token):
        Reading(name)
    with pytest.raises(UnknownName, match="'transe'"):
        Reading("paper+trans")


def test_a_longer_run_is_one_of_fewer_steps() -> None:
    stored = [curve(1, [0.1, 0.2, 0.3], [0.4, 0.3, 0.2]), curve(0, [0.1], [0.1], readings={"paper": 2000})]
    assert [(each.seed, len(each.points)) for each in curves_of("paper", stored)] == [(0, 1), (1, 2)]
    assert [len(each.points) for each in curves_of("paper+long", stored)] == [3]
    assert curves_of("program", stored) == []


def test_figures_by_the_choice_of_the_step() -> None:
    one = curve(0, [0.1, 0.3, 0.2], [0.2, 0.1, 0.6])
    assert one.figures_of("test", "dev")["mrr"] == 0.1
    assert one.figures_of("test", "test")["mrr"] == 0.6
    assert one.figures_of("test", "five")["mrr"] == pytest.approx(0.3)
    assert one.selected("best-of-each")["hits@1"] == 0.6


def test_every_question_of_the_inquiry_has_its_curves() -> None:
    stored = RecordStore(RESULTS / "nell-one").read(ReadingCurve)
    names = [name for question in readings.plan()["questions"] for name in question["readings"]]
    assert len({*names}) > 60
    assert not [name for name in names if len({each.seed for each in curves_of(name, stored)}) != 5]
