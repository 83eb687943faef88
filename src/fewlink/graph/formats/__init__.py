"""File formats of triples: tables of text, JSON lines, RDF, SPARQL results, Parquet and STIX, plain or compressed.

To add a format, write a function `read(source, file)` that yields blocks of triples, and add a line to `FORMATS`. The
function receives the decompressed file. It can pass its rows to `blocks_of`, which checks them and reports bad ones.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from fewlink.core.progress import Advance, silent
from fewlink.core.threads import prefetch
from fewlink.graph.compression import COMPRESSIONS, decompressed, reading_source, size_of
from fewlink.graph.formats.delimited import read_delimited
from fewlink.graph.formats.json_rows import JSON_LINE, read_json
from fewlink.graph.formats.parquet import read_parquet
from fewlink.graph.formats.rdf import read_rdf, read_rdf_lines
from fewlink.graph.formats.sparql_results import read_results
from fewlink.graph.formats.stix import is_bundle, read_stix
from fewlink.graph.source import CompileReport, GraphSource, Peeked, Source
from fewlink.graph.vocabulary import Block


class Format(NamedTuple):
    """A file format, recognised by the suffixes of its files."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Source, IO[bytes]], Iterator[Block]]


def read_triples(
    path: Path, *, reading: GraphSource, report: CompileReport, advance: Advance = silent
) -> Iterator[Block]:
    """Yield the triples of a file in blocks."""
    path = Path(path)
    source = Source(path, reading, report)
    with reading_source(path), path.open("rb") as raw, decompressed(path, raw) as file:
        format = format_of(path)
        source.facts.format = format.name
        size = size_of(raw)
        for block in prefetch(source.counted(format.read(source, file))):
            if len(block.codes):
                report.triples += len(block.codes)
                advance(raw.tell() / max(size, 1) if size is not None else 0.0, f"{report.triples:,} triples")
                yield block


def format_of(path: Path) -> Format:
    """The format of a file, by its suffix before the compression suffix; a table of text if that is unknown."""
    if is_bundle(path):
        return STIX
    name = path.name.lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return next((format for format in FORMATS if Path(name).suffix in format.suffixes), FORMATS[0])


def read_json_or_xml(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """Read SPARQL results or RDF, whichever the beginning of the file shows."""
    peeked = Peeked(file)
    begin = peeked.peek()
    file = peeked.as_file()
    if syntax == "XML" and b"http://www.w3.org/2005/sparql-results#" not in begin:
        return read_rdf(source, file, "RDF/XML")
    if syntax == "JSON" and (b'"@context"' in begin or b'"@id"' in begin or b'"@graph"' in begin):
        source.facts.format = "JSON-LD"
        return read_rdf(source, file, "JSON-LD")
    if syntax == "JSON" and JSON_LINE.match(begin) and not SPARQL_JSON.match(begin):
        return read_json(source, file)
    return read_results(source, file, syntax)


SPARQL_JSON = re.compile(rb'\s*\{\s*"(head"\s*:\s*\{|results"\s*:|boolean"\s*:|link"\s*:)')
STIX = Format("STIX", (), read_stix)  # recognised by its content
FORMATS = [
    Format("TSV", (".tsv", ".txt", ".tab"), functools.partial(read_delimited, separator=b"\t")),
    Format("CSV", (".csv",), functools.partial(read_delimited, separator=b",")),
    Format("JSON lines", (".jsonl", ".ndjson"), read_json),
    Format("N-Triples", (".nt", ".ntriples"), functools.partial(read_rdf_lines, syntax="N-Triples")),
    Format("N-Quads", (".nq", ".nquads"), functools.partial(read_rdf_lines, syntax="N-Quads")),
    Format("Turtle", (".ttl", ".turtle"), functools.partial(read_rdf, syntax="Turtle")),
    Format("TriG", (".trig",), functools.partial(read_rdf, syntax="TriG")),
    Format("RDF/XML", (".rdf", ".owl", ".rdfs"), functools.partial(read_rdf, syntax="RDF/XML")),
    Format("JSON-LD", (".jsonld",), functools.partial(read_rdf, syntax="JSON-LD")),
    Format("SPARQL results in JSON", (".srj", ".json"), functools.partial(read_json_or_xml, syntax="JSON")),
    Format("SPARQL results in XML", (".srx", ".xml"), functools.partial(read_json_or_xml, syntax="XML")),
    Format("Parquet", (".parquet", ".pq"), read_parquet),
]
