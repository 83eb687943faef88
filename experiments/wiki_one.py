"""Tables 1 and 2 for Wiki-One, the paper's second data set, whose files are no longer to be had.

    python experiments/wiki_one.py                         # the paper's figures; ours are "not measured"
    python experiments/wiki_one.py --generated             # the same models on a generated graph of its shape and size
    python experiments/wiki_one.py --tiny                  # … on one of a thousand entities

With the files, `fewlink data get wiki-one --from FOLDER` checks and compiles them, and this script measures every model
on them. A generated graph shows that the models can be trained at this size; its figures say nothing about Wiki-One.
"""

from __future__ import annotations

import sys
from pathlib import Path

import datasets
import overall
from common import COLUMNS, HERE, Experiment, Table, options, print_tables, published, run, short
from fewlink.tasks.catalogue import CATALOGUE, data_home

sys.path.append(str(HERE.parent / "benchmarks"))

from synthetic import generate

NAME = "wiki-one"
TINY_MODELS = ("popularity", "gmatching-maxp", "fsrl")
TINY_ENTITIES = 1_000
TINY_TRIPLES = 4_000


def not_measured() -> Table:
    """The paper's figures, and empty rows of ours."""
    rows = []
    for (benchmark, model, split), figures in published().items():
        if benchmark == NAME:
            rows.append([model, split, *["not measured"] * len(COLUMNS)])
            rows.append([f"*{model}, as published*", split, *(f"*{short(figures[m])}*" for m in COLUMNS.values())])
    return Table("Wiki-One", ["model", "split", *COLUMNS], rows, f"{CATALOGUE[NAME].about}: its files are not here")


def generated(work: Path, tiny: bool) -> Path:
    """A folder with a generated graph of Wiki-One's shape."""
    place = work / ("generated-tiny" if tiny else "generated")
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        generate(place, NAME, *((TINY_ENTITIES, TINY_TRIPLES) if tiny else ()))
    return place


def main() -> None:
    parser = options(__doc__, benchmark=NAME, tiny="a small generated graph")
    parser.add_argument("--generated", action="store_true", help="measure on a generated graph of this size")
    given = parser.parse_args()
    if given.tiny or given.generated:
        given.benchmark = str(generated(given.work, given.tiny))
    elif not (data_home() / NAME).exists():
        rows = [datasets.row(NAME), [f"*{NAME}, as published*", *(f"*{n:,}*" for n in datasets.PUBLISHED[NAME])]]
        print_tables([Table("Data sets", ["data set", *datasets.COUNTS], rows), not_measured()])
        return
    experiment = Experiment(given)
    models = experiment.chosen(TINY_MODELS if experiment.tiny else overall.MODELS)
    size = datasets.counts(experiment.benchmark)
    measured = Table("Data sets", ["data set", *datasets.COUNTS], [[experiment.name, *(f"{n:,}" for n in size)]])
    print_tables([measured, *overall.tables(experiment.records(models), benchmark=experiment.name)])


if __name__ == "__main__":
    run(main)
