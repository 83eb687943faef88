"""How a table of text is written: its encoding, separator, quotes and header, found from its first lines."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from fewlink.core.errors import InputError
from fewlink.graph.columns import (
    HOW,
    PLAIN,
    Layout,
    columns_by_role,
    complete_header,
    listed,
    no_roles,
    normal,
    option,
)
from fewlink.graph.literals import is_literal
from fewlink.graph.source import Source
from fewlink.graph.vocabulary import is_text

SEPARATORS = {b"\t": "tab", b",": "comma", b";": "semicolon", b"|": "bar"}
WHITE_SPACE = b" "
MAX_SAMPLED_LINES = 200
MAX_SPANNED_LINES = 20  # by a quoted row
MIN_ROWS = 3  # that show what a column contains
IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+|urn:\S+")
RULE = re.compile(rb"[\s|:+=-]*-{2}[\s|:+=-]*")  # the line below the header of a Markdown table
EXCEL_SEPARATOR = re.compile(rb'"?sep=(.)"?\s*', re.IGNORECASE)
OTHER_FILES = {
    b"PK\x03\x04": "is an Excel workbook or a zip archive: save the sheet as CSV, or unpack the archive",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook: save the sheet as CSV",
    b"\x1f\x8b": "is compressed: give it a name that ends in .gz",
    b"\xfd7zXZ": "is compressed: give it a name that ends in .xz",
    b"BZh91AY&SY": "is compressed: give it a name that ends in .bz2",
    b"(\xb5/\xfd": "is compressed: give it a name that ends in .zst",
    b"%PDF": "is a PDF: give a table of triples",
    b"PAR1": "is a Parquet file: give it a name that ends in .parquet",
    b"SQLite format 3\0": "is an SQLite database: export a table as CSV",
}
UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@dataclass(frozen=True)
class Dialect:
    """How rows are written.

    separator  the byte between fields; a space stands for any white space
    quoted     whether quotes around fields are removed
    padded     whether white space around fields is removed
    begin      the number of lines before the first row
    layout     where a row has its head, relation and tail
    """

    separator: bytes
    quoted: bool
    padded: bool
    begin: int
    layout: Layout

    @property
    def is_plain(self) -> bool:
        """Whether each line is its fields with separators between them, and each of the triple's is a column."""
        return not self.padded and self.separator != WHITE_SPACE and self.layout.places is not None

    def split(self, line: bytes) -> list[bytes]:
        """The fields of a line without quotes."""
        fields = line.split() if self.separator == WHITE_SPACE else line.split(self.separator)
        return [field.strip() for field in fields] if self.padded else fields


def check_text(source: Source, begin: bytes) -> None:
    """Raise if a file begins as other files than text do."""
    for magic, problem in OTHER_FILES.items():
        if begin.startswith(magic):
            raise InputError(source.path, problem)
    if begin.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        raise InputError(source.path, "is a web page: download the file that it shows")


def utf_16_of(begin: bytes) -> str | None:
    """The encoding of a file that begins as UTF-16 does, with a mark or with a zero in every other byte."""
    if begin[:2] in UTF_16:
        return UTF_16[begin[:2]]
    whole = len(begin) // 2
    for encoding, offset in (("utf-16-le", 1), ("utf-16-be", 0)):
        zeros = begin[offset : 2 * whole : 2]
        others = begin[1 - offset : 2 * whole : 2]
        if whole >= 4 and zeros.count(0) > 0.8 * whole and not others.count(0):
            return encoding
    return None


class Utf8OfUtf16(io.RawIOBase):
    """A file in UTF-16, as UTF-8."""

    def __init__(self, source: Source, file: IO[bytes], encoding: str) -> None:
        self.source = source
        self.file = file
        self.decoder = codecs.getincrementaldecoder(encoding)()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        content = ""
        while not content:
            raw = self.file.read(size)
            try:
                content = self.decoder.decode(raw, not raw)
            except UnicodeDecodeError as error:
                raise InputError(self.source.path, f"is not valid UTF-16 ({error.reason})") from None
            if not raw:
                break
        return content.encode("utf-8", "surrogatepass")


