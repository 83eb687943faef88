"""From records to what charts draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fewlink.evaluation.records import Record
from fewlink.report.charts import Point
from fewlink.report.tables import chosen, moments, values
from fewlink.studies.learning_curves import Course


def by_relation(records: Sequence[Record], models: Iterable[str]) -> dict[str, dict[str, tuple[float, float]]]:
    """MRR, mean and deviation over the records of each model, relation by relation."""
    rows: dict[str, dict[str, tuple[float, float]]] = {}
    for model in models:
        mine = chosen(records, model=model)
        for name in dict.fromkeys(name for r in mine for name in r.relations):
            rows.setdefault(name, {})[model] = moments([r.relations[name]["mrr"] for r in mine if name in r.relations])
    return rows


def by_shots(records: Sequence[Record], models: Iterable[str], metric: str) -> dict[str, list[Point]]:
    """A metric of each model at each number of references."""
    found = {}
    for model in models:
        mine = chosen(records, model=model)
        numbers = sorted({r.shots for r in mine if r.shots})
        found[model] = [Point(k, *moments(values(chosen(mine, shots=k), metric))) for k in numbers]
    return {model: points for model, points in found.items() if points}


def by_step(courses: Sequence[Course]) -> dict[str, list[Point]]:
    """MRR on dev and test at each evaluation that all runs came to."""
    steps = (
        set.intersection(*({station.step for station in course.stations} for course in courses)) if courses else set()
    )
    found: dict[str, list[Point]] = {"dev": [], "test": []} if steps else {}
    for split, points in found.items():
        for step in sorted(steps):
            at = [s for course in courses for s in course.stations if s.step == step]
            points.append(Point(step, *moments([getattr(station, split)["mrr"] for station in at])))
    return found
