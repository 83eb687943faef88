"""The figure "Impact of few-shot size": four metrics on test by the number of references.

    python experiments/shots.py --tiny [--out FOLDER]

FSRL and GMatching are trained for each number of references. --out writes the charts, one for each metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common import (
    COLUMNS,
    Experiment,
    Point,
    Table,
    emphasise,
    line_chart,
    models_of,
    moments,
    options,
    print_tables,
    run,
    select,
    spread,
    values,
    write_chart,
)
from fewlink.evaluation.records import Record

MODELS = ("gmatching-maxp", "fsrl")
SHOTS = (1, 2, 3, 4, 5, 8, 10)
TINY_SHOTS = (1, 2, 3)


def table(records: Sequence[Record], metric: str = "mrr", candidates: str = "full") -> Table:
    """A row for each model that was evaluated with several numbers of references."""
    matching = [r for r in select(records, split="test", candidates=candidates, references="first") if r.shots]
    numbers = sorted({record.shots for record in matching})
    rows = []
    for model in models_of(matching):
        row = [spread(values(select(matching, model=model, shots=number), metric)) for number in numbers]
        if sum(map(bool, row)) > 1:
            rows.append([model, *row])
    columns = ["model", *(f"K = {number}" for number in numbers)]
    name = next((name for name, key in COLUMNS.items() if key == metric), metric)
    return Table(f"test, {name} under {candidates}", columns, emphasise(rows, range(1, len(columns))))


def lines(records: Sequence[Record], models: Sequence[str], metric: str = "mrr") -> dict[str, list[Point]]:
    """A metric by the number of references, for each model with records."""
    found = {}
    for model in models:
        seeds = select(records, model=model)
        numbers = sorted({record.shots for record in seeds if record.shots})
        if numbers:
            found[model] = [Point(k, *moments(values(select(seeds, shots=k), metric))) for k in numbers]
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--out", type=Path, help="folder for the charts")
    given = parser.parse_args()
    experiment = Experiment(given)
    models = experiment.chosen(MODELS)
    shots = TINY_SHOTS if experiment.tiny else SHOTS
    records = experiment.records(models, shots=shots, splits=["test"])
    print_tables(table(records, metric) for metric in COLUMNS.values())
    for name, metric in COLUMNS.items() if given.out else ():
        drawn = lines(select(records, candidates="full"), models, metric)
        chart = line_chart(f"{experiment.name}, test, full candidates", drawn, "references (K)", name)
        write_chart(given.out / f"shots-{metric.replace('@', '-at-')}.svg", chart)


if __name__ == "__main__":
    run(main)
