"""What a report says of one benchmark, section by section."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from fewlink.base.metrics import LABELS
from fewlink.report import charts, series, tables
from fewlink.report.tables import COLUMNS, Published, Table, chosen, moments, values
from fewlink.studies.learning_curves import Course, by_choice
from fewlink.studies.pair_maps import PairMap

if TYPE_CHECKING:
    from fewlink.evaluation.records import Record

MOST_LINES = 8  # models in a chart of lines
MOST_EXAMPLES = 4  # right ones, and wrong ones, of a model
OTHERS, DEV = "Test under the other protocols", "Dev, which settings were chosen on"
Styles = Mapping[str, int]


@dataclass(frozen=True)
class Found:
    """What a folder of results holds."""

    records: Sequence[Record]
    maps: Sequence[PairMap] = ()
    courses: Sequence[Course] = ()

    def of(self, benchmark: str) -> Found:
        """Those of one benchmark."""
        mine = [c for c in self.courses if c.benchmark == benchmark]
        return Found(
            chosen(self.records, benchmark=benchmark), [m for m in self.maps if m.benchmark == benchmark], mine
        )


@dataclass(frozen=True)
class Asked:
    """The measurement a benchmark is discussed under."""

    shots: int
    candidates: str

    def __str__(self) -> str:
        return f"test, K = {self.shots}, {self.candidates}"


class Lead(NamedTuple):
    """The best model, and the best one of another family (none where there is no other)."""

    model: str
    cells: Mapping[str, str]
    seeds: int
    rival: str
    rival_mrr: str
    margin: str
    level: bool


@dataclass
class Section:
    """What stands under one heading."""

    title: str
    intro: str = ""
    key: Sequence[tuple[str, Markup]] = ()
    charts: Sequence[Markup] = ()
    tables: Sequence[Table] = ()
    folded: Mapping[str, Sequence[Table]] = field(default_factory=dict)
    examples: Sequence[Mapping[str, Any]] = ()
    glance: Sequence[Table] = ()


def what_to_ask(records: Sequence[Record]) -> Asked | None:
    """K = 3 and `full` on test where there are such records, else what most of them are; none without references."""
    mine = [r for r in records if r.shots and r.split == "test"] or [r for r in records if r.shots]
    if not mine:
        return None
    shots = max(Counter(r.shots for r in mine).items(), key=lambda item: (item[0] == 3, item[1]))[0]
    found = Counter(r.candidates for r in mine if r.shots == shots)
    return Asked(shots, max(found.items(), key=lambda item: (item[0] == "full", item[1]))[0])


def _first(records: Sequence[Record], asked: Asked, **wanted: Any) -> list[Record]:
    kind = {"split": "test", "shots": asked.shots, "candidates": asked.candidates, "references": "first"}
    return chosen(records, **{**kind, **wanted})


def _ranking(records: Sequence[Record], asked: Asked) -> dict[str, list[Record]]:
    """The records of each model under what is asked, the best model first."""
    found = _first(records, asked)
    each = {model: chosen(found, model=model) for model in tables.models_of(found)}
    return dict(sorted(each.items(), key=lambda item: -moments(values(item[1]))[0]))


def lead_of(records: Sequence[Record], asked: Asked) -> Lead | None:
    ranking = _ranking(records, asked)
    if not ranking:
        return None
    best, own = next(iter(ranking.items()))
    others = (model for model in ranking if tables.group_of(model) != tables.group_of(best))
    rival = next(others, "")
    cells = {
        **dict(zip(COLUMNS, tables.figures(own), strict=True)),
        "macro MRR": tables.spread(values(own, average="macro")),
    }
    if not rival:
        return Lead(best, cells, len(own), "", "", "", False)
    (mean, deviation), (next_mean, next_deviation) = (moments(values(ranking[m])) for m in (best, rival))
    margin = mean - next_mean
    level = margin < math.hypot(deviation, next_deviation)
    rival_mrr = tables.spread(values(ranking[rival]))
    return Lead(
        best,
        cells,
        len(own),
        rival,
        rival_mrr,
        f"{charts.figure(margin)}" if margin >= 0.0005 else "less than .001",
        level,
    )


def sections_of(found: Found, asked: Asked, published: Published) -> list[Section]:
    """The sections that the results have something for."""
    records = found.records
    ranking = _ranking(records, asked)
    first: dict[str, str] = {}
    for model in ranking:
        first.setdefault(tables.group_of(model), model)
    leaders = tables.in_order(first.values())
    styles = {model: number for number, model in enumerate(leaders)}
    made = [
        _overall(records, asked, ranking, {tables.group_of(m): styles[m] for m in leaders}, published),
        _by_relation(records, asked, leaders, styles),
        _by_shots(records, asked, ranking, styles),
        _by_draws(records, asked),
        _ablations(records, asked),
        _examples(records, asked, ranking),
        _maps(found.maps),
        _choices(found.courses, published),
    ]
    return [section for section in made if section.charts or section.tables or section.folded or section.examples]


def _overall(
    records: Sequence[Record],
    asked: Asked,
    ranking: Mapping[str, Sequence[Record]],
    styles: Styles,
    published: Published,
) -> Section:
    bars = {m: {tables.group_of(m): moments(values(ranking[m]))} for m in tables.in_order(ranking)}
    chart = charts.bars(bars, title=f"MRR of every model, {asked}", value_label="MRR", styles=styles)
    short = tables.in_short(records, shots=asked.shots)
    shown: list[Table] = []
    folded: dict[str, list[Table]] = {OTHERS: [], DEV: []}
    protocols = tables.protocols_of(records)
    for protocol in sorted(protocols, key=lambda p: p != asked.candidates):
        for table in tables.overall(chosen(records, candidates=protocol), published, shots=asked.shots):
            split = table.title.partition(",")[0]
            named = replace(table, title=f"{split}, K = {asked.shots}, {protocol}")
            if split == "test" and protocol == asked.candidates:
                shown.append(named)
            else:
                folded[OTHERS if split == "test" else DEV].append(named)
    glance = [replace(short, title=f"MRR on test, K = {asked.shots}, by protocol")] if short.rows else []
    return Section(
        "Overall",
        "Micro averages over queries; mean ± standard deviation over training seeds. The best figure of a column is"
        " bold.",
        charts=[Markup(chart)] if ranking else [],
        glance=glance,
        tables=shown,
        folded={name: found for name, found in folded.items() if found},
    )


def _by_relation(records: Sequence[Record], asked: Asked, leaders: Sequence[str], styles: Styles) -> Section:
    """The best model of each family, relation by relation, on two charts of the same scale."""
    rows = series.by_relation(_first(records, asked), leaders)
    if len(rows) < 2:
        return Section("By relation")
    limit = max(mean + deviation for cells in rows.values() for mean, deviation in cells.values())
    names, half = list(rows), (len(rows) + 1) // 2
    drawn = [
        Markup(
            charts.bars(
                {name: rows[name] for name in part},
                title=f"MRR by relation, {number} of 2",
                value_label="MRR",
                styles=styles,
                limit=limit,
                keyed=False,
            )
        )
        for number, part in enumerate((names[:half], names[half:]), 1)
    ]
    table = tables.by_relation(records, leaders, shots=asked.shots, candidates=asked.candidates)
    return Section(
        "By relation",
        f"The best model of each family ({asked}). The best figure of each relation is bold in the table.",
        key=_key(leaders, styles, "bar"),
        charts=drawn,
        folded={"All figures by relation": [table]},
    )


def _by_shots(
    records: Sequence[Record], asked: Asked, ranking: Mapping[str, Sequence[Record]], styles: Styles
) -> Section:
    found = {metric: tables.by_shots(records, key, candidates=asked.candidates) for metric, key in COLUMNS.items()}
    several = {row[0]: sum(map(bool, row[1:])) for row in found["MRR"].rows}  # numbers of references of each model
    wanted = sorted((model for model in ranking if model in several), key=lambda model: -several[model])
    shown = tables.in_order(wanted[:MOST_LINES])
    if not shown:
        return Section("By number of references")
    free = (n for n in itertools.count() if n not in {styles.get(model) for model in shown})
    styles = {model: styles[model] if model in styles else next(free) for model in shown}
    mine = chosen(records, split="test", candidates=asked.candidates, references="first")
    panels = []
    for metric in ("mrr", "hits@1", "hits@5", "hits@10"):
        drawn = series.by_shots(mine, shown, metric)
        labels = {"title": LABELS[metric], "x_label": "references (K)", "y_label": "mean ± deviation"}
        panels.append(Markup(charts.lines(drawn, **labels, styles=styles, keyed=False)))
    told = f"Test, {asked.candidates}; bands are ± one standard deviation over seeds."
    if len(shown) < len(several):
        told += f" The charts show {len(shown)} of {len(several)} models: those measured at most K, then the best."
    others = [table for metric, table in found.items() if metric != "MRR"]
    return Section(
        "By number of references",
        told,
        key=_key(shown, styles, "line"),
        charts=panels,
        tables=[found["MRR"]],
        folded={"Hits@k by number of references": others},
    )


def _by_draws(records: Sequence[Record], asked: Asked) -> Section:
    table = tables.by_draws(records, shots=asked.shots, candidates=asked.candidates)
    told = "How much depends on which pairs are the references: random draws in place of the benchmark's first ones."
    return Section("Other references", told, tables=[table] if table.rows else [])


def _ablations(records: Sequence[Record], asked: Asked) -> Section:
    found = []
    for whole in tables.ablations():
        table = tables.ablation(records, whole, shots=asked.shots, candidates=asked.candidates)
        if len(table.rows) > 1:
            found.append(replace(table, title=f"{whole.upper()} without its parts, {asked}"))
    return Section("Ablations", "What each part is worth: the same model without it.", tables=found)


def _examples(records: Sequence[Record], asked: Asked, ranking: Mapping[str, Sequence[Record]]) -> Section:
    """Right and wrong answers of the best models that tell them."""
    shown: list[Mapping[str, Any]] = []
    for model, mine in ranking.items():
        told = next((found for r in mine if (found := getattr(r, "examples", []))), [])
        for right in (True, False):
            kind = _one_of_each(e for e in told if (e["rank"] <= 1) == right)[:MOST_EXAMPLES]
            shown += [{**example, "model": model, "right": right} for example in kind]
        if len({example["model"] for example in shown}) == 2:
            break
    return Section(
        "Examples", f"Questions of {asked} with the five best answers; the true one is marked.", examples=shown
    )


def _one_of_each(examples: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The same examples, one of each relation first, then a second one of each, and so on."""
    seen: Counter[str] = Counter()
    placed = []
    for example in examples:
        placed.append((seen[example["relation"]], example))
        seen[example["relation"]] += 1
    return [example for _, example in sorted(placed, key=lambda item: item[0])]


