"""Tables from result records: what each model reached, by protocol, relation, references and part."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fewlink.base.metrics import labelled
from fewlink.report.charts import figure, short
from fewlink.training.family import BaselineFamily, families

if TYPE_CHECKING:
    from fewlink.evaluation.records import Record

PROTOCOLS = ("paper", "full", "open")
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
        """The table and its note; the title is left to the document, which knows the level of its heading."""
        lines = [_line(self.columns), f"|{'|'.join(['---'] * len(self.columns))}|", *map(_line, self.rows)]
        return "\n".join(lines) + "\n" + (f"\n{self.note}\n" if self.note else "")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def spread(values: Sequence[float]) -> str:
    """`.312 ± .014`, the plain figure where there is one value or no spread, nothing where there is none."""
    return figure(*moments(values)) if values else ""


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation, which is 0 of a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def chosen(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """The records whose fields have these values."""
    return [r for r in records if all(getattr(r, key) == value for key, value in wanted.items())]


def in_order(models: Iterable[str]) -> list[str]:
    """Learning-free scorers, embeddings, few-shot models, TRAIL and its ablations; unknown ones after, by name."""
    known = [model for family in families().values() for model in family.models]
    places = {model: place for place, model in enumerate(known)}
    return sorted(set(models), key=lambda model: (places.get(model, len(places)), model))


def group_of(model: str) -> str:
    """The models that share a colour: a baseline family, or those with the same first word in their name."""
    found = next((family for family in families().values() if model in family.models), None)
    return found.name if isinstance(found, BaselineFamily) else model.partition("-")[0]


def ablations() -> dict[str, list[str]]:
    """Each whole model and its ablations, by its name."""
    return {whole: names for family in families().values() for whole, names in family.ablations().items()}


def models_of(records: Iterable[Record]) -> list[str]:
    return in_order(r.model for r in records)


def protocols_of(records: Iterable[Record]) -> list[str]:
    """The candidates protocols of these records: paper, full, open, then others by name."""
    found = {r.candidates for r in records}
    return [*(p for p in PROTOCOLS if p in found), *sorted(found - set(PROTOCOLS))]


def values(records: Iterable[Record], metric: str = "mrr", average: str = "micro") -> list[float]:
    return [r.metrics[average][metric] for r in records]


def figures(records: Sequence[Record]) -> list[str]:
    """A cell a column of `COLUMNS`: the micro average, mean ± deviation over the records."""
    return [spread(values(records, metric)) for metric in COLUMNS.values()]


def overall(records: Sequence[Record], published: Published | None = None, *, shots: int = 3) -> list[Table]:
    """A table each for test and dev: every model under every protocol, with published figures beside `paper`.

    Where the records have one protocol, the table is named after it and has no column for it.
    """
    asked = chosen(records, shots=shots, references="first")
    tables = []
    for split in ("test", "dev"):
        mine = chosen(asked, split=split)
        protocols = protocols_of(mine)
        rows = []
        for model in models_of(mine):
            for protocol in protocols:
                if found := chosen(mine, model=model, candidates=protocol):
                    macro = spread(values(found, average="macro"))
                    rows.append([model, protocol, str(len(found)), *figures(found), macro])
            if "paper" in protocols and (row := (published or {}).get(model, {}).get(split)):
                told = [f"*{figure(row[metric])}*" for metric in COLUMNS.values()]
                rows.append([f"*{model}, as published*", "*paper*", "", *told, ""])
        columns = ["model", "candidates", "seeds", *COLUMNS, "macro MRR"]
        rows = emphasise(rows, range(3, len(columns)), group=1)
        if not rows:
            continue
        if len(protocols) == 1:
            columns, rows = columns[:1] + columns[2:], [row[:1] + row[2:] for row in rows]
        tables.append(Table(split if len(protocols) > 1 else f"{split}, {protocols[0]}", columns, rows))
    return tables


def in_short(records: Sequence[Record], *, shots: int = 3, head: str = "model") -> Table:
    """A row a model: its MRR on test under each protocol."""
    asked = chosen(records, split="test", shots=shots, references="first")
    protocols = protocols_of(asked)
    rows = [
        [model, *(spread(values(chosen(asked, model=model, candidates=p))) for p in protocols)]
        for model in models_of(asked)
    ]
    columns = [head, *(f"`{p}`" for p in protocols)]
    return Table(f"test, K = {shots}, MRR", columns, emphasise(rows, range(1, len(columns))))


def by_relation(
    records: Sequence[Record],
    models: Sequence[str],
    *,
    split: str = "test",
    shots: int = 3,
    candidates: str = "full",
) -> Table:
    """A row a relation and model, with the number of queries and candidates; relations as the records order them."""
    asked = chosen(records, split=split, shots=shots, candidates=candidates, references="first")
    asked = [r for r in asked if r.model in models]
    rows = []
    for relation in dict.fromkeys(name for r in asked for name in r.relations):
        for model in in_order(models):
            found = [r.relations[relation] for r in chosen(asked, model=model) if relation in r.relations]
            if found:
                counts = [f"{found[0][key]:,.0f}" for key in ("queries", "candidates")]
                rows.append([relation, *counts, model, *(spread([f[m] for f in found]) for m in COLUMNS.values())])
    columns = ["relation", "queries", "candidates", "model", *COLUMNS]
    title = f"{split} by relation, K = {shots}, {candidates}"
    return Table(title, columns, emphasise(rows, range(4, len(columns)), group=0))


def ablation(
    records: Sequence[Record], whole: str, *, split: str = "test", shots: int = 3, candidates: str = "full"
) -> Table:
    """A model and what is left of it without each of its parts: `whole` is `fsrl` or `trail`."""
    asked = chosen(records, split=split, shots=shots, candidates=candidates, references="first")
    kept = {model: found for model in ablations()[whole] if (found := chosen(asked, model=model))}
    rows = []
    for model, found in kept.items():
        change = ""
        if model != whole and whole in kept:
            change = _signed(statistics.fmean(values(found)) - statistics.fmean(values(kept[whole])))
        rows.append([model, about(model), str(len(found)), *figures(found), change])
    columns = ["model", "what it is", "seeds", *COLUMNS, "change of MRR"]
    rows = emphasise(rows, range(3, 3 + len(COLUMNS)))
    return Table(f"{whole} without its parts, {split}, K = {shots}, {candidates}", columns, rows)


def _signed(value: float) -> str:
    size = short(abs(value))
    return size if float(size) == 0 else ("−" if value < 0 else "+") + size


def about(model: str) -> str:
    """What a model is, in a line; nothing for one that is not installed."""
    return next((family.models[model] for family in families().values() if model in family.models), "")


def by_shots(records: Sequence[Record], metric: str = "mrr", *, split: str = "test", candidates: str = "full") -> Table:
    """A row a model that was evaluated with several numbers of references."""
    asked = [r for r in chosen(records, split=split, candidates=candidates, references="first") if r.shots]
    numbers = sorted({r.shots for r in asked})
    rows = [
        [model, *(spread(values(chosen(asked, model=model, shots=k), metric)) for k in numbers)]
        for model in models_of(asked)
    ]
    rows = [row for row in rows if sum(map(bool, row[1:])) > 1]
    columns = ["model", *(f"K = {k}" for k in numbers)]
    named = next((name for name, key in COLUMNS.items() if key == metric), metric)
    return Table(f"{split}, {named} under {candidates}", columns, emphasise(rows, range(1, len(columns))))


def by_draws(records: Sequence[Record], *, split: str = "test", shots: int = 3, candidates: str = "full") -> Table:
    """A row a model that was evaluated with randomly drawn references: mean ± deviation over the draws."""
    asked = chosen(records, split=split, shots=shots, candidates=candidates)
    drawn = [r for r in asked if r.references.startswith("draw")]
    rows = [
        [model, str(len(found)), *figures(found)] for model in models_of(drawn) if (found := chosen(drawn, model=model))
    ]
    columns = ["model", "draws", *COLUMNS]
    return Table(
        f"{split}, K = {shots}, {candidates}: other references", columns, emphasise(rows, range(2, len(columns)))
    )


def links(records: Sequence[Record]) -> Table:
    """Ordinary link prediction: records without references."""
    rows = [[r.model, r.split, f"{r.queries:,}", *figures([r]), r.hardware] for r in records]
    return Table("ordinary link prediction", ["model", "split", "queries", *COLUMNS, "hardware"], rows)


def emphasise(rows: Sequence[Sequence[str]], columns: Iterable[int], group: int | None = None) -> list[list[str]]:
    """Mark the best figure of each column bold, within the rows that share the cell of column `group`.

    Figures that read the same are equally good; published ones (`*.318*`) take no part, nor does a row alone.
    """
    marked = [list(row) for row in rows]
    groups: dict[str, list[list[str]]] = {}
    for row in marked:
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
