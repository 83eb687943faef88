"""Table 3: the results of each test relation of NELL, with the number of its candidates.

    python experiments/by_relation.py --tiny

Relations differ far more than models: those with few candidates are easy for all. The paper numbers its relations and
does not name them, so its figures are a table of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from common import (
    COLUMNS,
    Experiment,
    Table,
    emphasise,
    figures,
    in_order,
    options,
    print_tables,
    published,
    run,
    select,
    short,
)
from fewlink.evaluation.records import Record

MODELS = ("gmatching-maxp", "fsrl", "complex", "trail")
TINY_MODELS = ("gmatching-maxp", "fsrl", "trail")


def table(records: Sequence[Record], models: Sequence[str], candidates: str = "full", shots: int = 3) -> Table:
    """A row for each relation, in the order of the records, and model, with the numbers of queries and candidates."""
    matching = select(records, split="test", shots=shots, candidates=candidates, references="first")
    matching = [record for record in matching if record.model in models]
    rows = []
    for relation in dict.fromkeys(name for record in matching for name in record.relations):
        for model in in_order(models):
            seeds = [r.relations[relation] for r in select(matching, model=model) if relation in r.relations]
            if seeds:
                counts = [f"{seeds[0][key]:,.0f}" for key in ("queries", "candidates")]
                rows.append([relation, *counts, model, *figures(seeds)])
    columns = ["relation", "queries", "candidates", "model", *COLUMNS]
    return Table(f"test by relation, K = {shots}, {candidates}", columns, emphasise(rows, range(4, 8), group=0))


def published_table() -> Table:
    """The paper's figures of each relation, by its number."""
    rows = [
        [split.removeprefix("relation "), model, *(short(row[metric]) for metric in COLUMNS.values())]
        for (_, model, split), row in published().items()
        if split.startswith("relation ")
    ]
    return Table("as published, paper", ["relation", "model", *COLUMNS], sorted(rows, key=lambda row: int(row[0])))


def main() -> None:
    experiment = Experiment(options(__doc__).parse_args())
    models = experiment.chosen(TINY_MODELS if experiment.tiny else MODELS)
    records = experiment.records(models, splits=["test"])
    shown = [table(records, models, candidates) for candidates in ("paper", "full")]
    print_tables(shown if experiment.tiny else [*shown, published_table()])


if __name__ == "__main__":
    run(main)
