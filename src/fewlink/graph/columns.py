"""Which columns of a table are head, relation and tail: by their names, by their places, or as the user says."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fewlink.core.errors import FewlinkError, InputError

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
MAX_LISTED_COLUMNS = 12


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
    def places(self) -> tuple[int, int, int] | None:
        """The places of head, relation and tail; None if one of them is not a column."""
        if isinstance(self.relation, int) and self.tail is not None:
            return self.head, self.relation, self.tail
        return None

    @property
    def used(self) -> list[int]:
        """The places that are read."""
        if self.tail is None:
            return list(range(self.width))
        return [place for place in (self.head, self.relation, self.tail) if isinstance(place, int)]

    @property
    def shortest(self) -> int:
        """The number of columns that a row must have."""
        return 1 + max(self.used)

    def triples(self, row: Sequence[bytes]) -> Iterator[list[bytes]]:
        """The triples of a row; empty cells beside the head are left out if each column is a relation."""
        if self.tail is not None:
            relation = self.relation.encode() if isinstance(self.relation, str) else row[self.relation or 0]
            yield [row[self.head], relation, row[self.tail]]
            return
        for place, cell in enumerate(row[: self.width]):
            if place != self.head and cell:
                yield [row[self.head], self.names[place].encode(), cell]

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
    for place in layout.places or ():
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
    """Of several columns of one end, the only one whose name belongs to a name of the other end: subject to object."""
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
        head = names[0] if names[0].strip() and "," not in names[0] and not names[0].isdecimal() else "1"
        problem += f"; if each other column is a relation of the first: {_option(f'head={head},tail={REST}')}"
    return InputError(path, problem)


def listed(names: Sequence[str] | int) -> str:
    """The columns with their numbers, or just their number."""
    if isinstance(names, int):
        return f"1 to {names}"
    some = ", ".join(f"{number} {name!r}" for number, name in enumerate(names[:MAX_LISTED_COLUMNS], 1))
    return some + (", …" if len(names) > MAX_LISTED_COLUMNS else "")
