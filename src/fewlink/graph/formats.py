"""File formats of triples: tab- or comma-separated text, RDF, SPARQL results and Parquet, plain or compressed.

A new format is a function `read(source, file)` that yields blocks of triples, and a line in `FORMATS`. The function
receives the decompressed file and can pass its rows through `blocks_of`, which checks them and reports bad ones.
"""

from __future__ import annotations

import csv
import functools
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from fewlink.core.errors import InputError, MissingExtra
from fewlink.core.progress import Advance, silent
from fewlink.core.threads import prefetch
from fewlink.graph.reading import (
    BLOCK_ROWS,
    COMPRESSIONS,
    LONGEST_NAME,
    NEWLINE,
    CheckedXml,
    CompileReport,
    Peeked,
    RdfTerms,
    Source,
    blocks_of,
    decompressed,
    is_blank,
    numbered_lines,
    reading_source,
    whole_lines,
)
from fewlink.graph.vocabulary import Block, is_text
from fewlink.stix.bundle import is_bundle, read_bundle

HEADERS = (
    {b"head", b"subject", b"source", b"h", b"s", b"from"},
    {b"relation", b"predicate", b"edge", b"r", b"p", b"type"},
    {b"tail", b"object", b"target", b"t", b"o", b"to"},
)
PIECE_BYTES = 1 << 18
MOST_LINES = 100  # that a quoted field may span; more mean that its end is missing
ROWS_INSIDE = 3  # lines inside a quoted field that look like rows: its quotes are stray
RDF = {
    "N-Triples": "N_TRIPLES",
    "N-Quads": "N_QUADS",
    "Turtle": "TURTLE",
    "TriG": "TRIG",
    "RDF/XML": "RDF_XML",
    "JSON-LD": "JSON_LD",
}
PLACE = re.compile(r"^Parser error at line [^:]*: ")  # the line is told by the error itself
RESULTS_HEADER = re.compile(rb"\?\w+\t\?\w+\t\?\w+\r?\n")  # of SPARQL results in TSV
IRI = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://\S+|urn:\S+")
RETURN = "\udc0d"  # stands for a lone carriage return, which the csv module takes for the end of a row


class Format(NamedTuple):
    """A format is recognised by the suffixes of its files."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Source, IO[bytes]], Iterator[Block]]


def read_triples(path: Path, *, skip: bool, report: CompileReport, advance: Advance = silent) -> Iterator[Block]:
    """The blocks of one file in the format of its name. Bad lines raise, or with `skip` are counted."""
    path = Path(path)
    source = Source(path, skip, report)
    with reading_source(path):
        size = path.stat().st_size
        with path.open("rb") as raw, decompressed(path, raw) as file:
            for block in prefetch(format_of(path).read(source, file)):
                if len(block.codes):
                    report.triples += len(block.codes)
                    advance(raw.tell() / max(size, 1), f"{report.triples:,} triples")
                    yield block


def format_of(path: Path) -> Format:
    """The format of a file by its name without the compression; tab-separated text if the suffix is unknown."""
    if is_bundle(path):
        return STIX
    name = path.name.lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return next((format for format in FORMATS if Path(name).suffix in format.suffixes), FORMATS[0])


def read_delimited(source: Source, file: IO[bytes], separator: bytes) -> Iterator[Block]:
    """Tab- or comma-separated text, with or without a header row; SPARQL results in TSV by their variables."""
    if separator == b"\t":
        peeked = Peeked(file)
        file = peeked.as_file()
        if RESULTS_HEADER.match(peeked.peek()):
            yield from read_results(source, file, "TSV")
            return
    blocks = (block for block in _delimited_blocks(source, file, separator) if len(block.codes))
    for first in blocks:
        yield _without_header(source, first)
        yield from blocks


def _delimited_blocks(source: Source, file: IO[bytes], separator: bytes) -> Iterator[Block]:
    """Blocks are split at once; only one with a bad line is split line by line."""
    parts = whole_lines(source, file)
    for raw in parts:
        if separator == b"," and b'"' in raw:  # a quoted field may contain line ends: the csv module reads the rest
            yield from blocks_of(source, _quoted_rows(source, itertools.chain([raw], parts)))
            return
        if (block := _split_whole(_without_empty_lines(raw), separator)) is not None:
            yield block
        else:
            yield from blocks_of(source, ((line, text.split(separator)) for line, text in source.lines(raw)))
        source.line += raw.count(b"\n")


def _without_empty_lines(raw: bytes) -> bytes:
    if b"\n\n" not in raw and not raw.startswith(b"\n"):
        return raw
    is_end = np.frombuffer(b"\n" + raw, np.uint8) == NEWLINE
    return bytes(np.frombuffer(raw, np.uint8)[~(is_end[1:] & is_end[:-1])].data)


def _split_whole(raw: bytes, separator: bytes) -> Block | None:
    """All lines at once; None if any of them is not three non-empty fields of text."""
    data = np.frombuffer(raw, np.uint8)
    ends = _field_ends(data, separator)
    if not len(ends):
        return Block([], np.zeros((0, 3), np.int32))
    if len(ends) % 3 or not is_text(raw):
        return None
    kinds = data[ends].reshape(-1, 3)
    if (kinds[:, :2] != separator[0]).any() or (kinds[:, 2] != NEWLINE).any():
        return None
    widths = np.diff(ends, prepend=-1)  # each with its separator
    if widths.min() == 1 or widths.max() > LONGEST_NAME + 1:
        return None
    return _encode(raw.replace(b"\n", separator), ends, separator)


def _field_ends(data: np.ndarray, separator: bytes) -> np.ndarray:
    """Where fields end, searched in pieces that fit into the processor's cache."""
    ends = [np.zeros(0, np.int64)]
    for begin in range(0, len(data), PIECE_BYTES):
        piece = data[begin : begin + PIECE_BYTES]
        ends.append(np.flatnonzero((piece == separator[0]) | (piece == NEWLINE)) + begin)
    return np.concatenate(ends)


