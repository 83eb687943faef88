"""Predictions as users see them: rows with names that convert to text, JSON, TSV, data frames and HTML."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

from fewlink.core.errors import FewlinkError, MissingExtra, json_shown, shown, table_cell
from fewlink.linker import drawing
from fewlink.linker.answer_sets import AnswerSet
from fewlink.linker.drawing import Cell
from fewlink.linker.explanation import Explanation

if TYPE_CHECKING:
    import pandas

COLUMNS = ("head", "head_name", "rank", "tail", "tail_name", "score", "probability", "known", "in_set", "reasons")
OPTIONAL = ("in_set", "reasons")  # columns that TSV leaves out if no row has them
SHOWN = 20  # rows in a repr


@dataclass(frozen=True)
class TrustNote:
    """How far the answers to a question can be trusted, as a `sentence`.

    `shown` says whether they have probabilities; `low` marks answers whose references are hardly found again. `found`
    of `tested` references ranked in the first ten when they were held out, or first of at most ten candidates.
    """

    low: bool
    shown: bool
    sentence: str
    found: int = 0
    tested: int = 0


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

    def _repr_html_(self) -> str:
        return Predictions([self])._repr_html_()


@dataclass(frozen=True, repr=False)
class Predictions(Sequence[Prediction]):
    """Ranked tails: an immutable sequence of `Prediction`.

    notes    remarks on the query, one line each
    trust    how far to trust the probabilities, or why there are none; None if the model is not calibrated
    inverse  whether the rows are heads ranked for tails
    sets     the answer set of each query entity
    """

    rows: Sequence[Prediction]
    notes: Sequence[str] = ()
    trust: TrustNote | None = None
    inverse: bool = False
    sets: Sequence[AnswerSet] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(self.rows))
        object.__setattr__(self, "notes", tuple(self.notes))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Prediction: ...
    @overload
    def __getitem__(self, place: slice) -> Predictions: ...
    def __getitem__(self, place: int | slice) -> Prediction | Predictions:
        if isinstance(place, slice):
            return replace(self, rows=self.rows[place])
        return self.rows[place]

    def for_head(self, head: str) -> Predictions:
        """The rows of one head, by its id or its readable name."""
        rows = [row for row in self.rows if row.head == head] or [row for row in self.rows if row.head_name == head]
        if not rows:
            raise FewlinkError(f"no prediction for the head '{head}': it is not in the query, or has no candidate left")
        return replace(self, rows=rows)

    def for_tail(self, tail: str) -> Predictions:
        """The rows of one tail, by its id or its readable name."""
        rows = [row for row in self.rows if row.tail == tail] or [row for row in self.rows if row.tail_name == tail]
        if not rows:
            raise FewlinkError(f"no prediction for the tail '{tail}': it is not in the query, or has no candidate left")
        return replace(self, rows=rows)

    def with_sets(self, sets: Sequence[AnswerSet]) -> Predictions:
        """Add answer sets, and mark the rows in them."""
        sizes = {each.asked: each.size for each in sets}
        rows = []
        for row in self.rows:
            size = sizes.get(row.tail if self.inverse else row.head)
            rows.append(row if size is None else replace(row, in_set=not row.known and row.rank <= size))
        return replace(self, rows=rows, sets=tuple(sets))

    def to_dicts(self) -> list[dict[str, Any]]:
        return [row.to_dict() for row in self.rows]

    def to_json(self, indent: int | None = 1) -> str:
        """A list of objects, one for each row."""
        return json_shown(json.dumps(self.to_dicts(), indent=indent, ensure_ascii=False, allow_nan=False))

    def to_tsv(self, *, exact: bool = False) -> str:
        """A header and a line for each row; a tab or line break inside a name is written \\t or \\n.

        A name that a spreadsheet would read as a formula gets an apostrophe in front, unless `exact`. Reasons, if
        there are any, are sentences in one column.
        """
        used = {column for column in OPTIONAL if any(getattr(row, column) is not None for row in self.rows)}
        columns = [column for column in COLUMNS if column not in OPTIONAL or column in used]
        lines = [columns, *([_cell(row, column, exact) for column in columns] for row in self.rows)]
        return "".join("\t".join(line) + "\n" for line in lines)

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with a column for each field; reasons as dicts."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("a data frame of predictions", "pandas") from None
        rows = [{**row.to_dict(), "rank": row.rank} for row in self.rows]
        return pandas.DataFrame(rows, columns=list(COLUMNS)).astype({"probability": float})

    def __repr__(self) -> str:
        if not self.rows:
            return "no predictions" + "".join(f"\n{shown(note)}" for note in self.notes)
        columns, rows = self._shown()
        return "\n".join([*self._header(), *drawing.text_table([columns, *rows]), *self._more()])

    def _repr_html_(self) -> str:
        rows = self.rows[:SHOWN]
        calibrated = any(row.probability is not None for row in rows)
        known = any(row.known for row in rows)
        asked, found = ("tail", "head") if self.inverse else ("head", "tail")
        columns = {asked: "", "rank": "fl-number", found: ""} | ({"probability": ""} if calibrated else {})
        columns |= {"score": "fl-number"} | ({"known": ""} if known else {})
        lines: list[list[Cell]] = []
        for _, same in itertools.groupby(rows, lambda row: row.tail if self.inverse else row.head):
            group = list(same)
            of_head = [line for row in group for line in self._lines(row, calibrated, known, len(rows) == 1)]
            ends = (group[0].tail_name, group[0].tail) if self.inverse else (group[0].head_name, group[0].head)
            of_head[0].insert(0, Cell(drawing.named(*ends), rows=len(of_head), heading=True))
            lines += of_head
        legend = f"A bar beside the rank marks the first {found}s counted above."
        marked = [legend] if self.sets and any(row.in_set for row in rows) else []
        above, below = (drawing.paragraphs(texts, "fl-soft") for texts in (self._header(), [*marked, *self._more()]))
        shown = drawing.table(columns, lines) if rows else drawing.paragraphs(["no predictions"])
        return drawing.block(above, shown, below)

    def _lines(self, row: Prediction, calibrated: bool, known: bool, opened: bool) -> Iterator[list[Cell]]:
        """Yield the cells of a prediction without its query entity, then a line with its reasons."""
        found = (row.head_name, row.head) if self.inverse else (row.tail_name, row.tail)
        cells = [Cell(str(plain_rank(row.rank)), "fl-number fl-set" if row.in_set and self.sets else "fl-number")]
        cells.append(Cell(drawing.named(*found)))
        if calibrated:
            p = row.probability
            cells.append(Cell("" if p is None else drawing.bar(p, drawing.percent(p))))
        cells += [Cell(f"{row.score:.2f}", "fl-number fl-soft"), *([Cell("yes" if row.known else "")] if known else [])]
        yield cells
        if row.reasons is not None:
            summary = f"<summary>{drawing.escape(row.reasons.sentence())}</summary>"
            details = f"<details{' open' * opened}>{summary}{row.reasons.details()}</details>"
            yield [Cell("", "fl-set" if row.in_set and self.sets else ""), Cell(details, columns=len(cells) - 1)]

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """Column titles and cells of the first rows."""
        calibrated = any(row.probability is not None for row in self.rows)
        asked, found = ("tail", "head") if self.inverse else ("head", "tail")
        columns = [asked, "rank", found, "score", *(["probability"] if calibrated else []), "known"]
        rows = []
        for row in self.rows[:SHOWN]:
            probability = "" if row.probability is None else f"{row.probability:.3f}"
            names = (row.tail_name, row.head_name) if self.inverse else (row.head_name, row.tail_name)
            cells = [names[0], str(plain_rank(row.rank)), names[1], f"{row.score:.4g}"]
            cells += [*([probability] if calibrated else []), "yes" if row.known else ""]
            rows.append([table_cell(cell, exact=True) for cell in cells])
        return columns, rows

    def _header(self) -> list[str]:
        return [*([shown(self.trust.sentence)] if self.trust else []), *self.set_sentences()]

    def set_sentences(self, most: int = 3) -> list[str]:
        """The sentences of the first answer sets, with names if there are several."""
        name = len(self.sets) > 1
        lines = [f"{each.asked_name}: {each.sentence}" if name else each.sentence for each in self.sets[:most]]
        return [
            *map(shown, lines),
            *([f"… and {len(self.sets) - most:,} more like these"] if len(self.sets) > most else []),
        ]

    def _more(self) -> list[str]:
        hidden = len(self.rows) - SHOWN
        return [*([f"… and {hidden:,} more"] if hidden > 0 else []), *map(shown, self.notes)]


def plain_rank(rank: float) -> int | float:
    """A rank without needless decimals: 3, or 2.5 if it is shared."""
    return int(rank) if rank == int(rank) else rank


def _cell(row: Prediction, column: str, exact: bool) -> str:
    value = getattr(row, column)
    if isinstance(value, Explanation):
        value = " ".join(value.sentences())
    if column == "rank":
        value = plain_rank(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return table_cell(value, exact=exact or not isinstance(value, str))
