"""Which columns of a table are head, relation and tail: by their names, by their places, or as the user says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fewlink.core.errors import FewlinkError, InputError
from fewlink.graph.literals import is_literal

ROLES = ("head", "relation", "tail")
BASE_WORDS = {
    "head": "head subject source from start origin subj src entity1 node1 arg1 h s e1",
    "relation": "relation relationship predicate property edge link rel pred prop verb interaction metaedge r p",
    "tail": "tail object target to end destination obj dst entity2 node2 arg2 t o e2 tgt dest",
}  # a head and a tail at the same place belong together
ENDINGS = ("id", "name", "label", "entity", "node", "type", "uri", "iri")
VAGUE_WORDS = {"relation": "type label kind", "tail": "value"}
OTHER_WORDS = {"headtype", "subjecttype", "sourcetype", "starttype", "tailtype", "objecttype", "targettype", "endtype"}


def _tiers(role: str) -> tuple[set[str], set[str], set[str]]:
    """The names of columns for a role: the clearest ones, those with an ending such as `id`, and vague ones."""
    words = set(BASE_WORDS[role].split())
    ended = {word + ending for word in words if len(word) > 1 for ending in ENDINGS} - OTHER_WORDS
    return words, ended, set(VAGUE_WORDS.get(role, "").split())


TIERS = {role: _tiers(role) for role in ROLES}
REST = "rest"  # as the tail: all other columns, whose names are the relations
HOW = "head=1,relation=2,tail=3"
MAX_LISTED_COLUMNS = 12  # in an error
MIN_ROWS = 3  # below a first line, which show whether it is one of them
IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+|urn:\S+")


def normal(name: str) -> str:
    """The name of a column in lower case, without white space and punctuation, and without Neo4j's `(Kind)`."""
    return re.sub(r"\([^)]*\)$|[\W_]+", "", name.strip().lower())


def columns_by_role(names: Sequence[str], vague: bool = True) -> list[list[int]]:
    """For each role, the columns with the clearest names for it; without `vague`, those like `type` do not count."""
    plain = [normal(name) for name in names]
    found = []
    for role in ROLES:
        by_tier = ([i for i, name in enumerate(plain) if name in tier] for tier in TIERS[role][: 3 if vague else 2])
        found.append(next(filter(None, by_tier), []))
    return found


def usual_columns(names: Sequence[str]) -> list[str | None]:
    """The first column with a usual name for each role; None if there is none."""
    return [names[columns[0]] if columns else None for columns in columns_by_role(names)]


@dataclass(frozen=True)
class Columns:
    """The user's choice of columns: for each role a number from 1 or a name in the header.

    A relation that begins with `=` is the relation of all triples; the tail `rest` means that every other column is a
    relation, and its cells are the tails.
    """

    head: str
    relation: str
    tail: str

    @classmethod
    def of(cls, given: str | Mapping[str, str | int] | None) -> Columns | None:
        """Read `head=2,relation=1,tail=3`, or a dict of the same."""
        if given is None:
            return None
        pairs: Iterable[Sequence[str | int]] = given.items() if isinstance(given, Mapping) else parts_of(given)
        chosen = {str(role).strip(): str(column).strip() for role, column in pairs}
        if chosen.get("tail") == REST:
            chosen.setdefault("relation", REST)
        for role in ROLES:
            if not chosen.get(role):
                raise FewlinkError(f"columns '{given}' names no {role}: write {HOW}, numbers from 1 or header names")
        if other := next((role for role in chosen if role not in ROLES), None):
            raise FewlinkError(f"columns '{given}' names a column for '{other}': write {HOW}")
        return cls(chosen["head"], chosen["relation"], chosen["tail"])

    @property
    def constant(self) -> str | None:
        """The relation of all triples, if it is not a column."""
        return self.relation[1:] or None if self.relation.startswith("=") else None

    @property
    def chosen(self) -> list[str]:
        """The columns that are named, by number or name."""
        each = [self.head, self.tail] if self.constant or self.tail == REST else [self.head, self.relation, self.tail]
        return [column for column in each if column != REST]

    def needs_header(self) -> bool:
        """Whether the columns are given by names of a header."""
        return self.tail == REST or not all(column.isdecimal() for column in self.chosen)

    def layout(self, path: Path, width: int, names: Sequence[str]) -> Layout:
        """The layout of rows of this width; `names` is the header, or empty. Raise if a column does not exist."""

        def place(column: str) -> int:
            if column.isdecimal():
                if not 1 <= int(column) <= width:
                    raise InputError(path, f"has no column {column}: its columns are {listed(names or width)}")
                return int(column) - 1
            for same in (str, normal):
                if found := [i for i, name in enumerate(names) if same(name) == same(column)]:
                    return found[0]
            raise InputError(path, f"has no column '{column}': its columns are {listed(names or width)}")

        if self.tail == REST:
            if not names:
                raise InputError(path, "has no header: tail=rest takes the relations from the names of columns")
            return Layout(width, place(self.head), None, None, tuple(names))
        relation = self.constant if self.constant is not None else place(self.relation)
        return Layout(width, place(self.head), relation, place(self.tail), tuple(names))


