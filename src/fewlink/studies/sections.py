"""The sections of the report on one benchmark."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fewlink.evaluation.curves import LearningCurve
from fewlink.evaluation.maps import PairMap
from fewlink.evaluation.records import Record
from fewlink.studies import tables
from fewlink.studies.charts import (
    COLOURS,
    BarChart,
    Chart,
    LineChart,
    ScatterChart,
    relation_bars,
    shots_lines,
    step_lines,
)
from fewlink.studies.tables import COLUMNS, Published, Table, moments, select, values

GREY = len(COLOURS) - 1  # the last colour
MAX_LINES = GREY  # models in a line chart, each with its own colour
MAX_EXAMPLES = 4  # of a model, for right and wrong answers each
OTHERS = "Test with other candidates"
DEV = "Dev, for choosing settings"
Styles = Mapping[str, int]


@dataclass(frozen=True)
class StoredResults:
    """The results in a folder."""

    records: Sequence[Record]
    maps: Sequence[PairMap] = ()
    curves: Sequence[LearningCurve] = ()

    def of(self, benchmark: str) -> StoredResults:
        """The results on one benchmark."""
        return StoredResults(
            select(self.records, benchmark=benchmark),
            [pair_map for pair_map in self.maps if pair_map.benchmark == benchmark],
            [curve for curve in self.curves if curve.benchmark == benchmark],
        )


@dataclass(frozen=True)
class MainProtocol:
    """The number of references and the candidates for comparing the models of a benchmark."""

    shots: int
    candidates: str

    def __str__(self) -> str:
        return f"test, K = {self.shots}, {self.candidates}"


class BestModel(NamedTuple):
    """The best model of a benchmark, compared with its rival.

    cells      its figures, by column
    rival      the best model of another family, or ""
    margin     the difference of their MRR, as text
    level      whether the margin is within the standard deviation
    """

    model: str
    cells: Mapping[str, str]
    seeds: int
    rival: str
    rival_mrr: str
    margin: str
    level: bool


@dataclass
class Section:
    """The content under one heading; `folded` tables are hidden until the reader opens them."""

    title: str
    intro: str = ""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    folded: Mapping[str, Sequence[Table]] = field(default_factory=dict)
    examples: Sequence[Mapping[str, Any]] = ()
    glance: Sequence[Table] = ()


def main_protocol(records: Sequence[Record]) -> MainProtocol | None:
    """K = 3 and `full` if there are such records, else the most frequent ones; None without few-shot records."""
    few_shot = [r for r in records if r.shots and r.split == "test"] or [r for r in records if r.shots]
    if not few_shot:
        return None
    shots = max(Counter(r.shots for r in few_shot).items(), key=lambda item: (item[0] == 3, item[1]))[0]
    candidates = Counter(r.candidates for r in few_shot if r.shots == shots)
    return MainProtocol(shots, max(candidates.items(), key=lambda item: (item[0] == "full", item[1]))[0])


def _on_test(records: Sequence[Record], protocol: MainProtocol) -> list[Record]:
    return select(records, split="test", shots=protocol.shots, candidates=protocol.candidates, references="first")


def _ranking(records: Sequence[Record], protocol: MainProtocol) -> dict[str, list[Record]]:
    """The records of each model with a protocol, the best model first, and ablations after all others."""
    on_test = _on_test(records, protocol)
    by_model = {model: select(on_test, model=model) for model in tables.models_of(on_test)}

    def order(model: str) -> tuple[bool, float]:
        mean, _ = moments(values(by_model[model]))
        return tables.is_ablation(model), -mean

    return {model: by_model[model] for model in sorted(by_model, key=order)}


def _leaders(ranking: Iterable[str]) -> list[str]:
    """The best model of each family."""
    first: dict[str, str] = {}
    for model in ranking:
        first.setdefault(tables.group_of(model), model)
    return tables.in_order(first.values())


def _drawn_by_shots(records: Sequence[Record], protocol: MainProtocol, ranking: Iterable[str]) -> list[str]:
    """The models in the charts by number of references: those measured with the most numbers, then the best."""
    rows = tables.by_shots(records, candidates=protocol.candidates).rows
    counts = {row[0]: sum(map(bool, row[1:])) for row in rows}
    most_first = sorted((model for model in ranking if model in counts), key=lambda model: -counts[model])
    return tables.in_order(most_first[:MAX_LINES])


def model_styles(benchmarks: Iterable[Sequence[Record]]) -> dict[str, int]:
    """The style of each model (a number for its colour, marker and dashes) in all charts of all benchmarks.

    Models in the same chart have different colours, as long as there are enough; models in no chart are grey.
    """
    all_models: list[str] = []
    charts_by_relation: list[list[str]] = []  # the models of each chart
    charts_by_shots: list[list[str]] = []
    for records in benchmarks:
        all_models += tables.models_of(records)
        protocol = main_protocol(records)
        if protocol:
            ranking = _ranking(records, protocol)
            charts_by_relation.append(_leaders(ranking))
            charts_by_shots.append(_drawn_by_shots(records, protocol, ranking))
    charts = [*charts_by_relation, *charts_by_shots]
    styles: dict[str, int] = {}
    for model in itertools.chain.from_iterable(charts):
        if model in styles:
            continue
        neighbours = {other for chart in charts if model in chart for other in chart}
        taken = {styles[other] % len(COLOURS) for other in neighbours & styles.keys()}
        colour = next((colour for colour in range(GREY) if colour not in taken), 0)
        styles[model] = next(n for n in itertools.count(colour, len(COLOURS)) if n not in styles.values())
    return dict.fromkeys(all_models, GREY) | styles


def best_model(records: Sequence[Record], protocol: MainProtocol) -> BestModel | None:
    """The model with the highest MRR; an ablation only if there is no other model."""
    ranking = _ranking(records, protocol)
    if not ranking:
        return None
    best, seeds = next(iter(ranking.items()))
    cells = dict(zip(COLUMNS, tables.figures(seeds), strict=True))
    cells["macro MRR"] = tables.spread(values(seeds, average="macro"))
    rival = next((model for model in ranking if tables.group_of(model) != tables.group_of(best)), "")
    if not rival:
        return BestModel(best, cells, len(seeds), "", "", "", False)
    mean, deviation = moments(values(seeds))
    rival_mean, rival_deviation = moments(values(ranking[rival]))
    margin = mean - rival_mean
    return BestModel(
        best,
        cells,
        len(seeds),
        rival,
        rival_mrr=tables.spread(values(ranking[rival])),
        margin=tables.figure(margin) if margin >= 0.0005 else "less than .001",
        level=margin < math.hypot(deviation, rival_deviation),
    )


def sections_of(
    results: StoredResults, protocol: MainProtocol, published: Published, styles: Styles | None = None
) -> list[Section]:
    """The sections with content; `styles` comes from `model_styles`."""
    records = results.records
    styles = model_styles([records]) if styles is None else styles
    ranking = _ranking(records, protocol)
    sections = [
        _overall(records, protocol, ranking, styles, published),
        _by_relation(records, protocol, _leaders(ranking), styles),
        _by_shots(records, protocol, ranking, styles),
        _by_draws(records, protocol),
        _ablations(records, protocol),
        _examples(records, protocol, ranking),
        _maps(results.maps),
        _selection(results.curves, published),
    ]
    return [section for section in sections if section.charts or section.tables or section.folded or section.examples]


def _overall(
    records: Sequence[Record],
    protocol: MainProtocol,
    ranking: Mapping[str, Sequence[Record]],
    styles: Styles,
    published: Published,
) -> Section:
    bars = {m: {m: moments(values(ranking[m]))} for m in tables.in_order(ranking)}
    title = f"MRR of every model, {protocol}"
    chart = BarChart(title, bars, "MRR", styles)
    short = tables.in_short(records, shots=protocol.shots)
    shown: list[Table] = []
    folded: dict[str, list[Table]] = {OTHERS: [], DEV: []}
    for candidates in sorted(tables.protocols_of(records), key=lambda name: name != protocol.candidates):
        for table in tables.overall(select(records, candidates=candidates), published, shots=protocol.shots):
            split = table.title.partition(",")[0]
            table = replace(table, title=f"{split}, K = {protocol.shots}, {candidates}")
            if split == "test" and candidates == protocol.candidates:
                shown.append(table)
            else:
                folded[OTHERS if split == "test" else DEV].append(table)
    glance = [replace(short, title=f"MRR on test, K = {protocol.shots}, by protocol")] if short.rows else []
    return Section(
        "Overall",
        "Micro averages over queries; mean ± standard deviation over training seeds. The best figure of each column,"
        " except for ablations, is bold.",
        charts=[chart] if ranking else [],
        glance=glance,
        tables=shown,
        folded={name: group for name, group in folded.items() if group},
    )


def _by_relation(records: Sequence[Record], protocol: MainProtocol, leaders: Sequence[str], styles: Styles) -> Section:
    """The best model of each family by relation, in two charts with the same scale."""
    rows = relation_bars(_on_test(records, protocol), leaders)
    if len(rows) < 2:
        return Section("By relation")
    limit = max(mean + deviation for cells in rows.values() for mean, deviation in cells.values())
    names = list(rows)
    half = (len(rows) + 1) // 2
    drawn = []
    for number, some in enumerate((names[:half], names[half:]), 1):
        shown = {name: rows[name] for name in some}
        drawn.append(BarChart(f"MRR by relation, {number} of 2", shown, "MRR", styles, limit))
    table = tables.by_relation(records, leaders, shots=protocol.shots, candidates=protocol.candidates)
    return Section(
        "By relation",
        f"The best model of each family ({protocol}). The best figure of each relation is bold in the table.",
        charts=drawn,
        folded={"All figures by relation": [table]},
    )


def _by_shots(
    records: Sequence[Record], protocol: MainProtocol, ranking: Mapping[str, Sequence[Record]], styles: Styles
) -> Section:
    by_metric = {
        metric: tables.by_shots(records, key, candidates=protocol.candidates) for metric, key in COLUMNS.items()
    }
    shown = _drawn_by_shots(records, protocol, ranking)
    count = len(by_metric["MRR"].rows)
    if not shown:
        return Section("By number of references")
    on_test = select(records, split="test", candidates=protocol.candidates, references="first")
    panels = []
    for metric in ("MRR", "Hits@1", "Hits@5", "Hits@10"):
        lines = shots_lines(on_test, shown, COLUMNS[metric])
        panels.append(LineChart(metric, lines, "references (K)", "mean ± deviation", styles))
    intro = f"Test, {protocol.candidates}; bands are ± one standard deviation over seeds."
    if len(shown) < count:
        intro += f" The charts show {len(shown)} of {count} models: those with the most values of K, then the best."
    others = [table for metric, table in by_metric.items() if metric != "MRR"]
    return Section(
        "By number of references",
        intro,
        charts=panels,
        tables=[by_metric["MRR"]],
        folded={"Hits@k by number of references": others},
    )


def _by_draws(records: Sequence[Record], protocol: MainProtocol) -> Section:
    table = tables.by_draws(records, shots=protocol.shots, candidates=protocol.candidates)
    intro = "The influence of the choice of references: random draws in place of the benchmark's first pairs."
    return Section("Other references", intro, tables=[table] if table.rows else [])


def _ablations(records: Sequence[Record], protocol: MainProtocol) -> Section:
    shown = []
    for full_model in tables.ablations():
        table = tables.ablation(records, full_model, shots=protocol.shots, candidates=protocol.candidates)
        if len(table.rows) > 1:
            shown.append(replace(table, title=f"{full_model.upper()} and its ablations, {protocol}"))
    return Section("Ablations", "The contribution of each component: the same model without it.", tables=shown)


def _examples(records: Sequence[Record], protocol: MainProtocol, ranking: Mapping[str, Sequence[Record]]) -> Section:
    """Right and wrong answers of the two best models whose records have examples."""
    shown: list[Mapping[str, Any]] = []
    for model, seeds in ranking.items():
        examples = next((r.examples for r in seeds if r.examples), [])
        for right in (True, False):
            some = _one_of_each(e for e in examples if (e["rank"] <= 1) == right)[:MAX_EXAMPLES]
            shown += [{**example, "model": model, "right": right} for example in some]
        if len({example["model"] for example in shown}) == 2:
            break
    return Section(
        "Examples", f"Queries of {protocol} with the five best answers; the true one is marked.", examples=shown
    )


def _one_of_each(examples: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The examples in turn: the first of each relation, then the second of each, and so on."""
    seen: Counter[str] = Counter()
    placed = []
    for example in examples:
        placed.append((seen[example["relation"]], example))
        seen[example["relation"]] += 1
    return [example for _, example in sorted(placed, key=lambda item: item[0])]


def _maps(maps: Sequence[PairMap]) -> Section:
    drawn = [ScatterChart(f"{m.model}, silhouette {tables.figure(m.silhouette)}: {m.relation}", m.points) for m in maps]
    intro = (
        "t-SNE of the vectors of true and false pairs of a relation. The silhouette, from −1 to 1, measures how well"
        " they are separated in the model's own space."
    )
    return Section("Pair maps", intro, charts=drawn)


def _selection(curves: Sequence[LearningCurve], published: Published) -> Section:
    """The test figures of each model for each way to choose its step, and its learning curves."""
    drawn = []
    for model in tables.in_order(curve.model for curve in curves):
        seeds = [curve for curve in curves if curve.model == model]
        title = f"{model}, K = {seeds[0].shots}, {seeds[0].candidates}"
        drawn.append(LineChart(title, step_lines(seeds), "steps", "MRR"))
    intro = (
        "The same runs on test, at the step that is best on dev and at the step that is best on test. The latter cannot"
        " be chosen without the answers."
    )
    shown = [tables.by_selection(curves, published)] if curves else []
    return Section("Selection on test", intro, charts=drawn, tables=shown)
