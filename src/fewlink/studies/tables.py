"""Tables of results: by protocol, relation, number of references, component and step."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fewlink.core.errors import FewlinkError
from fewlink.core.metrics import labelled
from fewlink.evaluation.comparison import compare
from fewlink.evaluation.curves import LearningCurve
from fewlink.evaluation.records import Record, RecordStore
from fewlink.models import families
from fewlink.models.family import BaselineFamily

PROTOCOLS = ("paper", "full", "open")
LEADERBOARD_CANDIDATES = ("full", "paper", "open")
LEADERBOARD_SHOTS = (1, 3, 5)
COLUMNS = labelled("mrr", "hits@10", "hits@5", "hits@1")
Published = Mapping[str, Mapping[str, Mapping[str, float]]]  # model -> split -> metric -> figure


@dataclass(frozen=True)
class Table:
    """A table of text, with Markdown's marks for `**best**` and `*published*` figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """The table and its note, without the title."""
        lines = [_line(self.columns), f"|{'|'.join(['---'] * len(self.columns))}|", *map(_line, self.rows)]
        return "\n".join(lines) + "\n" + (f"\n{self.note}\n" if self.note else "")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def figure(mean: float, deviation: float = 0.0) -> str:
    """`.312 ± .014`, or the mean alone if there is no deviation."""
    return f"{short(mean)} ± {short(deviation)}" if deviation else short(mean)


def short(value: float) -> str:
    """Three decimals without a leading zero."""
    text = f"{value:.3f}"
    return text[1:] if text.startswith("0.") else text.replace("-0.", "-.", 1)


def spread(values: Sequence[float]) -> str:
    """`.312 ± .014`; the mean alone without a deviation, and an empty text without values."""
    return figure(*moments(values)) if values else ""


