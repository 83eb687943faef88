"""Tables of triples, read by DuckDB: text with any separator, JSON lines and Parquet.

DuckDB's sniffer proposes how a text is written. The file is then read with exactly that, every column as text, and each
row that DuckDB refuses, or that has an empty name, is named by its file and line. Triples go to the engine's table
`raw` (h, r, t), in the order of the file.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from fewlink.core.errors import InputError, unique_keys
from fewlink.core.words import plural
from fewlink.graph.columns import PLAIN, Layout, columns_by_role, doubtful_header, layout_of, named_layout, stands_alone
from fewlink.graph.literals import is_literal
from fewlink.graph.plain import (
    COMPRESSIONS,
    LINE_BYTES,
    PIECE_BYTES,
    WHOLE_FACTOR,
    WINDOWS_1252,
    bounded,
    check_zstd,
    is_windows_1252,
    opened,
    reading_source,
    rewrite,
)
from fewlink.graph.source import MAX_LISTED_PROBLEMS, CompileReport, FileFacts, GraphSource

SEPARATORS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar", " ": "white space"}
SAMPLED_LINES = 200  # that show how a table is written
ROWS_IN_A_NAME = 3  # lines that look like rows inside a name in quotes, from which on a quote is taken for stray
JSON_LINE = re.compile(rb'\s*(\{\s*"[^"]*"\s*:|\[\s*[\[{"])')  # an object, or a list of text, lists or objects
JSON_ARRAY = re.compile(rb"\s*\[\s*[\[{]")  # a list of lists or objects
EXCEL_SEPARATOR = re.compile(r'"?sep=((?![\w"])[\t -~])"?\s*', re.IGNORECASE)
MARKDOWN_RULE = re.compile(r"[\s|:+=-]*-{2}[\s|:+=-]*")
UNCLOSED = "has a quote that is not closed: rows after it would be lost"
BLOCK_TEXTS = 3 << 17  # names that are given to DuckDB together
MISSING = "(h IS NULL OR r IS NULL OR t IS NULL)"  # of a row of `raw`


def connect(database: str = ":memory:", **settings: str) -> Any:
    """Open a database of DuckDB, which keeps the order of rows."""
    import duckdb

    engine = duckdb.connect(database)
    for name, value in {"enable_progress_bar": "true", "enable_progress_bar_print": "false", **settings}.items():
        engine.execute(f"SET {name} = {sql(value)}")
    return engine


def sql(value: str | Sequence[str]) -> str:
    """A text, or a list of texts, in SQL."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"[{', '.join(map(sql, value))}]"


