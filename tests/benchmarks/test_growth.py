"""The benchmarks of growth: exponents by hand, every stage on a small graph, and resuming."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import quickly

import growth
import page
import stages
import summary

ROOT = Path(__file__).resolve().parents[2]

ENTITIES = 1500


def entry(stage: str, triples: int, seconds: float | None = None, **figures: float) -> growth.Entry:
    about: growth.Entry = {"stage": stage, "entities": triples, "triples": triples}
    return about | ({"failed": "no memory"} if seconds is None else {"seconds": seconds, "figures": figures})


ENTRIES = [entry("generate", n, n**0.5) for n in (100, 10_000)] + [entry("open", 100, 1.0), entry("open", 10_000)]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(1, 3), (10, 30), (100, 300)], 1.0),
        ([(1, 1), (10, 100)], 2.0),
        ([(1, 5), (10, 5), (100, 5)], 0.0),
        ([(1, 1), (10, 10), (100, 10)], 0.5),  # least squares: slopes 1 and 0
        ([(10, 1)], None),
        ([], None),
    ],
)
def test_the_exponent_is_the_slope_of_the_logarithms(points: list[tuple[float, float]], expected: float | None) -> None:
    assert summary.exponent(points) == (None if expected is None else pytest.approx(expected, abs=1e-12))


def test_a_row_of_growth_has_every_size_and_both_exponents() -> None:
    generated, opened = summary.growth(ENTRIES, summary.TIMES)
    assert list(generated.values()) == ["generate", "s", 10.0, 100.0, "0.50", "0.50"]
    assert list(opened.values()) == ["open it", "s", 1.0, "no memory", "–", "–"]


def test_measures_that_grow_faster_than_the_triples_are_listed() -> None:
    entries = [entry("read", n, float(n) ** 1.5) for n in (10, 100)] + [entry("open", n, float(n)) for n in (10, 100)]
    assert summary.too_steep(entries, summary.TIMES) == ["read triples"]


def test_every_measure_belongs_to_a_stage() -> None:
    assert {measure.stage for measure in (*summary.TIMES, *summary.MEMORY)} == set(growth.STAGES)


def test_the_page_shows_growth_if_it_was_measured() -> None:
    assert "## Growth" not in page.page({}) and page.pictures({}) == {}
    results = {"threads": 2, "dim": 50, "views": 1, "entries": ENTRIES}
    records = {"growth": {"date": "2026-01-01", "cores": 2, "results": results}}
    assert "| generate | s | 10 | 100 | 0.50 | 0.50 |" in page.page(records)
    assert all(text.startswith("<svg ") and "xmlns" in text for text in page.pictures(records).values())


def test_every_stored_record_with_a_ratio_is_listed() -> None:
    records = summary.read_records(ROOT / "benchmarks" / "records")
    listed = {row["record"] for row in summary.ratios(records)}
    assert listed == set(records) & set(summary.RATIOS)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[growth.Place]:
    place = growth.Place(tmp_path_factory.mktemp("growth"), ENTITIES)
    with quickly(), pytest.MonkeyPatch.context() as patch:
        for name, fewer in (("QUERIES", 4), ("BLOCKS", 1), ("WARM_UP", 1), ("TURNS", 2), ("PREDICTIONS", 2)):
            patch.setattr(stages, name, fewer)
        patch.setattr("fewlink.trail_0_1.learner.SCALE_EPISODES", 2)
        stages.generate(place.layout, ENTITIES)
        stages.compile_benchmark(place.layout, place.compiled)
        yield place


@pytest.mark.parametrize("name", [name for name in growth.STAGES if name not in growth.MADE])
def test_a_stage_returns_the_figures_of_its_measures(name: str, place: growth.Place) -> None:
    stage = growth.STAGES[name]
    if stage.run:
        stages.write_run(place.compiled, place.folder / "run", stage.run)
    figures = stage.work(*stage.arguments(place))
    cost = growth.Cost(1.0, 1.0, 10**9, figures)
    entry = growth._entry(place, name, cost)
    for measure in (*summary.TIMES, *summary.MEMORY):
        if measure.stage == name:
            assert (measure.of(entry) or 0) > 0, measure
    growth.shutil.rmtree(place.folder / "run", ignore_errors=True)


def test_a_stage_without_enough_memory_is_reported(tmp_path: Path) -> None:
    assert growth.limited(1 << 30, bytearray, 1 << 32) == "no memory"
    assert isinstance(growth.limited(1 << 30, bytearray, 1 << 20), growth.Cost)


@pytest.mark.slow
def test_a_stopped_run_is_resumed(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, str(ROOT / "benchmarks" / "suite.py"), "--only", "growth", "--sizes", "600", *words]
        environment = {**os.environ, "FEWLINK_BENCH_RECORDS": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    first = run("--stages", "generate", "compile")
    assert "600 entities: compile" in first and "600 entities: open" not in first
    assert "Growth of time" in first and "exponents over 1.1 at the end: none" in first
    again = run("--stages", "generate", "compile")
    assert "600 entities: compile" not in again
    stored = json.loads((tmp_path / "growth.json").read_text("utf-8"))["results"]
    assert [e["stage"] for e in stored["entries"]] == ["generate", "compile"]
