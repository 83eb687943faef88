"""RDF, read by pyoxigraph: N-Triples, N-Quads, Turtle, TriG, RDF/XML and JSON-LD."""

from __future__ import annotations

import re
import xml.parsers.expat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from fewlink.core.errors import InputError, MissingExtra
from fewlink.graph.source import BLOCK_ROWS, MAX_NAME_BYTES, Peeked, Source, whole_lines
from fewlink.graph.vocabulary import Block, unquoted

PYOXIGRAPH_NAMES = {
    "N-Triples": "N_TRIPLES",
    "N-Quads": "N_QUADS",
    "Turtle": "TURTLE",
    "TriG": "TRIG",
    "RDF/XML": "RDF_XML",
    "JSON-LD": "JSON_LD",
}
RDF_ERROR_PLACE = re.compile(r"^Parser error at line [^:]*: ")  # InputError names the line
LABELS = frozenset({"http://www.w3.org/2000/01/rdf-schema#label", "http://www.w3.org/2004/02/skos/core#prefLabel"})
UNNAMED = re.compile(r"[0-9a-f]{20,32}")  # random names that the parser gives to unnamed blank nodes
MAX_ENTITY_BYTES = 2_000
MAX_PROLOG_BYTES = 1 << 20
MAX_DEPTH = 10_000  # of nested elements