def parts_of(text: str) -> Iterator[tuple[str, str]]:
    """The parts `role=column` of an option; a comma before anything else belongs to a name."""
    for part in re.split(rf",\s*(?=(?:{'|'.join(ROLES)})\s*=)", text.strip()):
        role, equals, column = part.partition("=")
        if not equals:
            raise FewlinkError(f"columns '{text}' is not of the form {HOW}")
        yield role, column


@dataclass(frozen=True)
class Layout:
    """Where a row has its head, relation and tail: places from 0.

    The relation may be a text, the relation of all triples. Without a relation and tail, each cell beside the head is
    a tail, and the name of its column the relation.
    """

    width: int
    head: int
    relation: int | str | None
    tail: int | None
    names: tuple[str, ...] = ()  # of all columns, if there is a header

    @property
    def used(self) -> list[int]:
        """The places that are read."""
        if self.tail is None:
            return list(range(self.width))
        return [place for place in (self.head, self.relation, self.tail) if isinstance(place, int)]

    def triples(self, cells: Sequence[str]) -> list[str]:
        """The triples of a row as head, relation, tail, head, …"""
        head = cells[self.head]
        if self.tail is None:
            others = [place for place in range(self.width) if place != self.head and cells[place]]
            return [text for place in others for text in (head, self.names[place], cells[place])]
        relation = self.relation if isinstance(self.relation, str) else cells[self.relation or 0]
        return [head, relation, cells[self.tail]]

    def column(self, place: int) -> str:
        """The name of a column, or its number from 1."""
        return self.names[place] if place < len(self.names) and self.names[place] else f"column {place + 1}"

    def described(self) -> dict[str, str]:
        """The column of each role, in words."""
        if self.tail is None:
            return {"head": self.column(self.head), "relation": "names of columns", "tail": "all other columns"}
        relation = f"always {self.relation}" if isinstance(self.relation, str) else self.column(self.relation or 0)
        return {"head": self.column(self.head), "relation": relation, "tail": self.column(self.tail)}

    def ignored(self, blank: Collection[int] = ()) -> list[str]:
        """The columns that are not read; `blank` ones do not count."""
        return [self.column(place) for place in range(self.width) if place not in {*self.used, *blank}]


PLAIN = Layout(3, 0, 1, 2)


def named_layout(path: Path, names: Sequence[str], columns: Columns | None) -> Layout:
    """The layout of a table whose columns have names: as chosen, or by the names, or else the only three columns."""
    width = len(names)
    if columns is not None:
        layout = columns.layout(path, width, names)
    elif layout_by_names := complete_header(path, names):
        layout = layout_by_names
    elif width == 3:
        layout = Layout(3, 0, 1, 2, tuple(names))
    else:
        raise no_roles(path, names)
    for place in layout.used if layout.tail is not None else ():
        if names.count(names[place]) > 1:
            raise InputError(path, f"has two columns '{names[place]}': choose by number, such as --columns {HOW}")
    return layout


