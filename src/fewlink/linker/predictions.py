"""Answers as users see them: rows with names that convert to text, JSON, TSV, HTML and data frames."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from fewlink.core import words
from fewlink.core.errors import MissingExtra, json_shown, shown, table_cell
from fewlink.linker.probability import AnswerSet
from fewlink.linker.reasons import Explanation
from fewlink.linker.trust import TrustNote

if TYPE_CHECKING:
    import pandas
    from _typeshed import DataclassInstance

COLUMNS = ("head", "head_name", "rank", "tail", "tail_name", "score", "probability", "known", "in_set", "reasons")
OPTIONAL = ("in_set", "reasons")  # columns that TSV leaves out if no row has them
SHOWN = 20  # rows in a repr: about a screen
SHOWN_SETS = 3  # answer sets above them

T = TypeVar("T", bound="DataclassInstance")


@dataclass(frozen=True)
class Prediction:
    """A ranked tail for a head, or a ranked head for a tail, by id and readable name.

    rank              among the head's candidates that are not known answers, as the evaluator computes it: tails with
                      equal scores share the mean of their ranks, so it may end in .5
    probability       None if the model is not calibrated, its calibration has a large error, or trust is low
    known             whether the pair is a reference or a pair of the named relation
    reasons           the explanation, if the query wanted one
    in_set            whether the row is in the answer set of its query entity; None if there is no answer set
    base_probability  the model's probability before a project adjusted it, even if no percentage is shown; decisions
                      are stored with it; None without evidence or rivals
    """

    head: str
    head_name: str
    rank: float
    tail: str
    tail_name: str
    score: float
    probability: float | None
    known: bool
    reasons: Explanation | None = None
    in_set: bool | None = None
    base_probability: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain texts and numbers, for JSON; a whole rank as an integer."""
        values = {column: getattr(self, column) for column in (*COLUMNS, "base_probability")}
        return {**values, "rank": plain_rank(self.rank), "reasons": self.reasons.to_dict() if self.reasons else None}


@dataclass(frozen=True, repr=False)
class Answers(Sequence[T], Generic[T]):
    """An immutable sequence of rows, best first; `notes` are remarks, one line each."""

    rows: Sequence[T]
    notes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Answers[T]: ...
    def __getitem__(self, place: int | slice) -> T | Answers[T]:
        return replace(self, rows=self.rows[place]) if isinstance(place, slice) else self.rows[place]

    def to_dicts(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.rows]

    def to_json(self, indent: int | None = 1) -> str:
        """A list of objects, one for each row."""
        return json_shown(json.dumps(self.to_dicts(), indent=indent, ensure_ascii=False, allow_nan=False))

    def to_tsv(self) -> str:
        """A header and a line for each row; a tab or line break inside a name is written \\t or \\n.

        A name that a spreadsheet would read as a formula gets an apostrophe in front.
        """
        columns = self._columns()
        lines = [columns, *([self._cell(row, column, False) for column in columns] for row in self.rows)]
        return "".join("\t".join(line) + "\n" for line in lines if line)

    def _columns(self) -> list[str]:
        return [column.name for column in fields(self.rows[0])] if self.rows else []

    def _cell(self, row: T, column: str, exact: bool = True) -> str:
        value = getattr(row, column)
        return f"{value:.3f}" if isinstance(value, float) else cell(value, exact)

    def _table(self) -> list[list[str]]:
        """The titles and cells of the first rows, for people to read."""
        columns = [column for column in self._columns() if column not in ("head", "tail", "relation")]
        return [columns, *([self._cell(row, column) for column in columns] for row in self.rows[:SHOWN])]

    def _above(self) -> list[str]:
        """The lines above the table."""
        return []

    def _below(self) -> list[str]:
        """The lines below the table."""
        hidden = [f"… and {len(self.rows) - SHOWN:,} more"] if len(self.rows) > SHOWN else []
        return [*hidden, *map(shown, self.notes)]

    def __repr__(self) -> str:
        if not self.rows:
            return "\n".join([*self._above(), "nothing found", *self._below()])
        table = self._table()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        return "\n".join([*self._above(), *(line.rstrip() for line in lines), *self._below()])

    def _repr_html_(self) -> str:
        if not self.rows:
            return html_lines([*self._above(), "nothing found", *self._below()])
        titles, *rows = self._table()
        return html_lines(self._above()) + html_table(titles, rows) + html_lines(self._below())


