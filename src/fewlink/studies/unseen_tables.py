"""Tables and the chart of the records of `fewlink.studies.unseen_graphs`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.files import read_json
from fewlink.studies.charts import LineChart, Point
from fewlink.studies.tables import Table, emphasise, moments, spread

FORMAT = "fewlink-unseen-graphs/1"
COLUMNS = ("references", "asked", "mrr", "hits@1", "hits@10", "seen", "mrr seen", "mrr unseen")
ALL = "all"
SIZES = ("1", "3", "10", "30", "100", ALL)  # of sets of references
OTHERS = "3, other tails"  # three references, and the pairs that are asked for skewed ones
OF_ONE_TAIL = {"3 + 10 of one tail": 10, "3 + 30 of one tail": 30}
OWN = "3 + own 10"
SKEWED = {**dict.fromkeys(OF_ONE_TAIL, OTHERS), OWN: "3"}  # sets, and what each is compared with
METRICS = {"MRR": "mrr", "Hits@1": "hits@1", "Hits@10": "hits@10"}
LABELS = {  # the order of tables
    "trail": "TRAIL",
    "trail-no-names": "TRAIL without names",
    "ultra-50g": "ULTRA (50g)",
    "ultra-4g": "ULTRA (4g)",
    "ultra-3g": "ULTRA (3g)",
    "trix-entity-prediction": "TRIX",
    "complex": "ComplEx",
    "rules": "rules",
    "reference-tails": "reference-tails",
    "popularity": "popularity",
}
Figure = float | None  # None: the mean of nothing


@dataclass(frozen=True)
class UnseenRecord:
    """What a model under a seed reached on one graph: relation → set of references → column → figure."""

    model: str
    seed: int
    graph: str
    about: Mapping[str, str]
    sizes: Mapping[str, int]
    config: Mapping[str, Any]
    relations: Mapping[str, Mapping[str, Mapping[str, Figure]]]

    def mean(self, of: str, column: str = "mrr") -> Figure:
        """The mean of a column over the relations that have this set of references and a figure in the column."""
        return mean_of(rows[of][column] for rows in self.relations.values() if of in rows)

    def change(self, of: str, since: str, column: str = "mrr") -> tuple[Figure, Figure]:
        """The means of two sets over the relations that have the first."""
        both = [(rows[since][column], rows[of][column]) for rows in self.relations.values() if of in rows]
        return mean_of(before for before, _ in both), mean_of(after for _, after in both)


def mean_of(figures: Iterable[Figure]) -> Figure:
    found = [figure for figure in figures if figure is not None]
    return fmean(found) if found else None


def read_unseen(folder: Path) -> list[UnseenRecord]:
    """The records in a folder, by model, graph and seed."""
    return [_record(path) for path in sorted(folder.glob("*/*.json"))]


def _record(path: Path) -> UnseenRecord:
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(path, f"is not a record of {FORMAT}: measure it again")
    columns = content["columns"]
    relations = {
        name: {of: dict(zip(columns, row, strict=True)) for of, row in own["rows"].items()}
        for name, own in content["relations"].items()
    }
    facts = {key: content[key] for key in ("model", "seed", "graph", "about", "sizes", "config")}
    return UnseenRecord(relations=relations, **facts)


def complete(records: Sequence[UnseenRecord]) -> dict[str, list[list[UnseenRecord]]]:
    """The records of each model in the order of tables, seed by seed; seeds that lack a graph are left out."""
    graphs = {record.graph for record in records}
    places = {name: place for place, name in enumerate(LABELS)}
    found: dict[str, list[list[UnseenRecord]]] = {}
    for model in sorted({record.model for record in records}, key=lambda name: (places.get(name, len(places)), name)):
        own = [record for record in records if record.model == model]
        seeds = [[record for record in own if record.seed == seed] for seed in sorted({r.seed for r in own})]
        if whole := [seed for seed in seeds if {record.graph for record in seed} == graphs]:
            found[model] = whole
    return found


Models = Mapping[str, Sequence[Sequence[UnseenRecord]]]  # the records of each model, seed by seed


def of_all_relations(models: Models) -> dict[str, Sequence[Sequence[UnseenRecord]]]:
    """The models that were asked about every relation of the suite."""
    counts = {name: sum(len(record.relations) for record in seeds[0]) for name, seeds in models.items()}
    return {name: seeds for name, seeds in models.items() if counts[name] == max(counts.values())}


def of_shared_relations(models: Models) -> dict[str, Sequence[Sequence[UnseenRecord]]]:
    """All models, with the relations that every model was asked about."""
    shared: dict[str, set[str]] = {}
    for record in itertools.chain(*(seeds[0] for seeds in models.values())):
        shared[record.graph] = shared.get(record.graph, set(record.relations)) & set(record.relations)

    def restricted(record: UnseenRecord) -> UnseenRecord:
        return replace(record, relations={name: record.relations[name] for name in sorted(shared[record.graph])})

    return {name: [[restricted(record) for record in seed] for seed in seeds] for name, seeds in models.items()}


def over_graphs(seeds: Sequence[Sequence[UnseenRecord]], of: str, column: str = "mrr") -> list[float]:
    """The mean over graphs of a column, for each seed."""
    means = [mean_of(record.mean(of, column) for record in seed) for seed in seeds]
    return [mean for mean in means if mean is not None]


def label(model: str) -> str:
    return LABELS.get(model, model)


def curve_table(models: Models, title: str, column: str) -> Table:
    """A column by the number of references: the mean over graphs, ± the deviation over seeds; the best in bold."""
    rows = [
        [label(model), *(spread(over_graphs(seeds, size, column)) for size in SIZES)] for model, seeds in models.items()
    ]
    return Table(title, ["model", *(f"K = {size}" for size in SIZES)], emphasise(rows, range(1, 1 + len(SIZES))))


def skewed_table(models: Models) -> Table:
    """MRR with three references → with skewed ones, over the relations that have them."""
    rows = []
    for model, seeds in models.items():
        cells = []
        for of, since in SKEWED.items():
            changes = [[record.change(of, since) for record in seed] for seed in seeds]
            means = [[mean_of(pair[i] for pair in seed) for seed in changes] for i in (0, 1)]
            if any(figure is None for figures in means for figure in figures):
                break
            cells.append(" → ".join(spread([figure for figure in figures if figure is not None]) for figures in means))
        if len(cells) == len(SKEWED):
            rows.append([label(model), *cells])
    return Table("Skewed references: MRR with three, and with more", ["model", *(f"3 → {of}" for of in SKEWED)], rows)


def graph_table(models: Models, size: str) -> Table:
    """MRR on each graph with so many references; the best in bold."""
    graphs = sorted({record.graph for seeds in models.values() for record in seeds[0]})
    rows = []
    for model, seeds in models.items():
        cells = []
        for graph in graphs:
            own = [record.mean(size) for seed in seeds for record in seed if record.graph == graph]
            cells.append(spread([figure for figure in own if figure is not None]))
        rows.append([label(model), *cells])
    best = emphasise(rows, range(1, 1 + len(graphs)))
    turned = [list(cells) for cells in zip(["graph", *graphs], *best, strict=True)]
    return Table(f"MRR on each graph, K = {size}", turned[0], turned[1:])


def graphs_of(records: Sequence[UnseenRecord]) -> Table:
    """The graphs of the suite."""
    rows = []
    for record in {record.graph: record for record in records}.values():
        sizes = [f"{record.sizes[key]:,}" for key in ("triples", "entities", "relations", "hidden")]
        named = int(record.about.get("named_entities") or 0)
        share = f"{100 * named / record.sizes['entities']:.0f} %"
        facts = [record.about.get(key, "") for key in ("domain", "source", "licence as stated")]
        rows.append([record.graph, facts[0], *sizes, share, *facts[1:]])
    columns = ["graph", "domain", "triples", "entities", "relations", "hidden in turn", "named entities"]
    return Table("Graphs", [*columns, "source", "licence as stated"], sorted(rows))


def tables_of(records: Sequence[UnseenRecord]) -> dict[str, Table]:
    """All tables of the page by name; models without a figure on every graph are left out.

    A model that was asked about some relations only is in the table `shared`, which has only those.
    """
    every = complete(records)
    if not every:
        raise FewlinkError(
            "no model has a record of every graph: measure one with python -m fewlink.studies.unseen_graphs"
        )
    models = of_all_relations(every)
    seen = {
        name: curve_table(models, f"MRR if the right tail is {what} of a reference", column)
        for name, what, column in (("seen", "the tail", "mrr seen"), ("unseen", "not the tail", "mrr unseen"))
    }
    return {
        **{column: curve_table(models, title, column) for title, column in METRICS.items()},
        "shared": curve_table(
            of_shared_relations(every), "MRR over the relations that all models were asked about", "mrr"
        ),
        **seen,
        "skewed": skewed_table(models),
        "three": graph_table(models, "3"),
        "all": graph_table(models, ALL),
        "graphs": graphs_of(records),
    }


def stored_tables(folder: Path) -> list[Table]:
    """All tables of a folder of records."""
    return list(tables_of(read_unseen(folder)).values())


def curve_chart(records: Sequence[UnseenRecord], models: Sequence[str]) -> LineChart:
    """MRR of these models by the number of references, the mean over graphs, on the relations that all models have."""
    found = of_shared_relations(complete(records))
    series = {
        label(model): [Point(x, *moments(over_graphs(found[model], size))) for x, size in enumerate(SIZES)]
        for model in models
        if model in found
    }
    names = dict(enumerate(SIZES))
    return LineChart(
        "Graphs that TRAIL was not trained on", series, "references (K)", "MRR, mean over graphs", x_names=names
    )