def _encode(raw: bytes, ends: np.ndarray, separator: bytes) -> Block:
    """The fields that end at `ends`, encoded by pyarrow if it is installed, otherwise by a Python dict."""
    try:
        import pyarrow
    except ImportError:
        fields = raw.split(separator)
        del fields[-1]
        return Block.of(fields)
    offsets = np.concatenate([[0], ends + 1]).astype(np.int32)  # each field keeps its separator, all the same byte
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(raw)]
    encoded = pyarrow.Array.from_buffers(pyarrow.binary(), len(ends), buffers).dictionary_encode()
    names = [name[:-1] for name in encoded.dictionary.to_pylist()]
    codes = np.frombuffer(encoded.indices.buffers()[1], np.int32, len(ends))  # to_numpy would import pandas
    return Block(names, codes.reshape(-1, 3))


def _without_header(source: Source, block: Block) -> Block:
    first = [block.names[code] for code in block.codes[0]]
    second = [block.names[code] for code in block.codes[min(1, len(block.codes) - 1)]]
    iris = [[IRI.fullmatch(name) is not None for name in row[:2]] for row in (first, second)]
    of_results = not any(iris[0]) and all(iris[1]) and all(name.isidentifier() for name in map(bytes.decode, first))
    if of_results or all(name.lower() in known for name, known in zip(first, HEADERS, strict=True)):
        header = b" ".join(first).decode()
        source.report.headers.append(f"the first line of {source.path} was taken as a header: {header}")
        return Block(block.names, block.codes[1:])
    return block