class LineFeeds(io.RawIOBase):
    """A file whose lines end with a carriage return, with line feeds instead."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self.file.read(size).replace(b"\r", b"\n")


def as_utf_8(source: Source, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks of lines as UTF-8: Windows-1252 (Latin-1) is recognised in the first block that is not ASCII."""
    for raw in blocks:
        if raw.isascii():
            yield raw
            continue
        if not is_windows_1252(raw):
            yield raw
            yield from blocks
            return
        source.facts.encoding = "Windows-1252 (Latin-1)"
        source.facts.notes.append(
            "read as Windows-1252 (Latin-1), because it is not UTF-8; if letters are wrong, save it as UTF-8"
        )
        for each in itertools.chain([raw], blocks):
            yield each.decode("cp1252", "replace").encode()


def is_windows_1252(raw: bytes) -> bool:
    """Whether text is not UTF-8, and each of its bytes above ASCII is a letter next to a letter, or punctuation."""
    if is_text(raw):
        return False
    high = re.findall(rb"[\x80-\xff]+", raw)
    if any(map(is_text, high)):
        return False
    letters = re.findall(rb"(?:[A-Za-z' -][\xc0-\xff]{1,3}|[\xc0-\xff]{1,3}[a-z]|[\x82-\x8c\x91-\x9c\xa0-\xbf])", raw)
    return sum(map(len, high)) <= sum(sum(byte > 127 for byte in each) for each in letters)


def dialect_of(source: Source, begin: bytes, usual: bytes) -> Dialect:
    """How the rows of a table are written, from its beginning. `usual` is the separator that the suffix promises.

    Raise if the columns of head, relation and tail are not clear, with the option that makes them so.
    """
    lines = begin.replace(b"\r\n", b"\n").split(b"\n")
    if len(lines) > 1:
        lines.pop()  # it may be cut off
    del lines[MAX_SAMPLED_LINES:]
    skipped = 0  # lines before the table
    while skipped < len(lines) and not lines[skipped].strip():
        skipped += 1
    if skipped < len(lines) and (stated := EXCEL_SEPARATOR.fullmatch(lines[skipped])):
        usual = stated[1]
        skipped += 1
    separator = _separator(lines[skipped:], usual)
    quoted = separator not in (b"\t", WHITE_SPACE) or _all_quoted(lines[skipped:])
    comments = 0
    while skipped < len(lines) and _is_comment(lines[skipped], separator):
        comments += bool(lines[skipped].strip())
        skipped += 1
    if comments:
        source.facts.notes.append(f"lines of comments at the beginning left out: {comments}")
    padded = _is_padded(lines[skipped:], separator)
    rows = _rows(lines[skipped:], separator, quoted)
    texts = [[field.strip() if padded else field for field in fields] for _, fields in rows]
    layout, header = _layout(source, texts, _width(texts)) if texts else (PLAIN, False)
    if header:
        skipped += rows[1][0] if len(rows) > 1 else len(lines) - skipped
        if skipped < len(lines) and RULE.fullmatch(lines[skipped]):
            skipped += 1
    if separator == WHITE_SPACE:
        source.facts.notes.append("fields are separated by white space")
    source.facts.separator = "white space" if separator == WHITE_SPACE else SEPARATORS.get(separator, repr(separator))
    source.facts.header = header
    source.facts.add(
        layout, {place for place in range(layout.width) if not any(row[place:][:1] != [""] for row in texts)}
    )
    return Dialect(separator, quoted, padded, skipped, layout)


def _is_comment(line: bytes, separator: bytes) -> bool:
    """Whether a line before the table is blank, or begins with # and is not a row."""
    return not line.strip() or (line.lstrip().startswith(b"#") and len(_fields(line, separator)) < 3)


