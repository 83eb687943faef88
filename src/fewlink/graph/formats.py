"""File formats of triples: tables of text, JSON lines, Parquet, RDF, SPARQL results and STIX, plain or compressed.

To add a format, write a function `read(reader, file)` that gives `reader` its triples, and add a line to `FORMATS`.
"""

from __future__ import annotations

import codecs
import functools
import io
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from fewlink.core.errors import InputError
from fewlink.graph.plain import (
    COMPRESSIONS,
    PEEKED_BYTES,
    bounded,
    check_text,
    opened,
    reading_source,
    rewrite,
    utf_16_of,
)
from fewlink.graph.rdf import read_rdf, read_rdf_lines
from fewlink.graph.source import CompileReport, GraphSource
from fewlink.graph.sparql import RESULTS_HEADER, read_results
from fewlink.graph.stix import is_bundle, read_stix
from fewlink.graph.tables import JSON_LINE, Reader, first_line, lines_of, read_json, read_parquet, read_text

N_TRIPLES_LINE = re.compile(rb"\s*(<[^<>\s]+>|_:\S+)[ \t]+<[^<>\s]+>[ \t]+[<_\"][^\n]*[>\w\"][ \t]*\.[ \t]*\r?(\n|$)")
SPARQL_JSON = re.compile(rb'\s*\{\s*"(head"\s*:\s*\{|results"\s*:|boolean"\s*:|link"\s*:)')


class Format(NamedTuple):
    """A file format, recognised by the suffixes of its files."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Reader], None]


def read_files(engine: Any, source: GraphSource, report: CompileReport) -> None:
    """Fill the engine's table `raw` (h, r, t) with the triples of files, in their order.

    The tables `label` and `kind` get the readable names and the types that RDF and STIX state.
    """
    run = engine.execute
    run("CREATE OR REPLACE TABLE raw (h VARCHAR, r VARCHAR, t VARCHAR)")
    run("CREATE OR REPLACE TABLE label (name VARCHAR, rank INTEGER, text VARCHAR)")
    run("CREATE OR REPLACE TABLE kind (name VARCHAR, kind VARCHAR)")
    run("CREATE TABLE IF NOT EXISTS entity (id INTEGER, name VARCHAR)")
    for path in source.paths:
        with reading_source(path), tempfile.TemporaryDirectory(prefix="fewlink-") as folder:
            _read_file(engine, path, source, report, Path(folder))
    ((count, last),) = run("SELECT count(*), coalesce(max(rowid) + 1, 0) FROM raw").fetchall()
    if count != last:  # without the rows that were left out, positions are counted anew
        run("CREATE OR REPLACE TABLE raw AS SELECT * FROM raw ORDER BY rowid").fetchall()
    report.triples = count


def _read_file(engine: Any, path: Path, source: GraphSource, report: CompileReport, folder: Path) -> None:
    import duckdb

    file = path
    if path.is_fifo():  # which can be read only once
        file = folder / "pipe"
        rewrite(path, file)
    reader = Reader(engine, file, source, report, folder)
    reader.facts.file = str(path)
    format = format_of(path)
    reader.facts.format = format.name
    try:
        format.read(reader)
    except InputError as error:
        raise InputError(path, error.problem, error.line) from None
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        raise InputError(path, f"cannot be read ({first_line(error)})") from None


def format_of(path: Path) -> Format:
    """The format of a file, by its suffix before the compression suffix; a table of text if that is unknown."""
    if is_bundle(path):
        return STIX
    name = path.name.lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return next((format for format in FORMATS if Path(name).suffix in format.suffixes), FORMATS[0])


def _begin(reader: Reader) -> bytes:
    """The first bytes of a file, decompressed."""
    path = reader.path
    if path.suffix.lower() != ".zst":
        with opened(path) as file:
            return file.read(PEEKED_BYTES)
    query = f"SELECT line FROM {lines_of(path)} LIMIT 200"
    return "".join(f"{line or ''}\n" for (line,) in reader.engine.execute(query).fetchall()).encode()


def _table(reader: Reader, separator: str) -> None:
    """Read a table of text, or what else has the suffix of one: SPARQL results, JSON lines or N-Triples."""
    begin = _begin(reader)
    check_text(reader.path, begin)
    encoding = utf_16_of(begin)
    if encoding:
        reader.facts.encoding = encoding.upper()
        begin = begin[: len(begin) // 2 * 2].decode(encoding, "replace").encode()
    else:
        reader.facts.encoding = "UTF-8"
    begin = begin.removeprefix(b"\xef\xbb\xbf")
    if RESULTS_HEADER.match(begin):
        _stream(reader, read_results, "TSV", "SPARQL results in TSV")
    elif JSON_LINE.match(begin):
        read_json(reader, begin)
    elif N_TRIPLES_LINE.match(begin):
        _stream(reader, read_rdf_lines, "N-Triples", "N-Triples")
    else:
        read_text(reader, begin, separator, encoding)


def _json_or_xml(reader: Reader, syntax: str) -> None:
    """Read SPARQL results, RDF or JSON lines, whichever the beginning of the file shows."""
    begin = _begin(reader)
    if syntax == "XML" and b"http://www.w3.org/2005/sparql-results#" not in begin:
        _stream(reader, read_rdf, "RDF/XML", "RDF/XML")
    elif syntax == "JSON" and (b'"@context"' in begin or b'"@id"' in begin or b'"@graph"' in begin):
        _stream(reader, read_rdf, "JSON-LD", "JSON-LD")
    elif syntax == "JSON" and JSON_LINE.match(begin) and not SPARQL_JSON.match(begin):
        read_json(reader, begin)
    else:
        _stream(reader, read_results, syntax, reader.facts.format)


def _stream(reader: Reader, read: Callable[[Reader, IO[bytes], str], None], syntax: str, name: str = "") -> None:
    """Read a file as a stream of bytes, without its byte order mark."""
    reader.facts.format = name or syntax
    with opened(reader.path) as raw:
        lines = read is read_rdf_lines
        file = raw if lines else io.BufferedReader(bounded(raw, reader.path))
        if cast("io.BufferedReader", file).peek(3).startswith(codecs.BOM_UTF8):
            file.read(3)
        read(reader, file, syntax)


def _rdf(syntax: str) -> Callable[[Reader], None]:
    lines = syntax in ("N-Triples", "N-Quads")
    return functools.partial(_stream, read=read_rdf_lines if lines else read_rdf, syntax=syntax)


STIX = Format("STIX", (), read_stix)  # recognised by its content
FORMATS = [
    Format("TSV", (".tsv", ".txt", ".tab"), functools.partial(_table, separator="\t")),
    Format("CSV", (".csv",), functools.partial(_table, separator=",")),
    Format("JSON lines", (".jsonl", ".ndjson"), lambda reader: read_json(reader, _begin(reader))),
    Format("N-Triples", (".nt", ".ntriples"), _rdf("N-Triples")),
    Format("N-Quads", (".nq", ".nquads"), _rdf("N-Quads")),
    Format("Turtle", (".ttl", ".turtle"), _rdf("Turtle")),
    Format("TriG", (".trig",), _rdf("TriG")),
    Format("RDF/XML", (".rdf", ".owl", ".rdfs"), _rdf("RDF/XML")),
    Format("JSON-LD", (".jsonld",), _rdf("JSON-LD")),
    Format("SPARQL results in JSON", (".srj", ".json"), functools.partial(_json_or_xml, syntax="JSON")),
    Format("SPARQL results in XML", (".srx", ".xml"), functools.partial(_json_or_xml, syntax="XML")),
    Format("Parquet", (".parquet", ".pq"), read_parquet),
]