def _quoted_rows(source: Source, parts: Iterator[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """The rows of a CSV file from its first block with a quote on.

    A row may span `MOST_LINES` lines. One that does not end there, or is not valid, is reported as one bad line, and
    reading goes on with the line after it: a stray quote costs one line.
    """
    lines = (text for part in parts for text in part.decode("utf-8", "surrogateescape").split("\n")[:-1])
    ahead: deque[str] = deque()  # lines that were read for a row that turned out to be shorter
    number = source.line + 1
    while (first := ahead.popleft() if ahead else next(lines, None)) is not None:
        if '"' not in first:
            yield number, [field.encode("utf-8", "surrogateescape") for field in first.split(",")]
            number += 1
            continue
        taken = [first]
        try:
            row = next(csv.reader(_row_lines(taken, ahead, lines), strict=True))
            if len(row) != 3 and len(taken) > 1:
                raise csv.Error(f"{len(row)} columns on {len(taken)} lines")
            if len(taken) > ROWS_INSIDE + 1 and all(line.count(",") == 2 for line in taken[1:-1]):
                raise csv.Error(f"a quoted field of {len(taken)} lines, which are rows of their own")
        except csv.Error as error:
            ahead.extendleft(reversed(taken[1:]))
            problem = "has a quote without an end" if len(taken) >= MOST_LINES else f"is not valid CSV ({error})"
            source.bad(problem, number)
            number += 1
        else:
            yield number, [field.replace(RETURN, "\r").encode("utf-8", "surrogateescape") for field in row]
            number += len(taken)


def _row_lines(taken: list[str], ahead: deque[str], lines: Iterator[str]) -> Iterator[str]:
    """The lines that a row may have, for the csv module; those after the first are added to `taken`."""
    yield taken[0].replace("\r", RETURN) + "\n"
    while len(taken) < MOST_LINES and (text := ahead.popleft() if ahead else next(lines, None)) is not None:
        taken.append(text)
        yield text.replace("\r", RETURN) + "\n"


def read_rdf_lines(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """N-Triples and N-Quads, by pyoxigraph; a block that does not parse as a whole is parsed line by line."""
    pyoxigraph, terms = _pyoxigraph(syntax), RdfTerms(source)
    language = getattr(pyoxigraph.RdfFormat, RDF[syntax])
    for raw in whole_lines(source, file):
        try:
            terms.read(pyoxigraph.parse(input=raw, format=language))
        except (SyntaxError, ValueError):
            terms.fields, terms.literals = [], 0
            for line, text in source.lines(raw):
                try:
                    terms.read(pyoxigraph.parse(input=text + b"\n", format=language))
                    source.good = source.good or bool(terms.fields)
                except (SyntaxError, ValueError) as error:
                    source.bad(
                        f"is not {_article(syntax)} {syntax} line ({getattr(error, 'msg', None) or error})", line
                    )
        source.line += raw.count(b"\n")
        yield terms.take()


def read_rdf(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """RDF that is not one statement per line, by pyoxigraph; after a syntax error it continues where that can."""
    pyoxigraph, terms, bad, more = _pyoxigraph(syntax), RdfTerms(source), 0, True
    peeked = file if isinstance(file, Peeked) else Peeked(file)
    checked = CheckedXml(source.path, peeked.as_file()) if syntax == "RDF/XML" else None
    quads = iter(pyoxigraph.parse(input=checked or peeked, format=getattr(pyoxigraph.RdfFormat, RDF[syntax])))
    while more:
        try:
            more = terms.read(quads, 3 * BLOCK_ROWS)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or (checked and checked.error_line) or None
            if line is None or line != bad:  # one bad line gives several errors
                source.bad(f"is not valid {syntax} ({PLACE.sub('', getattr(error, 'msg', None) or str(error))})", line)
            bad = line or bad
        else:
            yield terms.take()


def read_results(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """SPARQL results with three variables: head, relation and tail by name (or subject, …), or else in their order."""
    pyoxigraph, terms = _pyoxigraph("SPARQL results"), RdfTerms(source)
    results = None
    try:
        results = pyoxigraph.parse_query_results(input=file, format=getattr(pyoxigraph.QueryResultsFormat, syntax))
        if isinstance(results, pyoxigraph.QueryBoolean):
            raise InputError(source.path, "is the answer to an ASK query: SELECT a head, a relation and a tail")
        columns = _triple_columns(source.path, [variable.value for variable in results.variables])
        for number, solution in enumerate(results, 1):
            row = [solution[column] for column in columns]
            if None in row:
                source.bad(f"has no {('head', 'relation', 'tail')[row.index(None)]} in result {number:,}", None)
            elif any(isinstance(term, pyoxigraph.Literal) for term in row):
                terms.literals += 1
            else:
                terms.fields += map(terms.name, row)
            if len(terms.fields) >= 3 * BLOCK_ROWS:
                yield terms.take()
    except (SyntaxError, ValueError) as error:
        reason = PLACE.sub("", getattr(error, "msg", None) or str(error))
        source.bad(f"is not valid as SPARQL results in {syntax} ({reason})", getattr(error, "lineno", None))
    finally:
        results = None  # the thread that made it frees it; an error would keep it
    yield terms.take()


def read_json_or_xml(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """SPARQL results, or else RDF: the beginning of the file says which."""
    peeked = Peeked(file)
    begin, file = peeked.peek(), peeked.as_file()
    if syntax == "XML" and b"http://www.w3.org/2005/sparql-results#" not in begin:
        return read_rdf(source, file, "RDF/XML")
    if syntax == "JSON" and (b'"@context"' in begin or b'"@id"' in begin or b'"@graph"' in begin):
        return read_rdf(source, file, "JSON-LD")
    return read_results(source, file, syntax)


def _pyoxigraph(syntax: str) -> Any:
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtra(f"reading {syntax}", "rdf") from None
    return pyoxigraph


def _article(name: str) -> str:
    return "an" if name[0] in "AEIOUN" else "a"


def read_pairs_table(path: Path, least: int = 2) -> Iterator[list[str]]:
    """Rows of a small tab-separated side file (types, readable names), each with at least `least` columns."""
    path = Path(path)
    source = Source(path, skip=False, report=CompileReport())
    with reading_source(path), path.open("rb") as raw, decompressed(path, raw) as file:
        for line, text in numbered_lines(source, file):
            if is_blank(row := text.split(b"\t")):
                continue
            if not is_text(text):
                raise InputError(path, "is not UTF-8 text", line)
            if len(row) < least or not all(row[:least]):
                raise InputError(path, f"needs at least {least} columns separated by tabs", line)
            yield [name.decode() for name in row]


def read_stix(source: Source, file: IO[bytes]) -> Iterator[Block]:
    """A STIX bundle; names and types of its entities are kept in the report."""
    report = source.report
    bundle = read_bundle(source.path, lambda problem: source.bad(problem, None))
    report.headers += bundle.remarks()
    for name, text in bundle.names.items():
        report.descriptions[_utf8(name)] = _utf8(text), _utf8(bundle.kinds[name])
    yield from blocks_of(source, ((None, [_utf8(name) for name in triple]) for triple in bundle.triples))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # JSON may hold half a character


STIX = Format("stix", (), read_stix)


def read_parquet(source: Source, file: IO[bytes]) -> Iterator[Block]:
    """Parquet, by pyarrow: the columns head, relation and tail (or subject, predicate, object), or the only three."""
    if source.path.suffix.lower() in COMPRESSIONS:
        raise InputError(source.path, "is Parquet compressed once more: unpack it first")
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("reading Parquet", "scale") from None
    try:
        table = pyarrow.parquet.ParquetFile(file)
        columns = _triple_columns(source.path, table.schema_arrow.names)
        for batch in table.iter_batches(batch_size=BLOCK_ROWS, columns=columns):
            names = [batch.column(c).cast(pyarrow.string()).cast(pyarrow.binary()).to_pylist() for c in columns]
            rows = [[name or b"" for name in row] for row in zip(*names, strict=True)]
            fields = list(itertools.chain.from_iterable(rows))
            if all(fields) and is_text(b"\n".join(fields)) and max(map(len, fields), default=0) <= LONGEST_NAME:
                yield Block.of(fields)
            else:
                yield from blocks_of(source, enumerate(rows, source.line + 1))
            source.line += batch.num_rows
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # the latter for the name of a column
        raise InputError(source.path, f"cannot be read as Parquet ({error})") from None


def _triple_columns(path: Path, names: list[str]) -> list[str]:
    named = [next((c for c in names if c.lower().encode() in known), None) for known in HEADERS]
    columns = [c for c in named if c is not None]
    columns = columns if len(columns) == 3 else names
    if len(columns) != 3:
        raise InputError(
            path, f"has columns {', '.join(names)}; it needs head, relation, tail (or exactly three columns)"
        )
    if twice := next((c for c in columns if names.count(c) > 1), None):
        raise InputError(path, f"has two columns '{twice}': name them head, relation, tail")
    return columns


FORMATS = [
    Format("tsv", (".tsv", ".txt"), functools.partial(read_delimited, separator=b"\t")),
    Format("csv", (".csv",), functools.partial(read_delimited, separator=b",")),
    Format("ntriples", (".nt", ".ntriples"), functools.partial(read_rdf_lines, syntax="N-Triples")),
    Format("nquads", (".nq", ".nquads"), functools.partial(read_rdf_lines, syntax="N-Quads")),
    Format("turtle", (".ttl", ".turtle"), functools.partial(read_rdf, syntax="Turtle")),
    Format("trig", (".trig",), functools.partial(read_rdf, syntax="TriG")),
    Format("rdfxml", (".rdf", ".owl", ".rdfs"), functools.partial(read_rdf, syntax="RDF/XML")),
    Format("jsonld", (".jsonld",), functools.partial(read_rdf, syntax="JSON-LD")),
    Format("results-json", (".srj", ".json"), functools.partial(read_json_or_xml, syntax="JSON")),
    Format("results-xml", (".srx", ".xml"), functools.partial(read_json_or_xml, syntax="XML")),
    Format("parquet", (".parquet", ".pq"), read_parquet),
]
