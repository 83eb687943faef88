"""Table 1: the size of the data sets, beside the paper's counts.

    python experiments/datasets.py [--tiny]

The paper selects relations with 50 to 500 triples as few-shot tasks: 67 of NELL and 183 of Wikidata.
"""

from __future__ import annotations

from common import Experiment, Table, options, print_tables, run
from fewlink.core.errors import FewlinkError
from fewlink.tasks import open_benchmark
from fewlink.tasks.benchmark import SPLITS, Benchmark

COUNTS = ("entities", "triples", "relations", "tasks", *SPLITS)
PUBLISHED = {
    "nell-one": (68_545, 181_109, 358, 67, 51, 5, 11),
    "wiki-one": (4_838_244, 5_859_240, 822, 183, 133, 16, 34),
}
NOTE = "triples: in the background; relations: background and task relations; tasks: the sum of the three splits"


def counts(benchmark: Benchmark) -> list[int]:
    """The counts of the paper's table, and the tasks of each split."""
    splits = [len(benchmark.split(split)) for split in SPLITS]
    graph = benchmark.graph
    return [len(graph.entities), graph.triple_count, len(graph.relations) + sum(splits), sum(splits), *splits]


def row(name: str) -> list[str]:
    """The counts of a benchmark; "not measured" if it is not on this machine."""
    try:
        return [name, *(f"{count:,}" for count in counts(open_benchmark(name)))]
    except FewlinkError:
        return [name, *["not measured"] * len(COUNTS)]


def main() -> None:
    experiment = Experiment(options(__doc__).parse_args())
    rows = []
    for name in [experiment.name] if experiment.tiny else list(dict.fromkeys([experiment.name, *PUBLISHED])):
        rows.append(row(name))
        if name in PUBLISHED:
            rows.append([f"*{name}, as published*", *(f"*{count:,}*" for count in PUBLISHED[name])])
    print_tables([Table("Data sets", ["data set", *COUNTS], rows, NOTE)])


if __name__ == "__main__":
    run(main)
