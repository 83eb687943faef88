"""From records to what charts draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fewlink.charts import Point
from fewlink.evaluation.records import Record
from fewlink.studies.tables import chosen, moments, values


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