class Reader:
    """A file that is being read into the table `raw` of the engine, which is filled in the order of the file."""

    def __init__(self, engine: Any, path: Path, source: GraphSource, report: CompileReport, folder: Path) -> None:
        self.engine = engine
        self.path = path
        self.source = source
        self.report = report
        self.folder = folder
        self.facts = FileFacts(str(path))
        report.files.append(self.facts)
        self.first = self._next_row()

    def _next_row(self) -> int:
        return int(self.engine.execute("SELECT coalesce(max(rowid) + 1, 0) FROM raw").fetchall()[0][0])

    def rewritten(self, encoding: str | None = None, tabs: bool = False) -> Path:
        """A temporary copy of the file, decompressed and, with an encoding, as UTF-8 with line feeds."""
        copy = self.folder / "text"
        rewrite(self.path, copy, encoding, tabs)
        return copy

    def add(self, query: str) -> int:
        """Add rows (h, r, t); return the number of those with an empty name, which are left out."""
        first = self._next_row()
        self.engine.execute(f"INSERT INTO raw {query}").fetchall()
        where = f"WHERE rowid >= {first} AND {MISSING}"
        empty = int(self.engine.execute(f"SELECT count(*) FROM raw {where}").fetchall()[0][0])
        if empty:
            self.engine.execute(f"DELETE FROM raw {where}")
        return empty

    def add_fields(self, texts: list[str]) -> None:
        """Add triples given as head, relation, tail, head, …"""
        self._insert("raw", texts[::3], texts[1::3], texts[2::3])

    def add_labels(self, labels: list[tuple[str, int, str]]) -> None:
        """Add readable names of entities, each with a rank: the lowest counts, and of equal ones the first."""
        self._insert("label", *zip(*labels, strict=True))

    def add_kinds(self, kinds: list[tuple[str, str]]) -> None:
        """Add types of entities."""
        self._insert("kind", *zip(*kinds, strict=True))

    def _insert(self, table: str, *columns: Sequence[Any]) -> None:
        if not columns or not columns[0]:
            return
        self.engine.register("block", {f"c{place}": np.array(each, object) for place, each in enumerate(columns)})
        self.engine.execute(f"INSERT INTO {table} SELECT * FROM block").fetchall()
        self.engine.unregister("block")

    def is_empty(self) -> bool:
        """Whether nothing was added, neither triples nor rows without a name."""
        return self._next_row() == self.first

    def take_back(self) -> None:
        """Remove what was added."""
        self.engine.execute(f"DELETE FROM raw WHERE rowid >= {self.first}")

    def check_first_row(self) -> None:
        """Raise if no triple shares a name with the first one of the file, as if that were a header."""
        run = self.engine.execute
        begin = run(f"SELECT rowid, h, r, t FROM raw WHERE rowid >= {self.first} ORDER BY rowid LIMIT 2").fetchall()
        place, *names = begin[0]
        ends = sql([names[0], names[2]])
        shared = (
            f"SELECT 1 FROM raw WHERE rowid <> {place} AND (r = {sql(names[1])} OR h IN {ends} OR t IN {ends}) "
            f"UNION ALL SELECT 1 FROM entity WHERE name IN {ends}"
        )
        if not run(f"{shared} LIMIT 1").fetchall():
            raise doubtful_header(self.path, names, begin[-1][1:])

    def has_many_lines(self, dialect: Dialect) -> bool:
        """Whether a name holds several lines that look like rows, which suggests a quote that is not closed."""
        separator = re.escape(dialect.separator)
        row = rf"([^\n{separator}]*{separator}){{{dialect.layout.width - 1}}}[^\n{separator}]*\n"
        names = " OR ".join(
            f"(contains({name}, chr(10)) AND regexp_matches({name}, {sql(row * ROWS_IN_A_NAME)}))" for name in "hrt"
        )
        return bool(self.engine.execute(f"SELECT 1 FROM raw WHERE rowid >= {self.first} AND ({names})").fetchall())

    def bad(self, problem: str, line: int | None) -> None:
        """Raise an error for a bad row or, when skipping, count it."""
        self.bad_rows(1, [(line, problem)])

    def bad_rows(self, count: int, problems: Sequence[tuple[int | None, str]]) -> None:
        """Raise an error for the first of `count` bad rows or, when skipping, count them."""
        if count and not self.source.skip:
            line, problem = problems[0] if problems else (None, "has a row with an empty name")
            remedy = "" if line is None else ": correct the line, or leave bad lines out with --on-error skip"
            raise InputError(self.path, problem + remedy, line)
        self.report.skipped += count
        room = MAX_LISTED_PROBLEMS - len(self.report.problems)
        for line, problem in problems[: max(room, 0)]:
            self.report.problems.append(str(InputError(self.path, problem, line)))

    def reject_columns(self) -> None:
        """Raise if the user chose columns, for a format that has none."""
        if self.source.columns is not None:
            raise InputError(self.path, f"is {self.facts.format}, which has no columns: leave out --columns")


@dataclass(frozen=True)
class Dialect:
    """How a table of text is written.

    separator  the text between fields
    quoted     whether quotes around fields are removed
    padded     whether white space around fields is removed
    skipped    the number of rows before the first triple
    layout     where a row has its head, relation and tail
    doubtful   whether the first row may be a header
    """

    separator: str
    quoted: bool
    padded: bool
    skipped: int
    layout: Layout
    doubtful: bool

    def rows(self, file: Path) -> str:
        """The rows of a file in SQL, all columns as text."""
        columns = ", ".join(f"c{place}: 'VARCHAR'" for place in range(self.layout.width))
        quote = sql('"' if self.quoted else "")
        return (
            f"read_csv({sql(str(file))}, columns = {{{columns}}}, delim = {sql(self.separator)}, "
            f"quote = {quote}, escape = {quote}, skip = {self.skipped}, header = false, auto_detect = false, "
            "strict_mode = true)"
        )


