"""RDF by pyoxigraph: N-Triples, N-Quads, Turtle, TriG, RDF/XML and JSON-LD."""

from __future__ import annotations

import re
import xml.parsers.expat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from fewlink.core.errors import (
    InputError,
    MissingExtra,
)
from fewlink.graph.source import (
    BLOCK_ROWS,
    LONGEST_NAME,
    Peeked,
    Source,
    whole_lines,
)
from fewlink.graph.vocabulary import (
    Block,
    unquoted,
)

RDF = {
    "N-Triples": "N_TRIPLES",
    "N-Quads": "N_QUADS",
    "Turtle": "TURTLE",
    "TriG": "TRIG",
    "RDF/XML": "RDF_XML",
    "JSON-LD": "JSON_LD",
}
RDF_ERROR_PLACE = re.compile(r"^Parser error at line [^:]*: ")  # our errors name the line themselves
LABELS = frozenset({"http://www.w3.org/2000/01/rdf-schema#label", "http://www.w3.org/2004/02/skos/core#prefLabel"})
UNNAMED = re.compile(r"[0-9a-f]{20,32}")  # what the parser calls a blank node without a name, at random
LONGEST_ENTITY, LONGEST_PROLOG, DEEPEST = 2_000, 1 << 20, 10_000  # bytes of XML; elements in one another


def read_rdf_lines(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """N-Triples and N-Quads, by pyoxigraph; a block that does not parse as a whole is parsed line by line."""
    pyoxigraph, terms = import_pyoxigraph(syntax), RdfTerms(source)
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
    pyoxigraph, terms, bad, more = import_pyoxigraph(syntax), RdfTerms(source), 0, True
    peeked = file if isinstance(file, Peeked) else Peeked(file)
    checked = CheckedXml(source.path, peeked.as_file()) if syntax == "RDF/XML" else None
    quads = iter(pyoxigraph.parse(input=checked or peeked, format=getattr(pyoxigraph.RdfFormat, RDF[syntax])))
    while more:
        try:
            more = terms.read(quads, 3 * BLOCK_ROWS)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or (checked and checked.error_line) or None
            if line is None or line != bad:  # one bad line gives several errors
                source.bad(
                    f"is not valid {syntax} ({RDF_ERROR_PLACE.sub('', getattr(error, 'msg', None) or str(error))})",
                    line,
                )
            bad = line or bad
        else:
            yield terms.take()


def _article(name: str) -> str:
    return "an" if name[0] in "AEIOUN" else "a"


def import_pyoxigraph(syntax: str) -> Any:
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtra(f"reading {syntax}", "rdf") from None
    return pyoxigraph


class RdfTerms:
    """Turns statements of RDF into names; labels are kept in the report, other literals are counted.

    A blank node without a name of its own gets one from its file and its place there.
    """

    def __init__(self, source: Source) -> None:
        import pyoxigraph

        if source.report.labels is None:
            source.report.labels = {}
        self.report, self.labels, self.file = source.report, source.report.labels, source.path.name
        self.literal, self.blank_node = pyoxigraph.Literal, pyoxigraph.BlankNode
        self.unnamed: dict[str, bytes] = {}
        self.fields: list[bytes] = []
        self.literals = 0

    def read(self, quads: Iterable[Any], most: int = 1 << 62) -> bool:
        """Add head, relation, tail, head, … of statements to `fields` until it has `most`; False at their end."""
        fields, literal, name = self.fields, self.literal, self.name
        for quad in quads:
            if isinstance(quad.object, literal):
                self.literals += not self.add_label(quad)
                continue
            triple = (name(quad.subject), name(quad.predicate), name(quad.object))
            if max(map(len, triple)) > LONGEST_NAME:
                raise ValueError(f"a name of over {LONGEST_NAME:,} bytes")
            fields += triple
            if len(fields) >= most:
                return True
        return False

    def name(self, term: Any) -> bytes:
        value: str = getattr(term, "value", None) or str(term)
        if type(term) is self.blank_node and UNNAMED.fullmatch(value):
            return self.unnamed.setdefault(value, f"_:{self.file}-{len(self.unnamed) + 1}".encode())
        return unquoted(value).encode()

    def take(self) -> Block:
        """What was read since the last call; its literals are counted in the report."""
        block = Block.of(self.fields)
        self.report.literals += self.literals
        self.fields, self.literals = [], 0
        return block

    def add_label(self, quad: Any) -> bool:
        """Whether the statement is a label; of several, English comes first, then one without a language."""
        if quad.predicate.value not in LABELS:
            return False
        language = quad.object.language or ""
        rank = 0 if language.lower().partition("-")[0] == "en" else 1 if not language else 2
        text = " ".join(quad.object.value.split()).encode()
        subject = self.name(quad.subject)
        if text and len(text) <= LONGEST_NAME and rank < self.labels.get(subject, (3, b""))[0]:
            self.labels[subject] = rank, text
        return True


class CheckedXml(Peeked):
    """XML that is read up to its first error, which is on `error_line`. Raises if elements are nested deeply, which
    would take hours, or if an entity is declared that stands for much text, of which a few would fill the memory."""

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
        if not self.begun and self.count > LONGEST_PROLOG:
            raise InputError(self.path, f"has no element in its first {LONGEST_PROLOG:,} bytes")
        self.begun -= max(0, len(self.ended) - 1)
        del self.ended[1:]
        return content

    def _element(self, name: str, attributes: object) -> None:
        self.begun += 1
        if self.begun - len(self.ended) > DEEPEST:
            problem = f"has elements that are nested over {DEEPEST:,} deep: write it as N-Triples or Turtle"
            raise InputError(self.path, problem, self.parser.CurrentLineNumber)
        if self.begun == 1:
            self._check_entities()

    def _check_entities(self) -> None:
        sizes: dict[str, int] = {}
        for name, text in self.declared.items():  # an entity can only refer to those before it
            inside = re.findall("&([^;#]+);", text)
            sizes[name] = len(text) + sum(sizes.get(other, 0) for other in inside)
            if sizes[name] > LONGEST_ENTITY or any(other in self.declared and other not in sizes for other in inside):
                problem = f"declares an entity '{name}' that stands for over {LONGEST_ENTITY:,} bytes"
                raise InputError(self.path, problem)
