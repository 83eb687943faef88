"""Table 2: the overall results of all methods on dev and test with three references, beside the paper's figures.

    python experiments/overall.py --tiny
    python experiments/overall.py --device cuda --results mine

The paper has relational embedding methods, which are trained on the background, the train relations and the
references, and graph neighbour encoders, which are meta-trained. Beside them stand scorers that learn nothing, the
authors' program, our best settings of their design, and TRAIL. `paper` ranks among at most 1000 candidates, as the
paper does, and `full` among all of the right type. What has a record is not measured
again; --results mine measures all.
"""

from __future__ import annotations

from collections.abc import Sequence

from common import (
    COLUMNS,
    PROTOCOLS,
    Experiment,
    Table,
    cells,
    emphasise,
    models_of,
    options,
    print_tables,
    published_row,
    run,
    select,
    spread,
    values,
)
from fewlink.evaluation.records import Record

MODELS = (
    *("random", "popularity", "reference-tails", "rules"),
    *("rescal", "transe", "distmult", "complex"),
    *("gmatching-maxp", "gmatching-meanp", "gmatching-max"),
    *("fsrl", "fsrl-released", "fsrl-tuned", "trail"),
)
TINY_MODELS = ("rules", "transe", "gmatching-maxp", "fsrl", "trail")


def tables(records: Sequence[Record], *, benchmark: str = "", shots: int = 3) -> list[Table]:
    """A table for test and one for dev: every model and protocol, and the figures published for the benchmark.

    If all records have one protocol, it is in the title instead of a column.
    """
    matching = select(records, shots=shots, references="first")
    shown = []
    for split in ("test", "dev"):
        in_split = select(matching, split=split)
        named = {record.candidates for record in in_split}
        protocols = [*(p for p in PROTOCOLS if p in named), *sorted(named - set(PROTOCOLS))]
        rows = []
        for model in models_of(in_split):
            for protocol in protocols:
                if seeds := select(in_split, model=model, candidates=protocol):
                    macro = spread(values(seeds, average="macro"))
                    rows.append([model, protocol, str(len(seeds)), *cells(seeds), macro])
            as_published = published_row(model, split, "*paper*", "", benchmark=benchmark)
            if "paper" in protocols and as_published:
                rows.append([*as_published, ""])
        columns = ["model", "candidates", "seeds", *COLUMNS, "macro MRR"]
        rows = emphasise(rows, range(3, len(columns)), group=1)
        title = split
        if len(protocols) == 1:
            title = f"{split}, {protocols[0]}"
            columns.remove("candidates")
            rows = [row[:1] + row[2:] for row in rows]
        if rows:
            shown.append(Table(title, columns, rows))
    return shown


def main() -> None:
    experiment = Experiment(options(__doc__).parse_args())
    models = experiment.chosen(TINY_MODELS if experiment.tiny else MODELS)
    print_tables(tables(experiment.records(models), benchmark=experiment.name))


if __name__ == "__main__":
    run(main)