def read_text(reader: Reader, begin: bytes, usual: str, encoding: str | None) -> None:
    """Read a table of text; `begin` is its beginning in UTF-8, and `usual` the separator that its suffix promises."""
    file = reader.path
    suffix = file.suffix.lower()
    if suffix == ".zst":
        check_zstd(file)
    if encoding or suffix in COMPRESSIONS[:3]:
        file = reader.rewritten(encoding)
    sample = begin.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = sample.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if len(lines) > 1:
        lines.pop()  # it may be cut off
    dialect = _dialect(reader, lines[:SAMPLED_LINES], usual)
    if dialect.separator == " ":
        file = reader.rewritten(encoding or "utf-8", tabs=True)
        dialect = replace(dialect, separator="\t")
    _read(reader, file, dialect, encoding)


def _read(reader: Reader, file: Path, dialect: Dialect, encoding: str | None) -> None:
    """Read the rows of a file: DuckDB does, and Python if DuckDB finds a bad one, because it does not say where."""
    import duckdb

    layout = dialect.layout
    cells = [f"nullif(trim(c{place}), '')" if dialect.padded else f"c{place}" for place in range(layout.width)]
    try:
        is_bad = reader.add(triples_in(layout, cells, dialect.rows(file))) > 0
    except (duckdb.InvalidInputException, duckdb.NotImplementedException):
        is_bad = True
    problems: list[tuple[int | None, str]] = []
    if is_bad:
        reader.take_back()
        with opened(file) as raw:
            is_latin = encoding is None and is_windows_1252(raw)
        if is_latin:
            reader.facts.encoding = WINDOWS_1252
            reader.facts.notes.append(
                "read as Windows-1252 (Latin-1), because it is not UTF-8; if letters are wrong, save it as UTF-8"
            )
            return _read(reader, reader.rewritten("cp1252"), dialect, "cp1252")
        problems = _read_rows(reader, file, dialect)
    if dialect.quoted and reader.has_many_lines(dialect):
        raise InputError(reader.path, UNCLOSED)
    if dialect.doubtful and not reader.is_empty():
        reader.check_first_row()
    reader.bad_rows(len(problems), problems)


def _read_rows(reader: Reader, file: Path, dialect: Dialect) -> list[tuple[int | None, str]]:
    """Add the triples of good rows; return the lines of bad ones, up to the first if that ends the reading."""
    texts: list[str] = []
    problems: list[tuple[int | None, str]] = []
    first_only = not (reader.source.skip or dialect.doubtful)
    for begin, row in _numbered_rows(reader, file, dialect):
        if isinstance(row, list) and len(row) < 2 and not "".join(row).strip():
            continue  # a blank line
        cells = [cell.strip() for cell in row] if dialect.padded and isinstance(row, list) else row
        problem = _problem(cells, dialect.layout)
        if problem:
            problems.append((begin, problem))
            if first_only:
                break
        else:
            texts += dialect.layout.triples(cells)
        if len(texts) > BLOCK_TEXTS:
            reader.add_fields(texts)
            texts = []
    reader.add_fields(texts)
    return problems


def triples_in(layout: Layout, cells: Sequence[str], rows: str, more: str = "") -> str:
    """The triples (h, r, t) of rows with these cells in SQL; a cell may be NULL, but not that of a wide table."""
    if layout.tail is None:
        others = [place for place in range(layout.width) if place != layout.head]
        names = sql([layout.names[place] for place in others])
        tails = ", ".join(cells[place] for place in others)
        every = f"SELECT {more}{cells[layout.head]} AS h, unnest({names}) AS r, unnest([{tails}]) AS t FROM {rows}"
        return f"SELECT * FROM ({every}) WHERE t IS NOT NULL"
    relation = sql(layout.relation) if isinstance(layout.relation, str) else cells[layout.relation or 0]
    return f"SELECT {more}{cells[layout.head]} AS h, {relation} AS r, {cells[layout.tail]} AS t FROM {rows}"


def _problem(cells: list[str] | csv.Error, layout: Layout) -> str:
    """What is wrong with a row, if anything."""
    if isinstance(cells, csv.Error):
        return f"is not valid CSV ({cells})"
    if len(cells) != layout.width:
        return f"has {plural(len(cells), 'column')} instead of {layout.width}"
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return "is not UTF-8 text"
    roles = {"head": layout.head, "relation": layout.relation, "tail": layout.tail}
    missing = [role for role, place in roles.items() if isinstance(place, int) and not cells[place]]
    return f"has an empty {missing[0]}" if missing else ""


