"""Results as tables and as series for charts: by protocol, relation, number of references, part and step."""

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
LEADERBOARD_CANDIDATES, LEADERBOARD_SHOTS = ("full", "paper", "open"), (1, 3, 5)
COLUMNS = labelled("mrr", "hits@10", "hits@5", "hits@1")
Published = Mapping[str, Mapping[str, Mapping[str, float]]]  # model -> split -> metric -> figure


@dataclass(frozen=True)
class Table:
    """Cells as text, with markdown's `**best**` and `*published*` marks."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """The table and its note, without the title: the document knows the level of the heading."""
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
    """`.312 ± .014`; the mean alone if the values are equal or there is one, an empty text if there is none."""
    return figure(*moments(values)) if values else ""


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation (0 for a single value)."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def select(records: Iterable[Record], **fields: Any) -> list[Record]:
    """The records whose fields have these values."""
    return [r for r in records if all(getattr(r, name) == value for name, value in fields.items())]


def plain_name(model: str) -> str:
    """The name of a model without the number that a report gives to other settings: "trail" of "trail (2)"."""
    return model.partition(" (")[0]


def in_order(models: Iterable[str]) -> list[str]:
    """Learning-free scorers, embeddings, few-shot models, TRAIL and its ablations; unknown ones after, by name."""
    known = [model for family in families().values() for model in family.models]
    places = {model: place for place, model in enumerate(known)}
    return sorted(set(models), key=lambda model: (places.get(plain_name(model), len(places)), model))


def group_of(model: str) -> str:
    """The models that share a colour: a baseline family, or those with the same first word in their name."""
    name = plain_name(model)
    family = next((family for family in families().values() if name in family.models), None)
    return family.name if isinstance(family, BaselineFamily) else name.partition("-")[0]


def ablations() -> dict[str, list[str]]:
    """Each whole model and its ablations, by its name."""
    return {whole: names for family in families().values() for whole, names in family.ablations().items()}


def is_ablation(model: str) -> bool:
    """Whether a model is another one without a part; also `MODEL-no-PART` of a model that only records know."""
    name = plain_name(model)
    return "-no-" in name or any(name in names and name != whole for whole, names in ablations().items())


def models_of(records: Iterable[Record]) -> list[str]:
    return in_order(r.model for r in records)


def protocols_of(records: Iterable[Record]) -> list[str]:
    """The candidates protocols of these records: paper, full, open, then others by name."""
    names = {r.candidates for r in records}
    return [*(p for p in PROTOCOLS if p in names), *sorted(names - set(PROTOCOLS))]


def values(records: Iterable[Record], metric: str = "mrr", average: str = "micro") -> list[float]:
    return [r.metrics[average][metric] for r in records]


def figures(records: Sequence[Record]) -> list[str]:
    """A cell for each column of `COLUMNS`: the micro average, mean ± deviation over the records."""
    return [spread(values(records, metric)) for metric in COLUMNS.values()]


def published_row(model: str, figures: Mapping[str, float], *cells: str) -> list[str]:
    """A row with the paper's figures of a model, in italics."""
    return [f"*{model}, as published*", *cells, *(f"*{figure(figures[metric])}*" for metric in COLUMNS.values())]


