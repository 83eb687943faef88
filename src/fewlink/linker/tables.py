"""Answers as tables: odd triples of `check`, and relations that fit a pair."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Generic, TypeVar, overload

import numpy as np

from fewlink.core.errors import json_shown, shown, table_cell
from fewlink.graph import Graph
from fewlink.linker import drawing
from fewlink.linker.check import WORDS, OddTriples
from fewlink.linker.drawing import Cell
from fewlink.linker.relations import Fit

SHOWN = 20  # rows in a repr


@dataclass(frozen=True)
class CheckedTriple:
    """A triple of the graph and how odd it is: near 0 it fits, near 1 it looks like a made-up pair; and why."""

    oddness: float
    head: str
    head_name: str
    relation: str
    relation_name: str
    tail: str
    tail_name: str
    reason: str


@dataclass(frozen=True)
class RelationFit:
    """A relation and how well it fits a pair, from 0 to 1; `known`: the graph has it between the two; `by`: whether it
    is one of the graph or described by references."""

    relation: str
    relation_name: str
    fit: float
    known: bool
    by: str


T = TypeVar("T", bound=CheckedTriple | RelationFit)


@dataclass(frozen=True, repr=False)
class Answers(Sequence[T], Generic[T]):
    """Rows, the first of them first; `notes` are remarks, one line each."""

    rows: Sequence[T]
    notes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Answers[T]: ...
    def __getitem__(self, place: int | slice) -> T | Answers[T]:
        return Answers(self.rows[place], self.notes) if isinstance(place, slice) else self.rows[place]

    def to_dicts(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.rows]

    def to_json(self, indent: int | None = 1) -> str:
        return json_shown(json.dumps(self.to_dicts(), indent=indent, ensure_ascii=False, allow_nan=False))

    def _columns(self) -> list[str]:
        return [str(column.name) for column in fields(self.rows[0])] if self.rows else []

    def to_tsv(self, *, exact: bool = False) -> str:
        """A header and a line for each row; a tab or line break inside a name is written \\t or \\n.

        A name that a spreadsheet would take for a formula gets an apostrophe in front, unless `exact`.
        """
        columns = self._columns()
        lines = [columns, *([_cell(getattr(row, column), exact) for column in columns] for row in self.rows)]
        return "".join("\t".join(line) + "\n" for line in lines if line)

    def __repr__(self) -> str:
        if not self.rows:
            return "\n".join(["nothing found", *map(shown, self.notes)])
        columns = [column for column in self._columns() if column not in ("head", "tail", "relation")]
        cells = [columns, *([_cell(getattr(row, column)) for column in columns] for row in self.rows[:SHOWN])]
        return "\n".join([*drawing.text_table(cells), *self._more(), *map(shown, self.notes)])

    def _repr_html_(self) -> str:
        columns = [column for column in self._columns() if column not in ("head", "tail", "relation")]
        titles = {column.removesuffix("_name").replace("_", " "): "" for column in columns}
        rows = [[_html_cell(row, column) for column in columns] for row in self.rows[:SHOWN]]
        table = drawing.table(titles, rows) if rows else drawing.paragraphs(["nothing found"])
        return drawing.block(table, drawing.paragraphs([*self._more(), *self.notes], "fl-soft"))

    def _more(self) -> list[str]:
        """How many rows are not shown."""
        return [f"… and {len(self.rows) - SHOWN:,} more"] if len(self.rows) > SHOWN else []


def _html_cell(row: CheckedTriple | RelationFit, column: str) -> Cell:
    value = getattr(row, column)
    if isinstance(value, float):
        return Cell(drawing.bar(value, f"{value:.2f}"))
    if column in ("head_name", "tail_name"):
        return Cell(drawing.named(value, getattr(row, column.removesuffix("_name"))))
    return Cell(drawing.escape(_cell(value)))


def _cell(value: object, exact: bool = True) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else table_cell(value, exact=exact or not isinstance(value, str))


def odd_triples(graph: Graph, checked: Sequence[OddTriples], top: int | None = None) -> Answers[CheckedTriple]:
    """The oddest triples of all that were checked."""
    sizes = [len(each.heads) for each in checked]
    of = np.repeat(np.arange(len(checked)), sizes)
    within = np.concatenate([np.arange(size) for size in sizes]) if sizes else of
    oddness = np.concatenate([each.oddness for each in checked]) if sizes else np.zeros(0)
    rows = []
    for place in np.argsort(-oddness, kind="stable")[:top].tolist():
        odd, i = checked[of[place]], int(within[place])
        head, tail = int(odd.heads[i]), int(odd.tails[i])
        ends = graph.entities[head], graph.name(head), graph.relations[odd.relation]
        names = graph.relation_name(odd.relation), graph.entities[tail], graph.name(tail)
        rows.append(CheckedTriple(float(odd.oddness[i]), *ends, *names, WORDS[odd.reasons[i]]))
    notes = [] if checked else ["no relation has three triples or more, and fewer cannot be compared"]
    return Answers(tuple(rows), tuple(notes))


def relation_fits(graph: Graph, fits: Sequence[Fit], described: Sequence[RelationFit] = ()) -> list[RelationFit]:
    """Relations of the graph and described ones, the best first."""
    rows = [RelationFit(graph.relations[r], graph.relation_name(r), fit, known, "graph") for r, fit, known in fits]
    return sorted([*rows, *described], key=lambda row: -row.fit)