def moments(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation, which is 0 for a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def select(records: Iterable[Record], **fields: Any) -> list[Record]:
    """The records whose fields have these values."""
    return [r for r in records if all(getattr(r, name) == value for name, value in fields.items())]


def plain_name(model: str) -> str:
    """The name of a model without the number that a report appends for other settings: "trail" for "trail (2)"."""
    return model.partition(" (")[0]


def in_order(models: Iterable[str]) -> list[str]:
    """Distinct models in the order of their families, then unknown ones by name."""
    known = [model for family in families().values() for model in family.models]
    positions = {model: position for position, model in enumerate(known)}
    return sorted(set(models), key=lambda model: (positions.get(plain_name(model), len(positions)), model))


def group_of(model: str) -> str:
    """The group of a model for comparisons: its baseline family, or the first word of its name."""
    name = plain_name(model)
    family = next((family for family in families().values() if name in family.models), None)
    return family.name if isinstance(family, BaselineFamily) else name.partition("-")[0]


def ablations() -> dict[str, list[str]]:
    """The names of each full model and its ablations, by the name of the full model."""
    return {model: names for family in families().values() for model, names in family.ablations().items()}


def is_ablation(model: str) -> bool:
    """Whether a model is an ablation, also of a model that only records know (`MODEL-no-COMPONENT`)."""
    name = plain_name(model)
    return "-no-" in name or any(name in names and name != full_model for full_model, names in ablations().items())


def models_of(records: Iterable[Record]) -> list[str]:
    return in_order(r.model for r in records)


def protocols_of(records: Iterable[Record]) -> list[str]:
    """The candidates of these records: paper, full, open, then others by name."""
    names = {r.candidates for r in records}
    return [*(p for p in PROTOCOLS if p in names), *sorted(names - set(PROTOCOLS))]


def values(records: Iterable[Record], metric: str = "mrr", average: str = "micro") -> list[float]:
    return [r.metrics[average][metric] for r in records]


def figures(records: Sequence[Record]) -> list[str]:
    """A cell for each column of `COLUMNS`: the micro average, mean ± deviation over the records."""
    return [spread(values(records, metric)) for metric in COLUMNS.values()]


def published_row(model: str, figures: Mapping[str, float], *cells: str) -> list[str]:
    """A row with the paper's figures for a model, in italics."""
    return [f"*{model}, as published*", *cells, *(f"*{figure(figures[metric])}*" for metric in COLUMNS.values())]


def overall(records: Sequence[Record], published: Published | None = None, *, shots: int = 3) -> list[Table]:
    """A table for test and one for dev, with every model and protocol, and published figures next to `paper`.

    If all records have one protocol, it is in the title instead of a column.
    """
    matching = select(records, shots=shots, references="first")
    tables = []
    for split in ("test", "dev"):
        in_split = select(matching, split=split)
        protocols = protocols_of(in_split)
        rows = []
        for model in models_of(in_split):
            for protocol in protocols:
                if seeds := select(in_split, model=model, candidates=protocol):
                    macro = spread(values(seeds, average="macro"))
                    rows.append([model, protocol, str(len(seeds)), *figures(seeds), macro])
            if "paper" in protocols and (row := (published or {}).get(model, {}).get(split)):
                rows.append([*published_row(model, row, "*paper*", ""), ""])
        if not rows:
            continue
        columns = ["model", "candidates", "seeds", *COLUMNS, "macro MRR"]
        rows = emphasise(rows, range(3, len(columns)), group=1)
        title = split
        if len(protocols) == 1:
            title = f"{split}, {protocols[0]}"
            columns = columns[:1] + columns[2:]
            rows = [row[:1] + row[2:] for row in rows]
        tables.append(Table(title, columns, rows))
    return tables


def in_short(records: Sequence[Record], *, shots: int = 3, head: str = "model") -> Table:
    """A row for each model, with its MRR on test for each protocol."""
    matching = select(records, split="test", shots=shots, references="first")
    protocols = protocols_of(matching)
    rows = [
        [model, *(spread(values(select(matching, model=model, candidates=p))) for p in protocols)]
        for model in models_of(matching)
    ]
    columns = [head, *(f"`{p}`" for p in protocols)]
    return Table(f"test, K = {shots}, MRR", columns, emphasise(rows, range(1, len(columns))))


def leaderboard(store: RecordStore, benchmark: str, models: Sequence[str] = ()) -> Table:
    """A row for each model, sorted by 3-shot `full`, with its MRR on test for each protocol, mean ± deviation.

    The last column is the difference to the best model with stored ranks, with its 95 % interval.
    """
    measured = select(store.records, benchmark=benchmark, split="test", references="first")
    measured = [r for r in measured if r.candidates in LEADERBOARD_CANDIDATES and r.shots in LEADERBOARD_SHOTS]
    records = [r for r in measured if (r.model in models if models else not is_ablation(r.model))]
    cells = [(candidates, shots) for candidates in LEADERBOARD_CANDIDATES for shots in LEADERBOARD_SHOTS]
    by_model = {
        model: [values(select(records, model=model, candidates=c, shots=k)) for c, k in cells]
        for model in models_of(records)
    }
    main_cell = cells.index(("full", 3))
    order = sorted(by_model, key=lambda model: -statistics.fmean(by_model[model][main_cell] or [-1]))
    best = ""
    differences: dict[str, str] = {}
    for model in order:
        try:
            micro = compare(store, model, best or model, benchmark).micro
        except FewlinkError:  # the model has no ranks
            continue
        best = best or model
        differences[model] = f"{_signed(micro.difference)} ({_signed(micro.low)} to {_signed(micro.high)})"
    rows = []
    for model in order:
        counts = sorted({len(seeds) for seeds in by_model[model] if seeds})
        cell = "best with ranks" if model == best else differences.get(model, "–")
        seeds = "–".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
        rows.append([model, *map(spread, by_model[model]), seeds, cell])
    columns = ["model", *(f"`{c}` {k}" for c, k in cells), "seeds", f"difference to {best or 'the best'}"]
    return Table(benchmark, columns, emphasise(rows, range(1, len(cells) + 1)))


def by_relation(
    records: Sequence[Record],
    models: Sequence[str],
    *,
    split: str = "test",
    shots: int = 3,
    candidates: str = "full",
) -> Table:
    """A row for each relation, in the order of the records, and model, with the numbers of queries and candidates."""
    matching = select(records, split=split, shots=shots, candidates=candidates, references="first")
    matching = [r for r in matching if r.model in models]
    rows = []
    for relation in dict.fromkeys(name for r in matching for name in r.relations):
        for model in in_order(models):
            seeds = [r.relations[relation] for r in select(matching, model=model) if relation in r.relations]
            if seeds:
                counts = [f"{seeds[0][key]:,.0f}" for key in ("queries", "candidates")]
                rows.append([relation, *counts, model, *(spread([s[m] for s in seeds]) for m in COLUMNS.values())])
    columns = ["relation", "queries", "candidates", "model", *COLUMNS]
    title = f"{split} by relation, K = {shots}, {candidates}"
    return Table(title, columns, emphasise(rows, range(4, len(columns)), group=0))


def ablation(
    records: Sequence[Record], full_model: str, *, split: str = "test", shots: int = 3, candidates: str = "full"
) -> Table:
    """A full model (a key of `ablations`) and its ablations, with the change of MRR."""
    matching = select(records, split=split, shots=shots, candidates=candidates, references="first")
    full_mrrs = values(select(matching, model=full_model))
    rows = []
    for model in ablations()[full_model]:
        seeds = select(matching, model=model)
        if not seeds:
            continue
        change = ""
        if model != full_model and full_mrrs:
            change = _signed(statistics.fmean(values(seeds)) - statistics.fmean(full_mrrs))
        rows.append([model, about(model), str(len(seeds)), *figures(seeds), change])
    columns = ["model", "description", "seeds", *COLUMNS, "change of MRR"]
    rows = emphasise(rows, range(3, 3 + len(COLUMNS)), with_ablations=True)
    return Table(f"{full_model} and its ablations, {split}, K = {shots}, {candidates}", columns, rows)


def _signed(value: float) -> str:
    """Three decimals with a sign, which zero does not have."""
    size = short(abs(value))
    if float(size) == 0:
        return size
    return f"−{size}" if value < 0 else f"+{size}"


def about(model: str) -> str:
    """The one-line description of a model; empty for one that is not installed."""
    return next((family.models[model] for family in families().values() if model in family.models), "")


def by_shots(records: Sequence[Record], metric: str = "mrr", *, split: str = "test", candidates: str = "full") -> Table:
    """A row for each model that was evaluated with several numbers of references."""
    matching = [r for r in select(records, split=split, candidates=candidates, references="first") if r.shots]
    numbers = sorted({r.shots for r in matching})
    rows = [
        [model, *(spread(values(select(matching, model=model, shots=k), metric)) for k in numbers)]
        for model in models_of(matching)
    ]
    rows = [row for row in rows if sum(map(bool, row[1:])) > 1]
    columns = ["model", *(f"K = {k}" for k in numbers)]
    label = next((name for name, key in COLUMNS.items() if key == metric), metric)
    return Table(f"{split}, {label} under {candidates}", columns, emphasise(rows, range(1, len(columns))))


def by_draws(records: Sequence[Record], *, split: str = "test", shots: int = 3, candidates: str = "full") -> Table:
    """A row for each model that was evaluated with random draws of references, mean ± deviation over the draws."""
    matching = select(records, split=split, shots=shots, candidates=candidates)
    drawn = [r for r in matching if r.references.startswith("draw")]
    by_model = {model: select(drawn, model=model) for model in models_of(drawn)}
    rows = [[model, str(len(draws)), *figures(draws)] for model, draws in by_model.items()]
    columns = ["model", "draws", *COLUMNS]
    return Table(
        f"{split}, K = {shots}, {candidates}: other references", columns, emphasise(rows, range(2, len(columns)))
    )


def links(records: Sequence[Record]) -> Table:
    """A row for each record of ordinary link prediction, without references."""
    rows = [[r.model, r.split, f"{r.queries:,}", *figures([r]), r.hardware] for r in records]
    return Table("ordinary link prediction", ["model", "split", "queries", *COLUMNS, "hardware"], rows)


def best_of_each(curve: LearningCurve) -> Mapping[str, float]:
    """The best test figure of each metric, each at its own step."""
    return {metric: max(point.test[metric] for point in curve.points) for metric in COLUMNS.values()}


SELECTIONS: dict[str, Callable[[LearningCurve], Mapping[str, float]]] = {  # test figures for each choice of the step
    "chosen-on-dev": lambda curve: curve.best("dev").test,
    "chosen-on-test": lambda curve: curve.best("test").test,
    "best-of-each": best_of_each,
}
SELECTION_LABELS = {"chosen-on-dev": "dev", "chosen-on-test": "test", "best-of-each": "test, each metric by itself"}


def by_selection(curves: Sequence[LearningCurve], published: Published | None = None) -> Table:
    """A row for each model and way to choose its step, with test figures, mean ± deviation over seeds."""
    rows = []
    for model in in_order(curve.model for curve in curves):
        seeds = [curve for curve in curves if curve.model == model]
        for selection, figures_of in SELECTIONS.items():
            rows_of_seeds = [figures_of(curve) for curve in seeds]
            cells = [spread([row[metric] for row in rows_of_seeds]) for metric in COLUMNS.values()]
            rows.append([model, SELECTION_LABELS[selection], str(len(seeds)), *cells])
        if row := (published or {}).get(model, {}).get("test"):
            rows.append(published_row(model, row, "", ""))
    protocols = ", ".join(dict.fromkeys(f"K = {curve.shots}, {curve.candidates}" for curve in curves))
    return Table(f"test, {protocols}, by what the step was chosen on", ["model", "chosen on", "seeds", *COLUMNS], rows)


def emphasise(
    rows: Sequence[Sequence[str]], columns: Iterable[int], group: int | None = None, *, with_ablations: bool = False
) -> list[list[str]]:
    """Make the best figure of each column bold, among rows with the same cell in column `group`; mark all ties.

    Published figures (`*.318*`), single rows and, unless `with_ablations`, rows of ablations are not marked.
    """
    marked = [list(row) for row in rows]
    groups: dict[str, list[list[str]]] = {}
    for row in marked:
        if with_ablations or not is_ablation(row[0]):
            groups.setdefault(row[group] if group is not None else "", []).append(row)
    for column in columns:
        for members in groups.values():
            compared = [row for row in members if row[column] and not row[column].startswith("*")]
            if len(compared) < 2:
                continue
            best = max(_mean(row[column]) for row in compared)
            for row in compared:
                if _mean(row[column]) == best:
                    row[column] = f"**{row[column]}**"
    return marked


def _mean(cell: str) -> float:
    return float(cell.partition(" ")[0])
