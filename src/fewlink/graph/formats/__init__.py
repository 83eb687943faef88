"""File formats of triples: tab- or comma-separated text, RDF, SPARQL results, Parquet and STIX, plain or compressed.

To add a format, write a function `read(source, file)` that yields blocks of triples, and add a line to `FORMATS`. The
function receives the decompressed file. It can pass its rows to `blocks_of`, which checks them and reports bad ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from fewlink.core.progress import Advance, silent
from fewlink.core.threads import prefetch
from fewlink.graph.compression import COMPRESSIONS, decompressed, reading_source
from fewlink.graph.formats.delimited import read_delimited
from fewlink.graph.formats.parquet import read_parquet
from fewlink.graph.formats.rdf import read_rdf, read_rdf_lines
from fewlink.graph.formats.sparql_results import RESULTS_HEADER, read_results
from fewlink.graph.formats.stix import is_bundle, read_stix
from fewlink.graph.source import CompileReport, Peeked, Source
from fewlink.graph.vocabulary import Block


class Format(NamedTuple):
    """A file format, recognised by the suffixes of its files."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Source, IO[bytes]], Iterator[Block]]


def read_triples(path: Path, *, skip: bool, report: CompileReport, advance: Advance = silent) -> Iterator[Block]:
    """Yield the triples of a file in blocks. A bad line raises, or with `skip` is counted."""
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
    """The format of a file, by its suffix before the compression suffix; tab-separated text if that is unknown."""
    if is_bundle(path):
        return STIX
    name = path.name.lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return next((format for format in FORMATS if Path(name).suffix in format.suffixes), FORMATS[0])


def read_tsv(source: Source, file: IO[bytes]) -> Iterator[Block]:
    """Read tab-separated text, or SPARQL results in TSV, whose first line names variables."""
    peeked = Peeked(file)
    if RESULTS_HEADER.match(peeked.peek()):
        return read_results(source, peeked.as_file(), "TSV")
    return read_delimited(source, peeked.as_file(), b"\t")


def read_json_or_xml(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """Read SPARQL results or RDF, whichever the beginning of the file shows."""
    peeked = Peeked(file)
    begin = peeked.peek()
    file = peeked.as_file()
    if syntax == "XML" and b"http://www.w3.org/2005/sparql-results#" not in begin:
        return read_rdf(source, file, "RDF/XML")
    if syntax == "JSON" and (b'"@context"' in begin or b'"@id"' in begin or b'"@graph"' in begin):
        return read_rdf(source, file, "JSON-LD")
    return read_results(source, file, syntax)


STIX = Format("stix", (), read_stix)  # recognised by its content
FORMATS = [
    Format("tsv", (".tsv", ".txt"), read_tsv),
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