def complete_header(path: Path, names: Sequence[str]) -> Layout | None:
    """The layout by names that tell head, relation and tail, or None. Raise if two columns fit a role."""
    found = columns_by_role(names)
    if not all(found):
        return None
    found = [_paired(names, found[0], found[2]), found[1], _paired(names, found[2], found[0])]
    places = [columns[0] for columns in found]
    for role, columns in zip(ROLES, found, strict=True):
        if len(columns) > 1:
            both = " and ".join(f"'{names[column]}'" for column in columns[:2])
            raise InputError(path, f"has two columns for the {role}, {both}: choose with {option(names, places)}")
    return Layout(len(names), places[0], places[1], places[2], tuple(names))


def _paired(names: Sequence[str], columns: list[int], others: list[int]) -> list[int]:
    """The only one of several columns whose name is the partner of the other end's, as subject is of object."""
    words = {word: place for role in ("head", "tail") for place, word in enumerate(BASE_WORDS[role].split())}
    other = {words.get(normal(names[column])) for column in others} - {None}
    paired = [column for column in columns if words.get(normal(names[column])) in other]
    return paired if len(paired) == 1 else columns


def option(names: Sequence[str], places: Sequence[int | None] = (0, 1, 2), by_number: bool = False) -> str:
    """The option that chooses these columns; a role without a place gets one of the other columns."""
    others = iter([place for place in range(len(names)) if place not in places])
    chosen = [next(others, None) if place is None else place for place in places]
    texts = ["" if place is None else names[place] for place in chosen]
    if by_number or any("," in text or text.isdecimal() or text != text.strip() for text in texts):
        texts = ["" if place is None else str(place + 1) for place in chosen]
    return _option(",".join(f"{role}={text or '=NAME'}" for role, text in zip(ROLES, texts, strict=True)))


def _option(text: str) -> str:
    return f"--columns {text}" if re.fullmatch(r"[\w=,.:+-]+", text) else f"--columns '{text}'"


def no_roles(path: Path, names: Sequence[str], header: bool = True) -> InputError:
    """The error for a table whose columns do not tell head, relation and tail; `names` are its first row."""
    if len(names) < 2:
        what = f"only the column {listed(names)}" if names else "no columns"
        return InputError(path, f"has {what}: give a head, a relation and a tail")
    found = columns_by_role(names) if header else [[], [], []]
    places = [each[0] if each else None for each in found]
    if len(names) == 2:
        places = [places[0] or 0, None, 1 - (places[0] or 0)]
        remedy = option(names, places, not header)
        return InputError(path, f"has two columns and no relation: if all rows have the same, name it with {remedy}")
    problem = f"has the columns {listed(names)}: choose three, such as {option(names, places, not header)}"
    if header and not found[1]:
        problem += f"; if each other column is a relation of the first: {_rest_option(names)}"
    return InputError(path, problem)


def _rest_option(names: Sequence[str]) -> str:
    """The option for a table whose columns are relations of the first."""
    head = names[0] if names[0].strip() and "," not in names[0] and not names[0].isdecimal() else "1"
    return _option(f"head={head},tail={REST}")


def listed(names: Sequence[str] | int) -> str:
    """The columns with their numbers, or just their number."""
    if isinstance(names, int):
        return f"1 to {names}"
    some = ", ".join(f"{number} {name!r}" for number, name in enumerate(names[:MAX_LISTED_COLUMNS], 1))
    return some + (", …" if len(names) > MAX_LISTED_COLUMNS else "")


