"""Table 4: FSRL without one of its components at a time, beside the paper's figures.

    python experiments/ablation.py --tiny

AS1 replaces the neighbour encoder by a mean over neighbours. AS2a replaces the aggregation of references by their mean,
AS2b its attention by a mean, and AS2c leaves out its decoder. AS3 replaces the matching network by an inner product.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import overall
from common import (
    COLUMNS,
    Experiment,
    Table,
    cells,
    emphasise,
    options,
    print_tables,
    run,
    select,
    signed,
    values,
)
from fewlink.evaluation.records import Record
from fewlink.models import family_of

MODELS = ("fsrl-as1", "fsrl-as2a", "fsrl-as2b", "fsrl-as2c", "fsrl-as3", "fsrl")
TINY_MODELS = ("fsrl-as1", "fsrl-as2a", "fsrl-as3", "fsrl")


def table(records: Sequence[Record], candidates: str = "full", shots: int = 3) -> Table:
    """FSRL and its ablations on test, with the change of MRR."""
    matching = select(records, split="test", shots=shots, candidates=candidates, references="first")
    whole = values(select(matching, model="fsrl"))
    rows = []
    for model in ("fsrl", *MODELS[:-1]):
        seeds = select(matching, model=model)
        if not seeds:
            continue
        change = ""
        if model != "fsrl" and whole:
            change = signed(statistics.fmean(values(seeds)) - statistics.fmean(whole))
        rows.append([model, family_of(model).models[model], str(len(seeds)), *cells(seeds), change])
    columns = ["model", "description", "seeds", *COLUMNS, "change of MRR"]
    rows = emphasise(rows, range(3, 3 + len(COLUMNS)), with_ablations=True)
    return Table(f"fsrl and its ablations, test, K = {shots}, {candidates}", columns, rows)


def main() -> None:
    experiment = Experiment(options(__doc__).parse_args())
    models = experiment.chosen(TINY_MODELS if experiment.tiny else MODELS)
    records = experiment.records(models)
    changes = [table(records, candidates) for candidates in ("paper", "full")]
    print_tables([*overall.tables(records, benchmark=experiment.name), *changes])


if __name__ == "__main__":
    run(main)