def _rows(lines: Sequence[bytes], separator: bytes, quoted: bool) -> list[tuple[int, list[str]]]:
    """The rows of lines, each with the place of its first line; a quoted field may span a few lines."""
    if quoted and any(b'"' in line for line in lines):
        rows = []
        reader = csv.reader((_text(line) + "\n" for line in lines), delimiter=separator.decode(), skipinitialspace=True)
        place = 0
        try:
            for fields in reader:
                if reader.line_num - place > MAX_SPANNED_LINES:
                    break  # a stray quote
                if fields:
                    rows.append((place, fields))
                place = reader.line_num
            else:
                return rows
        except csv.Error:
            pass
    return [(place, _fields(line, separator)) for place, line in enumerate(lines) if line.strip()]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").lstrip("\ufeff").replace("\r", "␍")  # at which csv would end the row


def _fields(line: bytes, separator: bytes) -> list[str]:
    """The fields of one line; quotes around them are removed, unless the separator is a tab."""
    text = _text(line)
    if separator == WHITE_SPACE:
        return text.split()
    if separator == b"\t" or '"' not in text:
        return text.split(separator.decode())
    try:
        return next(csv.reader([text], delimiter=separator.decode(), skipinitialspace=True))
    except (csv.Error, StopIteration):
        return text.split(separator.decode())


def _width(rows: Sequence[list[str]]) -> int:
    """The most frequent number of fields of rows with three or more, or else of all rows; 3 in doubt."""
    sizes = [len(row) for row in rows]
    counts = Counter([size for size in sizes if size >= 3] or sizes)
    return max(counts, key=lambda size: (counts[size], size == 3), default=3)


def _separator(lines: Sequence[bytes], usual: bytes) -> bytes:
    """The separator with the most rows of three or more fields; the usual one among equals.

    One with at least half as many is preferred if, unlike the other, it comes after every closing quote.
    """
    lines = [line for line in lines if line.strip()]
    scores = {}
    for each in (usual, *SEPARATORS):
        rows = [fields for _, fields in _rows(lines, each, each != b"\t") if len(fields) > 1]
        width = _width(rows)
        scores[each] = sum(len(row) == width for row in rows) if width >= 3 else 0
    most = max(scores.values())
    close = {each: (_is_valid(lines, each), score) for each, score in scores.items() if 2 * score >= most}
    best = max(close, key=lambda each: close[each])  # the first of equals
    if scores[best] or any(usual in line for line in lines):
        return best if scores[best] else usual
    if lines and all(len(line.split()) == 3 for line in lines):
        return WHITE_SPACE
    in_two = [each for each in SEPARATORS if lines and all(len(_fields(line, each)) == 2 for line in lines)]
    return in_two[0] if in_two else usual


def _is_valid(lines: Sequence[bytes], separator: bytes) -> bool:
    """Whether quotes around fields end where fields do."""
    if separator == b"\t" or not any(b'"' in line for line in lines):
        return True
    text = (_text(line) + "\n" for line in lines)
    try:
        for _ in csv.reader(text, delimiter=separator.decode(), skipinitialspace=True, strict=True):
            pass
    except csv.Error:
        return False
    return True


def _is_padded(lines: Sequence[bytes], separator: bytes) -> bool:
    """Whether all separators have white space after them, as in `a, r, b` or `| a | r | b |`."""
    if separator in (b"\t", WHITE_SPACE) or len(lines) < 2:
        return False
    mark = re.escape(separator)
    rows = [line for line in lines if separator in line and not RULE.fullmatch(line)]
    return bool(rows) and not any(re.search(mark + rb"(?!\s|$)", line.rstrip()) for line in rows)


def _all_quoted(lines: Sequence[bytes]) -> bool:
    """Whether every field of tab-separated lines is in quotes, or a number."""
    fields = [field for line in lines for field in line.strip().split(b"\t")]
    in_quotes = [len(field) > 1 and field.startswith(b'"') and field.endswith(b'"') for field in fields]
    bare = (field for field, is_quoted in zip(fields, in_quotes, strict=True) if not is_quoted)
    return sum(in_quotes) > 2 * len(lines) - 1 and all(is_literal(field.decode("utf-8", "replace")) for field in bare)