def read_rdf_lines(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """Read N-Triples or N-Quads; a block with a syntax error is parsed line by line."""
    source.reject_columns()
    pyoxigraph = import_pyoxigraph(syntax)
    terms = RdfTerms(source)
    format = getattr(pyoxigraph.RdfFormat, PYOXIGRAPH_NAMES[syntax])
    for raw in whole_lines(source, file):
        try:
            terms.read(pyoxigraph.parse(input=raw, format=format))
        except (SyntaxError, ValueError):
            terms.fields, terms.literals = [], 0
            for line, text in source.lines(raw):
                try:
                    terms.read(pyoxigraph.parse(input=text + b"\n", format=format))
                    source.good = source.good or bool(terms.fields)
                except (SyntaxError, ValueError) as error:
                    source.bad(f"is not valid {syntax} ({getattr(error, 'msg', None) or error})", line)
        source.line += raw.count(b"\n")
        yield terms.take()


def read_rdf(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """Read RDF that is not one statement per line; after a syntax error, continue where the parser can."""
    source.reject_columns()
    pyoxigraph = import_pyoxigraph(syntax)
    terms = RdfTerms(source)
    format = getattr(pyoxigraph.RdfFormat, PYOXIGRAPH_NAMES[syntax])
    peeked = file if isinstance(file, Peeked) else Peeked(file)
    checked = CheckedXml(source.path, peeked.as_file()) if syntax == "RDF/XML" else None
    quads = iter(pyoxigraph.parse(input=checked or peeked, format=format))
    bad_line = 0
    more = True
    while more:
        try:
            more = terms.read(quads, 3 * BLOCK_ROWS)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or (checked and checked.error_line) or None
            if line is None or line != bad_line:  # one bad line causes several errors
                reason = RDF_ERROR_PLACE.sub("", getattr(error, "msg", None) or str(error))
                source.bad(f"is not valid {syntax} ({reason})", line)
            bad_line = line or bad_line
        else:
            yield terms.take()


def import_pyoxigraph(syntax: str) -> Any:
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtra(f"reading {syntax}", "rdf") from None
    return pyoxigraph


class RdfTerms:
    """The names in RDF statements. Labels go to the report, and other literals are counted.

    An unnamed blank node gets a name from its file and its place in it.
    """

    def __init__(self, source: Source) -> None:
        import pyoxigraph

        if source.report.labels is None:
            source.report.labels = {}
        self.keep_literals = source.reading.keep_literals
        self.report, self.labels, self.file = source.report, source.report.labels, source.path.name
        self.literal, self.blank_node = pyoxigraph.Literal, pyoxigraph.BlankNode
        self.unnamed: dict[str, bytes] = {}
        self.fields: list[bytes] = []
        self.literals = 0

    def read(self, quads: Iterable[Any], max_fields: int = 1 << 62) -> bool:
        """Add head, relation, tail, head, … to `fields` until it has `max_fields`; return False after the last."""
        fields, literal, name = self.fields, self.literal, self.name
        for quad in quads:
            if isinstance(quad.object, literal):
                is_label = self.add_label(quad)
                if is_label or not self.keep_literals:
                    self.literals += not is_label
                    continue
            triple = (name(quad.subject), name(quad.predicate), name(quad.object))
            if max(map(len, triple)) > MAX_NAME_BYTES:
                raise ValueError(f"a name of over {MAX_NAME_BYTES:,} bytes")
            fields += triple
            if len(fields) >= max_fields:
                return True
        return False

    def name(self, term: Any) -> bytes:
        """The name of an IRI or blank node."""
        value: str = getattr(term, "value", None) or str(term)
        if type(term) is self.blank_node and UNNAMED.fullmatch(value):
            return self.unnamed.setdefault(value, f"_:{self.file}-{len(self.unnamed) + 1}".encode())
        return unquoted(value).encode()

    def take(self) -> Block:
        """Return the triples read since the last call, and add their literals to the report."""
        block = Block.of(self.fields)
        self.report.literals += self.literals
        self.fields, self.literals = [], 0
        return block

    def add_label(self, quad: Any) -> bool:
        """Store a label and return True; False if it is none. English is preferred, then a label without a language."""
        if quad.predicate.value not in LABELS:
            return False
        language = quad.object.language or ""
        rank = 2 if language else 1
        if language.lower().partition("-")[0] == "en":
            rank = 0
        text = " ".join(quad.object.value.split()).encode()
        subject = self.name(quad.subject)
        if text and len(text) <= MAX_NAME_BYTES and rank < self.labels.get(subject, (3, b""))[0]:
            self.labels[subject] = rank, text
        return True


class CheckedXml(Peeked):
    """XML up to its first error, which is on `error_line`.

    Reading raises if elements are nested so deeply that parsing would take hours, or if an entity stands for so much
    text that a few references would fill the memory.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__(file)
        self.path, self.declared, self.error_line = path, dict[str, str](), 0
        self.count, self.begun, self.ended = 0, 0, list[str]()  # bytes, and elements
        self.parser = xml.parsers.expat.ParserCreate()
        self.parser.ordered_attributes = True
        self.parser.EntityDeclHandler = lambda name, of_dtd, text, *_: self.declared.setdefault(name, text or "")
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._element, self.ended.append

    def read(self, size: int = -1, /) -> bytes:
        content = b"" if self.error_line else super().read(size)
        self.count += len(content)
        try:
            self.parser.Parse(content, not content)
        except xml.parsers.expat.ExpatError as error:
            self.error_line = self.error_line or error.lineno
            if not self.begun:
                raise InputError(self.path, f"is not valid XML ({error})", error.lineno) from None
        if not self.begun and self.count > MAX_PROLOG_BYTES:
            raise InputError(
                self.path, f"has no element in its first {MAX_PROLOG_BYTES:,} bytes: check that it is RDF/XML"
            )
        self.begun -= max(0, len(self.ended) - 1)
        del self.ended[1:]
        return content

    def _element(self, name: str, attributes: object) -> None:
        self.begun += 1
        if self.begun - len(self.ended) > MAX_DEPTH:
            problem = f"nests elements over {MAX_DEPTH:,} deep: write it as N-Triples or Turtle"
            raise InputError(self.path, problem, self.parser.CurrentLineNumber)
        if self.begun == 1:
            self._check_entities()

    def _check_entities(self) -> None:
        sizes: dict[str, int] = {}
        for name, text in self.declared.items():  # an entity can refer only to earlier ones
            inside = re.findall("&([^;#]+);", text)
            sizes[name] = len(text) + sum(sizes.get(other, 0) for other in inside)
            if sizes[name] > MAX_ENTITY_BYTES or any(other in self.declared and other not in sizes for other in inside):
                problem = f"declares an XML entity '{name}' of over {MAX_ENTITY_BYTES:,} bytes: write it as Turtle"
                raise InputError(self.path, problem)