def _maps(maps: Sequence[PairMap]) -> Section:
    drawn = [
        Markup(charts.scatter(m.points, title=f"{m.model}, silhouette {charts.figure(m.silhouette)}: {m.relation}"))
        for m in maps
    ]
    told = (
        "t-SNE of pair vectors: true pairs and false ones of a relation. The silhouette says how far apart they lie"
        " in the model's own space, from −1 to 1."
    )
    return Section("Pair maps", told, charts=drawn)


def _choices(courses: Sequence[Course], published: Published) -> Section:
    """What the choice of the step is worth, model by model, and the courses that it is made on."""
    drawn = []
    for model in tables.in_order(course.model for course in courses):
        mine = [course for course in courses if course.model == model]
        title = f"{model}, K = {mine[0].shots}, {mine[0].candidates}"
        drawn.append(Markup(charts.lines(series.by_step(mine), title=title, x_label="steps", y_label="MRR")))
    told = (
        "The same runs on test, kept at the step that is best on dev, or at the one that is best on test, which nobody"
        " can choose who does not know the answers."
    )
    return Section("Selection on test", told, charts=drawn, tables=[by_choice(courses, published)] if courses else [])


def _key(models: Iterable[str], styles: Styles, kind: str) -> list[tuple[str, Markup]]:
    return [(model, Markup(charts.swatch(styles[model], kind))) for model in models]