def _layout(source: Source, rows: list[list[str]], width: int) -> tuple[Layout, bool]:
    """Where rows have head, relation and tail, and whether the first row is a header."""
    names = [name.strip().lstrip("#").strip() for name in rows[0]]
    below = [row for row in rows[1:] if len(row) == width]
    if below and len(names) == width - 1 and len(names) > 2:  # R names its rows, and not their column
        names = ["", *names]
    chosen = source.reading.columns
    if chosen is not None:
        words = sum(len(name) > 1 and any(columns_by_role([name])) for name in names)
        header = chosen.needs_header() or words > (1 if width > 3 else 2)
        return chosen.layout(source.path, max(width, len(names)) if header else width, names if header else ()), header
    if len(names) == width and (layout := _by_header(source, names, below)):
        return layout, True
    if width < 3:
        if width == 2 and all(len(row) == 2 for row in rows):
            header = bool(columns_by_role(names)[0] and columns_by_role(names)[2])
            raise no_roles(source.path, names, header)
        return PLAIN, False
    return _by_place(source, rows, names, width), False


def _by_header(source: Source, names: list[str], below: list[list[str]]) -> Layout | None:
    """The layout by the first line, or None if that is a row. Raise if it may be either."""
    layout = complete_header(source.path, names)
    letters = layout is not None and all(len(normal(names[place])) == 1 for place in layout.places or ())
    if layout and (not letters or layout.places == (0, 1, 2)):
        return layout
    if not layout and len(names) == 3 and _names_variables(names, below):
        return Layout(3, 0, 1, 2, tuple(names))
    found = columns_by_role([name if len(name) > 1 else "" for name in names], vague=False)
    roles = sum(map(bool, found))
    if letters or roles > 1 or (roles == 1 and len(names) == 3 and _is_alone(names, found, below)):
        if layout:
            places: list[int | None] = list(layout.places or ())
        else:
            places = [columns[0] if columns else None for columns in found]
        if len(names) == 3:
            raise InputError(
                source.path,
                f"has a first line that may name the columns ({listed(names)}): if so, give {option(names, places)}; "
                f"if it is a triple, give --columns {HOW}",
                1,
            )
        raise no_roles(source.path, names)
    return None


def _names_variables(names: list[str], below: list[list[str]]) -> bool:
    """Whether a row of identifiers stands before rows of IRIs, as in results of a query."""
    iris = [IRI.fullmatch(name) is not None for name in (below[0][:2] if below else ["", ""])]
    return all(iris) and all(name.isidentifier() for name in names)


def _is_alone(names: list[str], found: list[list[int]], below: list[list[str]]) -> bool:
    """Whether the relation of the first row does not occur again, and others do."""
    place = found[1][0] if found[1] else 1
    relations = Counter(row[place] for row in below)
    return len(below) >= MIN_ROWS and names[place] not in relations and len(relations) < len(below)


def _by_place(source: Source, rows: list[list[str]], names: list[str], width: int) -> Layout:
    """The layout of rows without a header: the only three columns, or the first three before numbers and dates."""
    rows = [row for row in rows if len(row) == width]
    columns = list(zip(*rows, strict=True))
    if width == 3:
        if len(rows) > 2 and "" in (*columns[1], *columns[2]) and _may_be_header(columns):  # a row for each entity
            raise no_roles(source.path, names)
        return PLAIN
    filled = [place for place, column in enumerate(columns) if any(column)]
    numbered = len(rows) > 1 and list(columns[0]) in ([str(i) for i in range(len(rows))], _from_one(len(rows)))
    if numbered and len(filled) > 3:
        filled = filled[1:]
    if len(filled) == 3 or (
        len(filled) > 3 and all(is_literal(cell) or not cell for place in filled[3:] for cell in columns[place])
    ):
        return Layout(width, filled[0], filled[1], filled[2])
    raise no_roles(source.path, names if len(names) == width else rows[0], _may_be_header(columns))


def _may_be_header(columns: list[tuple[str, ...]]) -> bool:
    """Whether the first cells of columns are different names that do not occur again."""
    return len({first for first, *_ in columns}) == len(columns) and all(
        first and not is_literal(first) and first not in below for first, *below in columns
    )


def _from_one(count: int) -> list[str]:
    return [str(i) for i in range(1, count + 1)]
