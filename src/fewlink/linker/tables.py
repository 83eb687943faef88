"""Rows of answers as a sequence that converts to text, JSON, TSV and HTML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from fewlink.core.errors import json_shown, shown, table_cell
from fewlink.linker import drawing
from fewlink.linker.drawing import Cell

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SHOWN = 20  # rows in a repr


T = TypeVar("T", bound="DataclassInstance")


@dataclass(frozen=True, repr=False)
class Answers(Sequence[T], Generic[T]):
    """Rows of a data class, best first; `notes` are remarks, one line each."""

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

        A name that a spreadsheet would read as a formula gets an apostrophe in front, unless `exact`.
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
        """The line that counts the rows that are not shown."""
        return [f"… and {len(self.rows) - SHOWN:,} more"] if len(self.rows) > SHOWN else []


def _html_cell(row: DataclassInstance, column: str) -> Cell:
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
