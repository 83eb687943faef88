"""Predictions as a table that does not change: to look at, to go through, and to hand on."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from fewlink.base.errors import FewlinkError, MissingExtra
from fewlink.prediction.explanation import Explanation

if TYPE_CHECKING:
    import pandas

COLUMNS = ("head", "head_name", "rank", "tail", "tail_name", "score", "probability", "known", "reasons")
SHOWN = 20  # rows in a repr
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True)
class Prediction:
    """A tail for a head, by id and readable name.

    `rank` is the place among the head's candidates that are not known answers, as the evaluator counts it: tails with
    the same score share the mean of their places, so it may end in .5. `probability` is None where the run has no
    calibration; `known` says that the pair is a reference or a known answer; `reasons` is there where asked for.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain texts and numbers, for JSON; a rank that is whole as a whole number."""
        told = {column: getattr(self, column) for column in COLUMNS}
        return {**told, "rank": plain_rank(self.rank), "reasons": self.reasons.to_dict() if self.reasons else None}


class Predictions(Sequence[Prediction]):
    """Ranked tails: a sequence of `Prediction`. `notes` are remarks on what was asked, one line each."""

    __slots__ = ("_rows", "notes")

    def __init__(self, rows: Sequence[Prediction], notes: Sequence[str] = ()) -> None:
        object.__setattr__(self, "_rows", tuple(rows))
        object.__setattr__(self, "notes", tuple(notes))

    _rows: tuple[Prediction, ...]
    notes: tuple[str, ...]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("predictions do not change: make a list of them first")

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self._rows)

    @overload
    def __getitem__(self, place: int) -> Prediction: ...
    @overload
    def __getitem__(self, place: slice) -> Predictions: ...
    def __getitem__(self, place: int | slice) -> Prediction | Predictions:
        return Predictions(self._rows[place], self.notes) if isinstance(place, slice) else self._rows[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Predictions) and (self._rows, self.notes) == (other._rows, other.notes)

    __hash__ = None  # type: ignore[assignment]

    def for_head(self, head: str) -> Predictions:
        """The rows of one head, by its id or its readable name."""
        rows = [row for row in self._rows if row.head == head] or [row for row in self._rows if row.head_name == head]
        if not rows:
            raise FewlinkError(
                f"no prediction for the head '{head}': it was not asked about, or nothing is left for it"
            )
        return Predictions(rows, self.notes)

    def to_dicts(self) -> list[dict[str, Any]]:
        return [row.to_dict() for row in self._rows]

    def to_json(self, indent: int | None = 1) -> str:
        """A list of objects, one for each row."""
        return json.dumps(self.to_dicts(), indent=indent, ensure_ascii=False, allow_nan=False)

    def to_tsv(self) -> str:
        """A header and a line for each row; a tab or line break inside a name is written \\t or \\n.

        Reasons are their sentences in one column, where there are any.
        """
        columns = [c for c in COLUMNS if c != "reasons" or any(row.reasons for row in self._rows)]
        lines = [columns, *([_cell(row, column) for column in columns] for row in self._rows)]
        return "".join("\t".join(line) + "\n" for line in lines)

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with a column for each field; reasons as dicts."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("a data frame of predictions", "pandas") from None
        rows = [{**row.to_dict(), "rank": row.rank} for row in self._rows]
        return pandas.DataFrame(rows, columns=list(COLUMNS))

    def __repr__(self) -> str:
        if not self._rows:
            return "no predictions" + "".join(f"\n{note}" for note in self.notes)
        columns, rows = self._shown()
        cells = [columns, *rows]
        widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
        return "\n".join([*(line.rstrip() for line in lines), *self._more()])

    def _repr_html_(self) -> str:
        columns, rows = self._shown()
        head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        below = "".join(f"<p>{html.escape(line)}</p>" for line in self._more())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """Column titles and cells of the first rows."""
        calibrated = any(row.probability is not None for row in self._rows)
        columns = ["head", "rank", "tail", "score", *(["probability"] if calibrated else []), "known"]
        rows = []
        for row in self._rows[:SHOWN]:
            chance = "" if row.probability is None else f"{row.probability:.3f}"
            cells = [row.head_name, str(plain_rank(row.rank)), row.tail_name, f"{row.score:.4g}"]
            cells += [*([chance] if calibrated else []), "yes" if row.known else ""]
            rows.append([cell.translate(ESCAPES) for cell in cells])
        return columns, rows

    def _more(self) -> list[str]:
        left = len(self._rows) - SHOWN
        return [*([f"… and {left:,} more"] if left > 0 else []), *self.notes]


def plain_rank(rank: float) -> int | float:
    """A rank as people write it: 3, or 2.5 where it is shared."""
    return int(rank) if rank == int(rank) else rank


def _cell(row: Prediction, column: str) -> str:
    value = row.to_dict()[column] if column != "reasons" else " ".join(row.reasons.sentences() if row.reasons else [])
    if value is None:
        return ""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value).translate(ESCAPES)
