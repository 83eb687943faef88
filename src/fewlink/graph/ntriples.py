"""Triples from N-Triples, by pyoxigraph; literal objects are counted and left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from fewlink.base.errors import MissingExtra
from fewlink.graph.source import LONGEST_NAME, Block, Source, whole_lines


def read_ntriples(source: Source, file: IO[bytes]) -> Iterator[Block]:
    """The blocks of a file; one that does not parse as a whole is parsed line by line."""
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtra("reading N-Triples", "rdf") from None

    def parse(raw: bytes) -> tuple[list[bytes], int]:
        fields, literals = [], 0
        for quad in pyoxigraph.parse(input=raw, format=pyoxigraph.RdfFormat.N_TRIPLES):
            if isinstance(quad.object, pyoxigraph.Literal):
                literals += 1
            else:
                terms = (quad.subject, quad.predicate, quad.object)
                fields += [(getattr(term, "value", None) or str(term)).encode() for term in terms]
        if max(map(len, fields), default=0) > LONGEST_NAME:
            raise ValueError(f"a name of over {LONGEST_NAME:,} bytes")
        return fields, literals

    for raw in whole_lines(source, file):
        try:
            fields, literals = parse(raw)
        except (SyntaxError, ValueError):
            fields, literals = [], 0
            for line, text in source.lines(raw):
                try:
                    one, more = parse(text + b"\n")
                except (SyntaxError, ValueError) as error:
                    source.bad(f"is not an N-Triples line ({getattr(error, 'msg', None) or error})", line)
                    continue
                fields += one
                literals += more
        source.report.literals += literals
        source.line += raw.count(b"\n")
        yield Block.of(fields)