@dataclass(frozen=True, repr=False)
class Predictions(Answers[Prediction]):
    """Ranked tails: an immutable sequence of `Prediction`.

    notes    remarks on the query, one line each
    trust    how far to trust the probabilities, or why there are none; None if the model is not calibrated
    inverse  whether the rows are heads ranked for tails
    sets     the answer set of each query entity
    """

    trust: TrustNote | None = None
    inverse: bool = False
    sets: Sequence[AnswerSet] = ()

    @overload
    def __getitem__(self, place: int) -> Prediction: ...
    @overload
    def __getitem__(self, place: slice) -> Predictions: ...
    def __getitem__(self, place: int | slice) -> Prediction | Predictions:
        return replace(self, rows=self.rows[place]) if isinstance(place, slice) else self.rows[place]

    def set_sentences(self) -> list[str]:
        """The sentences of the first answer sets, with names if there are several."""
        name = len(self.sets) > 1
        lines = [f"{each.asked_name}: {each.sentence}" if name else each.sentence for each in self.sets[:SHOWN_SETS]]
        more = len(self.sets) - SHOWN_SETS
        return [*map(shown, lines), *([f"… and {more:,} more like these"] if more > 0 else [])]

    def to_dicts(self) -> list[dict[str, Any]]:
        return [row.to_dict() for row in self.rows]

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with a column for each field; reasons as dicts."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("a data frame of predictions", "pandas") from None
        rows = [{**row.to_dict(), "rank": row.rank} for row in self.rows]
        return pandas.DataFrame(rows, columns=list(COLUMNS)).astype({"probability": float})

    def _columns(self) -> list[str]:
        used = {column for column in OPTIONAL if any(getattr(row, column) is not None for row in self.rows)}
        return [column for column in COLUMNS if column not in OPTIONAL or column in used]

    def _cell(self, row: Prediction, column: str, exact: bool = True) -> str:
        value = getattr(row, column)
        if column == "rank":
            return str(plain_rank(value))
        if isinstance(value, Explanation):
            value = "; ".join(value.lines())
        return cell(value, exact)

    def _table(self) -> list[list[str]]:
        asked, found = ("tail", "head") if self.inverse else ("head", "tail")
        calibrated = any(row.probability is not None for row in self.rows)
        table = [[asked, "rank", found, "score", *(["probability"] if calibrated else []), "known"]]
        for row in self.rows[:SHOWN]:
            names = (row.tail_name, row.head_name) if self.inverse else (row.head_name, row.tail_name)
            cells = [names[0], str(plain_rank(row.rank)), names[1], f"{row.score:.4g}"]
            if calibrated:
                cells.append("" if row.probability is None else f"{row.probability:.3f}")
            cells.append("yes" if row.known else "")
            table.append([table_cell(cell, exact=True) for cell in cells])
        return table

    def _above(self) -> list[str]:
        return [*([shown(self.trust.sentence)] if self.trust else []), *self.set_sentences()]

    def _repr_html_(self) -> str:
        reasons = [
            html_lines([shown(f"{row.head_name} → {row.tail_name}")]) + html_lines(row.reasons.lines())
            for row in self.rows[:SHOWN]
            if row.reasons
        ]
        return super()._repr_html_() + "".join(reasons)


def plain_rank(rank: float) -> int | float:
    """A rank without needless decimals: 3, or 2.5 if it is shared."""
    return int(rank) if rank == int(rank) else rank


def percent(probability: float) -> str:
    """A probability as a whole percentage, but never 0 % or 100 %."""
    if probability < 0.01:
        return "< 1 %"
    if probability > 0.99:
        return "> 99 %"
    return words.percent(probability)


def cell(value: object, exact: bool) -> str:
    """A value for a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return table_cell(value, exact=exact or not isinstance(value, str))


def html_lines(lines: Iterable[str]) -> str:
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def html_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(title)}</th>' for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