def _numbered_rows(reader: Reader, file: Path, dialect: Dialect) -> Iterator[tuple[int, Any]]:
    """The rows of a table, or what is wrong with their quotes, with the lines on which they begin."""

    def lines_in(text: io.TextIOWrapper) -> Iterator[str]:
        for number, line in enumerate(iter(lambda: text.readline(LINE_BYTES), ""), 1):
            if len(line) == LINE_BYTES:
                raise InputError(reader.path, f"has a line of over {LINE_BYTES >> 20} MB", number)
            yield line

    with opened(file) as raw:
        lines = lines_in(io.TextIOWrapper(cast("Any", raw), "utf-8-sig", "surrogateescape", newline=""))
        if not dialect.quoted:
            rows = enumerate((line.rstrip("\r\n").split(dialect.separator) for line in lines), 1)
            yield from (row for row in rows if row[0] > dialect.skipped)
            return
        csv.field_size_limit(LINE_BYTES)
        table = csv.reader(lines, delimiter=dialect.separator, skipinitialspace=dialect.padded, strict=True)
        for number in itertools.count():
            begin = table.line_num + 1
            try:
                row: list[str] | csv.Error = next(table)
            except StopIteration:
                return
            except csv.Error as error:
                if table.line_num > begin:
                    raise InputError(reader.path, UNCLOSED, begin) from None
                row = error
            if isinstance(row, list) and len(row) != dialect.layout.width and table.line_num > begin + ROWS_IN_A_NAME:
                raise InputError(reader.path, UNCLOSED, begin)
            if number >= dialect.skipped:
                yield begin, row


def _dialect(reader: Reader, lines: list[str], usual: str) -> Dialect:
    """How the rows of a table are written, from its first lines.

    Raise if the columns of head, relation and tail are not clear, with the option that makes them so.
    """
    path = reader.path
    facts = reader.facts
    skipped = 0  # lines before the table
    while skipped < len(lines) and not lines[skipped].strip():
        skipped += 1
    stated = EXCEL_SEPARATOR.fullmatch(lines[skipped]) if skipped < len(lines) else None
    skipped += stated is not None
    separator = stated[1] if stated else _separator(reader, lines[skipped:], usual)
    comments = 0
    while skipped < len(lines) and _is_comment(lines[skipped], separator):
        comments += bool(lines[skipped].strip())
        skipped += 1
    if comments:
        reader.facts.notes.append(f"lines of comments at the beginning left out: {comments}")
    table = lines[skipped:]
    quoted = separator not in "\t " or _all_quoted(table)
    padded = (
        separator not in "\t "
        and len(table) > 1
        and not any(re.search(re.escape(separator) + r"(?!\s|$)", line.rstrip()) for line in table if separator in line)
    )
    if len(table) > 1 and separator == "|" and MARKDOWN_RULE.fullmatch(table[1]):
        raise InputError(path, "is a table of Markdown: save it as CSV", skipped + 1)
    rows = _rows(table, separator, quoted, padded)
    sizes = Counter([len(row) for row in rows if len(row) >= 3] or map(len, rows))
    width = max(sizes, key=lambda size: (sizes[size], size == 3), default=3)
    layout, header = layout_of(path, rows, width, reader.source.columns) if rows else (PLAIN, False)
    facts.separator = SEPARATORS.get(separator, repr(separator))
    facts.header = header
    blank = {place for place in range(layout.width) if not any(row[place:][:1] != [""] for row in rows)}
    facts.add(layout, blank)
    cells = [[row[place] for place in layout.used] for row in rows if len(row) == layout.width]
    doubtful = not header and reader.source.columns is None and stands_alone(cells)
    return Dialect(separator, quoted, padded, skipped + header, layout, doubtful)


def _separator(reader: Reader, lines: list[str], usual: str) -> str:
    """The separator that tabs, a header or white space tell, or else the one that DuckDB's sniffer proposes."""
    filled = [line for line in lines if line.strip() and not line.startswith("#")]
    if not filled or all(line.count("\t") >= 2 for line in filled):
        return "\t" if filled else usual
    for each in ",;|":
        names = next(iter(_rows(filled[:1], each, quoted=True, padded=False)), [])
        if all(columns_by_role(names)):
            return each
    sample = reader.folder / "sample"
    sample.write_text("\n".join(filled) + "\n", encoding="utf-8", errors="replace")
    import duckdb

    proposed = usual
    try:
        found = reader.engine.execute(
            f"SELECT Delimiter FROM sniff_csv({sql(str(sample))}, all_varchar = true, header = false)"
        ).fetchall()
        proposed = found[0][0]
    except duckdb.Error:
        pass
    counts = {each: sum(line.count(each) >= 1 for line in filled) for each in SEPARATORS if each != " "}
    if counts.get(proposed, 0) >= counts.get(usual, 0) and counts.get(proposed):
        return proposed
    if counts[usual]:
        return usual
    if all(len(line.split()) == 3 for line in filled):
        return " "
    return usual