def overall(records: Sequence[Record], published: Published | None = None, *, shots: int = 3) -> list[Table]:
    """A table for test and one for dev: every model under every protocol, with published figures beside `paper`.

    If the records have one protocol, the title names it and there is no column for it.
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
        columns = ["model", "candidates", "seeds", *COLUMNS, "macro MRR"]
        rows = emphasise(rows, range(3, len(columns)), group=1)
        if not rows:
            continue
        if len(protocols) == 1:
            columns, rows = columns[:1] + columns[2:], [row[:1] + row[2:] for row in rows]
        tables.append(Table(split if len(protocols) > 1 else f"{split}, {protocols[0]}", columns, rows))
    return tables


def in_short(records: Sequence[Record], *, shots: int = 3, head: str = "model") -> Table:
    """A row for each model: its MRR on test under each protocol."""
    matching = select(records, split="test", shots=shots, references="first")
    protocols = protocols_of(matching)
    rows = [
        [model, *(spread(values(select(matching, model=model, candidates=p))) for p in protocols)]
        for model in models_of(matching)
    ]
    columns = [head, *(f"`{p}`" for p in protocols)]
    return Table(f"test, K = {shots}, MRR", columns, emphasise(rows, range(1, len(columns))))


def leaderboard(store: RecordStore, benchmark: str, models: Sequence[str] = ()) -> Table:
    """A row for each model, the best of 3-shot `full` first: its MRR on test under each protocol, mean ± deviation.

    The last column is the difference to the best model whose ranks are stored, with its 95 % interval.
    """
    measured = select(store.records, benchmark=benchmark, split="test", references="first")
    measured = [r for r in measured if r.candidates in LEADERBOARD_CANDIDATES and r.shots in LEADERBOARD_SHOTS]
    records = [r for r in measured if (r.model in models if models else not is_ablation(r.model))]
    cells = [(candidates, shots) for candidates in LEADERBOARD_CANDIDATES for shots in LEADERBOARD_SHOTS]
    by_model = {
        model: [values(select(records, model=model, candidates=c, shots=k)) for c, k in cells]
        for model in models_of(records)
    }
    at = cells.index(("full", 3))
    order = sorted(by_model, key=lambda model: -statistics.fmean(by_model[model][at] or [-1]))
    best, differences = "", dict[str, str]()
    for model in order:
        try:
            found = compare(store, model, best or model, benchmark).micro
        except FewlinkError:  # without ranks
            continue
        best = best or model
        differences[model] = f"{_signed(found.difference)} ({_signed(found.low)} to {_signed(found.high)})"
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
    """A row for each relation and model, with the number of queries and candidates; relations in the records' order."""
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
    records: Sequence[Record], whole: str, *, split: str = "test", shots: int = 3, candidates: str = "full"
) -> Table:
    """A model beside its ablations, and how the MRR changes; `whole` is a name of `ablations`."""
    matching = select(records, split=split, shots=shots, candidates=candidates, references="first")
    measured = {model: seeds for model in ablations()[whole] if (seeds := select(matching, model=model))}
    rows = []
    for model, seeds in measured.items():
        change = ""
        if model != whole and whole in measured:
            change = _signed(statistics.fmean(values(seeds)) - statistics.fmean(values(measured[whole])))
        rows.append([model, about(model), str(len(seeds)), *figures(seeds), change])
    columns = ["model", "what it is", "seeds", *COLUMNS, "change of MRR"]
    rows = emphasise(rows, range(3, 3 + len(COLUMNS)), with_ablations=True)
    return Table(f"{whole} without its parts, {split}, K = {shots}, {candidates}", columns, rows)


def _signed(value: float) -> str:
    size = short(abs(value))
    return size if float(size) == 0 else ("−" if value < 0 else "+") + size


def about(model: str) -> str:
    """What a model is, in a line; an empty text for one that is not installed."""
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
    """A row for each model that was evaluated with randomly drawn references: mean ± deviation over the draws."""
    matching = select(records, split=split, shots=shots, candidates=candidates)
    drawn = [r for r in matching if r.references.startswith("draw")]
    by_model = {model: select(drawn, model=model) for model in models_of(drawn)}
    rows = [[model, str(len(draws)), *figures(draws)] for model, draws in by_model.items()]
    columns = ["model", "draws", *COLUMNS]
    return Table(
        f"{split}, K = {shots}, {candidates}: other references", columns, emphasise(rows, range(2, len(columns)))
    )


def links(records: Sequence[Record]) -> Table:
    """Ordinary link prediction: records without references."""
    rows = [[r.model, r.split, f"{r.queries:,}", *figures([r]), r.hardware] for r in records]
    return Table("ordinary link prediction", ["model", "split", "queries", *COLUMNS, "hardware"], rows)


def best_of_each(curve: LearningCurve) -> Mapping[str, float]:
    """The best test figure of each metric, each at its own step."""
    return {metric: max(point.test[metric] for point in curve.points) for metric in COLUMNS.values()}


SELECTIONS: dict[str, Callable[[LearningCurve], Mapping[str, float]]] = {  # test figures by how the step is chosen
    "chosen-on-dev": lambda curve: curve.best("dev").test,
    "chosen-on-test": lambda curve: curve.best("test").test,
    "best-of-each": best_of_each,
}
SELECTION_LABELS = {"chosen-on-dev": "dev", "chosen-on-test": "test", "best-of-each": "test, each metric by itself"}


def by_selection(curves: Sequence[LearningCurve], published: Published | None = None) -> Table:
    """A row for each model and way to choose its step: test figures, mean ± deviation over seeds."""
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
    """Mark the best figure of each column bold, among the rows that share the cell of column `group`.

    Ties are all marked. Published figures (`*.318*`), single rows and, unless `with_ablations`, the rows of ablations
    are left as they are.
    """
    marked = [list(row) for row in rows]
    groups: dict[str, list[list[str]]] = {}
    for row in (row for row in marked if with_ablations or not is_ablation(row[0])):
        groups.setdefault(row[group] if group is not None else "", []).append(row)
    for column in columns:
        for members in groups.values():
            entered = [row for row in members if row[column] and not row[column].startswith("*")]
            best = max((_mean(row[column]) for row in entered), default=0.0)
            for row in entered if len(entered) > 1 else []:
                if _mean(row[column]) == best:
                    row[column] = f"**{row[column]}**"
    return marked


def _mean(cell: str) -> float:
    return float(cell.partition(" ")[0])
