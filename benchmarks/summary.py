"""Tables from the stored records: ratios, and growth with its exponents; and the points of the charts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ALLOWED = 1.1  # the largest exponent that counts as proportional to the triples

Row = dict[str, Any]
Records = Mapping[str, Mapping[str, Any]]  # name -> what write_record stored


def read_records(folder: Path) -> dict[str, dict[str, Any]]:
    """Every record of a folder by its name."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))}


# Ratios


def _reading(results: Mapping[str, Any]) -> Iterable[tuple[str, str, float]]:
    yield f"reading {results['sizes'][2]:,} triples", "PyKEEN", results["wall_ratio"]


def _embeddings(results: Mapping[str, Any]) -> Iterable[tuple[str, str, float]]:
    for row in results["rows"]:
        yield f"pretraining, {row['entities']:,} entities", "PyKEEN", row["ratio"]
        yield f"pretraining with Adam, {row['entities']:,} entities", "PyKEEN", row["ratio with Adam"]


def _fewshot(results: Mapping[str, Any]) -> Iterable[tuple[str, str, float]]:
    names = {"steps/s": "meta-training FSRL", "queries/s": "evaluating FSRL"}
    for row in results["rows"]:
        if row["side"] != "plain":
            more = row["side"].removeprefix("fewlink")
            where = f"{results['benchmark']}, {results['device']}"
            yield f"{names[row['what']]}{more} ({where})", "the literal equations", row["times plain"]


def _propagation(results: Mapping[str, Any]) -> Iterable[tuple[str, str, float]]:
    where = f"{results['bench']}, {results['device']}"
    for row in results["rows"] + results["questions"]:
        if isinstance(row["times plain"], float):
            yield f"message passing: {row['what']} ({where})", "plain torch", row["times plain"]
    for row in results["steps"][:-1]:
        yield f"training TRAIL, a step {row['step']} ({where})", "plain torch", row["times plain"]


def _serving(results: Mapping[str, Any]) -> Iterable[tuple[str, str, float]]:
    yield (
        f"serving {results['clients']} clients, batched ({results['bench']})",
        "one request at a time",
        results["ratio"],
    )


RATIOS: dict[str, Callable[[Mapping[str, Any]], Iterable[tuple[str, str, float]]]] = {
    "reading": _reading,
    "embeddings-speed": _embeddings,
    "fewshot-speed-cpu": _fewshot,
    "fewshot-speed-cuda": _fewshot,
    "fewshot-speed-wiki-cuda": _fewshot,
    "propagation-cpu": _propagation,
    "propagation-cuda": _propagation,
    "serving": _serving,
}


def ratios(records: Records) -> list[Row]:
    """Speed-ups: of what, against what, with the record and its date."""
    return [
        {"what": what, "against": against, "times as quick": ratio, "record": name, "measured": records[name]["date"]}
        for name, of in RATIOS.items()
        if name in records
        for what, against, ratio in of(records[name]["results"])
    ]


# Growth


@dataclass(frozen=True)
class Measure:
    """A figure of a stage, and its name; the keys "seconds" and "peak GB" are those of the whole process."""

    stage: str
    key: str
    name: str
    unit: str

    def of(self, entry: Mapping[str, Any]) -> float | None:
        found: float | None = entry.get("figures", {}).get(self.key, entry.get(self.key))
        return found


TIMES = (
    Measure("generate", "seconds", "generate", "s"),
    Measure("read", "seconds", "read triples", "s"),
    Measure("compile", "seconds", "compile a benchmark", "s"),
    Measure("open", "seconds", "open it", "s"),
    Measure("pretrain", "epoch seconds", "pretrain, an epoch", "s"),
    Measure("train FSRL", "set-up seconds", "FSRL, setting up", "s"),
    Measure("train FSRL", "step ms", "FSRL, a step", "ms"),
    Measure("train TRAIL", "set-up seconds", "TRAIL, setting up", "s"),
    Measure("train TRAIL", "step ms", "TRAIL, a step", "ms"),
    Measure("evaluate FSRL", "query ms", "FSRL, a query ranked", "ms"),
    Measure("evaluate TRAIL", "query ms", "TRAIL, a query ranked", "ms"),
    Measure("predict FSRL", "load seconds", "FSRL, loading", "s"),
    Measure("predict FSRL", "new relation ms", "FSRL, a new relation", "ms"),
    Measure("predict FSRL", "same relation ms", "FSRL, the same relation", "ms"),
    Measure("predict TRAIL", "load seconds", "TRAIL, loading", "s"),
    Measure("predict TRAIL", "new relation ms", "TRAIL, a new relation", "ms"),
    Measure("predict TRAIL", "same relation ms", "TRAIL, the same relation", "ms"),
)
STAGES = tuple(dict.fromkeys(measure.stage for measure in TIMES))
SERVED = tuple(stage for stage in STAGES if stage.startswith("predict"))
MEMORY = (
    *(Measure(stage, "peak GB", stage, "GB") for stage in STAGES),
    *(Measure(stage, "resident GB once loaded", f"{stage}: resident after loading", "GB") for stage in SERVED),
    *(
        Measure(stage, "resident GB after predictions", f"{stage}: resident after predictions", "GB")
        for stage in SERVED
    ),
)


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of log y against log x by least squares; None if there are fewer than two sizes."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in logs}) < 2:
        return None
    means = [sum(column) / len(logs) for column in zip(*logs, strict=True)]
    over = sum((x - means[0]) * (y - means[1]) for x, y in logs)
    return float(over / sum((x - means[0]) ** 2 for x, _ in logs))


def points(entries: Iterable[Mapping[str, Any]], measure: Measure) -> list[tuple[float, float]]:
    """(triples, figure) of every measured size of a stage, smallest first."""
    values = [(float(entry["triples"]), measure.of(entry)) for entry in entries if entry["stage"] == measure.stage]
    return sorted((x, y) for x, y in values if y is not None)


def growth(entries: Sequence[Mapping[str, Any]], measures: Iterable[Measure]) -> list[Row]:
    """A row for each measure: its figure at every size, the exponent over all sizes, and between the two largest."""
    sizes = sorted({entry["entities"] for entry in entries})
    rows = []
    for measure in measures:
        by_size = {entry["entities"]: entry for entry in entries if entry["stage"] == measure.stage}
        if not by_size:
            continue
        measured = points(entries, measure)
        row: Row = {"what": measure.name, "unit": measure.unit}
        row |= {f"{size:,}": _cell(by_size.get(size), measure) for size in sizes}
        row |= {"exponent": _slope(exponent(measured)), "at the end": _slope(exponent(measured[-2:]))}
        rows.append(row)
    return rows


def too_steep(entries: Sequence[Mapping[str, Any]], measures: Iterable[Measure]) -> list[str]:
    """The measures that grow faster than allowed between the two largest sizes, where constant costs matter least."""
    slopes = {measure.name: exponent(points(entries, measure)[-2:]) for measure in measures}
    return [name for name, slope in slopes.items() if slope is not None and slope > ALLOWED]


def _cell(entry: Mapping[str, Any] | None, measure: Measure) -> float | str:
    if entry is None:
        return "–"
    value = measure.of(entry)
    return entry.get("failed", "–") if value is None else value


def _slope(slope: float | None) -> str:
    return "–" if slope is None else f"{slope:.2f}"