def _is_comment(line: str, separator: str) -> bool:
    """Whether a line before the table is blank, or begins with # and is not a row."""
    return not line.strip() or (line.lstrip().startswith("#") and line.count(separator) < 2)


def _rows(lines: list[str], separator: str, quoted: bool, padded: bool) -> list[list[str]]:
    """The rows of lines that are not empty."""
    if separator == " ":
        return [line.split() for line in lines if line.strip()]
    text = (line + "\n" for line in lines)
    try:
        if quoted:
            rows = list(csv.reader(text, delimiter=separator, skipinitialspace=padded))
        else:
            rows = [line.split(separator) for line in lines]
    except csv.Error:
        rows = [line.split(separator) for line in lines]
    return [[cell.strip() if padded else cell for cell in row] for row in rows if row]


def _all_quoted(lines: list[str]) -> bool:
    """Whether every field of tab-separated lines is in quotes, or a number, as R writes them."""
    fields = [field for line in lines for field in line.strip().split("\t")]
    in_quotes = [len(field) > 1 and field.startswith('"') and field.endswith('"') for field in fields]
    bare = (field for field, is_quoted in zip(fields, in_quotes, strict=True) if not is_quoted)
    return sum(in_quotes) > 2 * len(lines) - 1 and all(map(is_literal, bare))


def read_json(reader: Reader, begin: bytes) -> None:
    """Read JSON lines, or one array of the same, from their text: objects with a key for each role, or lists."""
    path = reader.path
    run = reader.engine.execute
    array = JSON_ARRAY.match(begin) is not None
    if array:
        with opened(path) as content:
            watched = bounded(content, path, WHOLE_FACTOR)
            while watched.read(PIECE_BYTES):
                pass
    file = reader.rewritten() if path.suffix.lower() in COMPRESSIONS[:3] else path
    reader.facts.format = "JSON" if array else "JSON lines"
    if array:
        text = f"read_text({sql(str(file))})"
        if run(f"SELECT 1 FROM {text} WHERE NOT json_valid(content)").fetchall():
            raise InputError(path, f"is not valid JSON ({_json_problem(file.read_bytes())})")
        query = f"SELECT unnest(json_extract(content, '$[*]'))::VARCHAR AS line FROM {text}"
    else:
        query = f"SELECT line FROM {lines_of(file)}"
    run(f"CREATE OR REPLACE TABLE line AS {query}").fetchall()
    filled = "FROM line WHERE trim(coalesce(line, '')) <> ''"
    kinds = "json_type(line), json_keys(line), json_array_length(line)"
    first = run(f"SELECT {kinds} {filled} AND json_valid(line) ORDER BY rowid LIMIT 1").fetchall()
    kind, keys, length = first[0] if first else ("", [], 0)
    chosen = reader.source.columns
    if kind == "OBJECT":
        layout = named_layout(path, list(dict.fromkeys(keys)), chosen)
        places = ["/" + name.replace("~", "~0").replace("/", "~1") for name in layout.names]
        wrong = "json_type(line) <> 'OBJECT' OR len(json_keys(line)) <> len(list_distinct(json_keys(line)))"
    else:
        layout = PLAIN if chosen is None or kind != "ARRAY" else chosen.layout(path, length, ())
        places = [f"/{place}" for place in range(layout.width)]
        wrong = f"json_type(line) <> 'ARRAY' OR json_array_length(line) <> {layout.width}"
    reader.facts.add(layout)
    used = [places[place] for place in layout.used]
    nested = " OR ".join(f"json_type(line, {sql(place)}) IN ('OBJECT', 'ARRAY')" for place in used)
    names = used[:1] if layout.tail is None else used
    empty = " OR ".join(f"coalesce(json_extract_string(line, {sql(place)}), '') = ''" for place in names)
    problem = (
        "CASE WHEN NOT json_valid(line) THEN 'is not valid JSON' "
        f"WHEN {wrong} THEN 'is not an object or a list like the first' "
        f"WHEN {nested} THEN 'has a list or an object where a name should be' "
        f"WHEN {empty} THEN 'has an empty head, relation or tail' END"
    )
    checked = f"SELECT rowid + 1 AS number, line, {problem} AS problem {filled} ORDER BY rowid"
    run(f"CREATE OR REPLACE TABLE line AS {checked}").fetchall()
    bad = run("SELECT number, problem FROM line WHERE problem IS NOT NULL ORDER BY number").fetchall()
    if bad and begin.split(b"\n")[0].strip() == b"{":
        raise InputError(path, "is one JSON object: write one object with head, relation and tail on each line")
    reader.bad_rows(len(bad), [(None if array else line, what) for line, what in bad])
    cells = [f"nullif(json_extract_string(line, {sql(place)}), '')" for place in places]
    good = "(SELECT line FROM line WHERE problem IS NULL ORDER BY number)"
    reader.add(triples_in(layout, cells, good))
    run("DROP TABLE line")