def layout_of(path: Path, rows: list[list[str]], width: int, chosen: Columns | None) -> tuple[Layout, bool]:
    """Where the rows of a text have head, relation and tail, and whether the first row is a header."""
    names = [name.strip().lstrip("#").strip() for name in rows[0]]
    below = [row for row in rows[1:] if len(row) == width]
    if below and len(names) == width - 1 and len(names) > 2:  # R names its rows, and not their column
        names = ["", *names]
    if chosen is not None:
        words = sum(len(name) > 1 and any(columns_by_role([name])) for name in names)
        header = chosen.needs_header() or words > (1 if width > 3 else 2)
        return chosen.layout(path, max(width, len(names)) if header else width, names if header else ()), header
    if len(names) == width and (layout := _by_header(path, names, below)):
        return layout, True
    if width < 3:
        if width == 2 and all(len(row) == 2 for row in rows):
            header = bool(columns_by_role(names)[0] and columns_by_role(names)[2])
            raise no_roles(path, names, header)
        return PLAIN, False
    return _by_place(path, rows, names, width), False


def _by_header(path: Path, names: list[str], below: list[list[str]]) -> Layout | None:
    """The layout by the first line, or None if that is a row. Raise if it may be either."""
    layout = complete_header(path, names)
    letters = layout is not None and all(len(normal(names[place])) == 1 for place in layout.used)
    if layout and (not letters or layout.used == [0, 1, 2]):
        return layout
    if not layout and len(names) == 3 and _names_variables(names, below):
        return Layout(3, 0, 1, 2, tuple(names))
    found = columns_by_role([name if len(name) > 1 else "" for name in names], vague=False)
    if letters or sum(map(bool, found)) > 1:
        by_name = [columns[0] if columns else None for columns in found]
        places: list[int | None] = list(layout.used) if layout else by_name
        raise (
            doubtful_header(path, names, below[0] if below else [], places)
            if len(names) == 3
            else no_roles(path, names)
        )
    return None


def doubtful_header(
    path: Path, names: Sequence[str], next_row: Sequence[str], places: Sequence[int | None] = (0, 1, 2)
) -> InputError:
    """The error for a first line of three cells that may be a header or a triple, with the options for each."""
    return InputError(
        path,
        f"has a first line that may name the columns ({listed(names)}; the next line: {', '.join(next_row)}): if so, "
        f"give {option(names, places)}, or {_rest_option(names)} if the others are relations of the first; "
        f"if it is a triple, give --columns {HOW}",
        1,
    )


def stands_alone(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of some rows (head, relation, tail) shares no name with others, and most others share some."""
    ends = Counter(end for head, _, tail in rows for end in {head, tail})
    relations = Counter(relation for _, relation, _ in rows)
    alone = [ends[head] == ends[tail] == relations[relation] == 1 for head, relation, tail in rows]
    return len(rows) > MIN_ROWS and alone[0] and 2 * sum(alone[1:]) < len(alone)


def _names_variables(names: list[str], below: list[list[str]]) -> bool:
    """Whether a row of identifiers stands before rows of IRIs, as in results of a query."""
    iris = [IRI.fullmatch(name) is not None for name in (below[0][:2] if below else ["", ""])]
    return all(iris) and all(name.isidentifier() for name in names)


def _by_place(path: Path, rows: list[list[str]], names: list[str], width: int) -> Layout:
    """The layout of rows without a header: the only three columns, or the first three before numbers and dates."""
    rows = [row for row in rows if len(row) == width]
    columns = list(zip(*rows, strict=True))
    if width == 3:
        return PLAIN
    filled = [place for place, column in enumerate(columns) if any(column)]
    from_zero = [str(i) for i in range(len(rows))]
    from_one = [str(i) for i in range(1, len(rows) + 1)]
    numbered = len(rows) > 1 and list(columns[0]) in (from_zero, from_one)
    if numbered and len(filled) > 3:
        filled = filled[1:]
    others_are_literals = all(is_literal(cell) or not cell for place in filled[3:] for cell in columns[place])
    if len(filled) >= 3 and others_are_literals:
        return Layout(width, filled[0], filled[1], filled[2])
    raise no_roles(path, names if len(names) == width else rows[0], _may_be_header(columns))


def _may_be_header(columns: list[tuple[str, ...]]) -> bool:
    """Whether the first cells of columns are different names that do not occur again."""
    return len({first for first, *_ in columns}) == len(columns) and all(
        first and not is_literal(first) and first not in below for first, *below in columns
    )