def _json_problem(content: bytes) -> str:
    try:
        json.loads(content, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        return str(error)
    return "DuckDB cannot read it"


def read_parquet(reader: Reader) -> None:
    """Read the chosen columns, or those named head, relation and tail or alike, or else the only three columns."""
    import duckdb

    if reader.path.suffix.lower() in COMPRESSIONS:
        raise InputError(reader.path, "is a compressed Parquet file: unpack it first")
    run = reader.engine.execute
    table = f"read_parquet({sql(str(reader.path))}, file_row_number = true, binary_as_string = true)"
    try:
        columns = run(f"DESCRIBE SELECT * EXCLUDE file_row_number FROM {table}").fetchall()
        names = [column[0] for column in columns]
        layout = named_layout(reader.path, names, reader.source.columns)
        reader.facts.add(layout)
        nested = [columns[place][0] for place in layout.used if re.search(r"[\[(]", columns[place][1])]
        if nested:
            raise InputError(reader.path, f"has lists or objects in the column '{nested[0]}': give one with names")
        quoted = ['"' + name.replace('"', '""') + '"' for name in names]
        cells = [f"nullif({name}::VARCHAR, '')" for name in quoted]
        rows = triples_in(layout, cells, table, "file_row_number, ")
        empty = reader.add(f"SELECT h, r, t FROM ({rows})")
        lacking = f"SELECT file_row_number + 1 FROM ({rows}) WHERE {MISSING} LIMIT {MAX_LISTED_PROBLEMS}"
        numbers = run(lacking).fetchall() if empty else []
    except duckdb.Error as error:
        raise InputError(reader.path, f"cannot be read as Parquet ({first_line(error)})") from None
    reader.bad_rows(empty, [(row, "has an empty head, relation or tail") for (row,) in numbers])


def lines_of(file: Path) -> str:
    """The lines of a text in SQL, with one column, which is NULL where a line is empty."""
    return (
        f"read_csv({sql(str(file))}, columns = {{'line': 'VARCHAR'}}, delim = chr(0), quote = '', escape = '', "
        "header = false, auto_detect = false, strict_mode = false, max_line_size = 16777216)"
    )


def side_rows(engine: Any, path: Path, table: str) -> None:
    """Make a table (line, row) of a side file, whose rows are lists of texts with tabs between them.

    Raise if one of the first two texts of a line is missing or empty.
    """
    import duckdb

    with reading_source(path), tempfile.TemporaryDirectory() as place:
        file = path
        if path.suffix.lower() in COMPRESSIONS[:3]:
            file = Path(place) / "text"
            rewrite(path, file)
        try:
            engine.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT line FROM {lines_of(file)}").fetchall()
        except duckdb.Error as error:
            line = re.search(r"Line: (\d+)", str(error))
            raise InputError(path, "is not UTF-8 text", int(line[1]) if line else None) from None
    engine.execute(
        f"CREATE OR REPLACE TABLE {table} AS SELECT rowid + 1 AS line, string_split(line, chr(9)) AS row FROM {table} "
        "WHERE trim(coalesce(line, '')) <> '' ORDER BY rowid"
    ).fetchall()
    short = "len(row) < 2 OR list_contains(row[:2], '')"
    bad = engine.execute(f"SELECT line FROM {table} WHERE {short} ORDER BY line LIMIT 1").fetchall()
    if bad:
        raise InputError(path, "needs at least 2 columns separated by tabs", bad[0][0])


def read_pairs(path: Path) -> list[list[str]]:
    """The rows of a small side file."""
    with connect() as engine:
        side_rows(engine, Path(path), "side")
        return [row for (row,) in engine.execute("SELECT row FROM side ORDER BY line").fetchall()]


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
