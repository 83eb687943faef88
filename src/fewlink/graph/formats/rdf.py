"""RDF, read by pyoxigraph: N-Triples, N-Quads, Turtle, TriG, RDF/XML and JSON-LD.

Nesting at which pyoxigraph crashes, and XML that is not well-formed, which it accepts, are found before they reach it.
"""

from __future__ import annotations

import io
import itertools
import re
import xml.parsers.expat
from collections.abc import Iterable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from fewlink.core.errors import InputError, MissingExtra
from fewlink.graph.source import BLOCK_BYTES, BLOCK_ROWS, MAX_LINE_BYTES, MAX_NAME_BYTES, Peeked, Source, whole_lines
from fewlink.graph.vocabulary import Block, unquoted

PYOXIGRAPH_NAMES = {
    "N-Triples": "N_TRIPLES",
    "N-Quads": "N_QUADS",
    "Turtle": "TURTLE",
    "TriG": "TRIG",
    "RDF/XML": "RDF_XML",
    "JSON-LD": "JSON_LD",
}
PARSER_ERRORS = (SyntaxError, ValueError, MemoryError)  # the last if a term is longer than the parser's buffer
RDF_ERROR_PLACE = re.compile(r"^Parser error at line [^:]*: ")  # InputError names the line
REMOTE_CONTEXT = "LoadDocumentCallback"  # in pyoxigraph's error for a context that is an address
LABELS = frozenset({"http://www.w3.org/2000/01/rdf-schema#label", "http://www.w3.org/2004/02/skos/core#prefLabel"})
RELATIVE = "relative:/"  # the base of IRIs that have none
UNNAMED = re.compile(r"[0-9a-f]{20,32}")  # random names that the parser gives to unnamed blank nodes
PIECE_BYTES = 1 << 20
PLAIN_IRI = rb"<(https?://[a-zA-Z0-9.-]{1,99}/[\w./?&=+,;@!~*()':-]{0,999}(?:#[\w./?&=+,;@!~*()':-]{0,999})?)>"
PLAIN_LINE = re.compile(rb"^" + rb" ".join([PLAIN_IRI] * 3) + rb" \.\n", re.MULTILINE)  # whose IRIs are valid
QUOTE = b"<<"  # begins a quoted triple
MAX_NESTING = 100  # of quoted triples, and of JSON; pyoxigraph crashes at a few thousand
MAX_PREFIX_BYTES = 2_000  # of an entity or a namespace in XML, which stand for more text than is written
MAX_PROLOG_BYTES = 1 << 20
XML_BASE = "http://www.w3.org/XML/1998/namespace base"
MAX_DEPTH = 10_000  # of nested elements


def read_rdf_lines(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """Read N-Triples or N-Quads; a block with a syntax error is parsed line by line."""
    source.reject_columns()
    pyoxigraph = import_pyoxigraph(syntax)
    terms = RdfTerms(source)
    format = getattr(pyoxigraph.RdfFormat, PYOXIGRAPH_NAMES[syntax])
    for raw in whole_lines(source, file):
        if raw.count(QUOTE) > MAX_NESTING:
            for line, text in source.lines(raw):
                if text.count(QUOTE) > MAX_NESTING:
                    Nesting(source, TURTLE, line - 1).check(text)
        plain = syntax == "N-Triples" and _read_plain_lines(source, terms, raw)
        try:
            count = terms.count
            terms.read(() if plain else pyoxigraph.parse(input=raw, format=format))
            count = terms.count - count
            if not plain and count != raw.count(b"\n") and count != _statement_lines(source, raw):
                raise ValueError("a statement that is not on one line")
        except PARSER_ERRORS:
            terms.fields = []
            terms.literals = 0
            for line, text in source.lines(raw):
                try:
                    terms.read(pyoxigraph.parse(input=text + b"\n", format=format))
                    source.good = source.good or bool(terms.fields)
                except PARSER_ERRORS as error:
                    source.bad(f"is not valid {syntax} ({reason_of(error)})", line)
        source.line += raw.count(b"\n")
        yield terms.take()


def _read_plain_lines(source: Source, terms: RdfTerms, raw: bytes) -> bool:
    """Read lines of N-Triples at once, if all triples between entities are plain; return False, if not, and read none.

    The parser reads the other lines, which are literals.
    """
    import pyoxigraph

    found = PLAIN_LINE.findall(raw)
    if not found:
        return False
    rest = PLAIN_LINE.sub(b"", raw) if len(found) < raw.count(b"\n") else b""
    count = terms.count
    try:
        terms.read(pyoxigraph.parse(input=rest, format=pyoxigraph.RdfFormat.N_TRIPLES) if rest else ())
        lines = terms.count - count
        wrong = bool(terms.fields) or (lines != rest.count(b"\n") and lines != _statement_lines(source, rest))
    except PARSER_ERRORS:
        wrong = True
    if wrong:
        terms.fields = []
        terms.size = 0
        terms.literals = 0
        terms.count = count
        return False
    terms.fields = list(itertools.chain.from_iterable(found))
    source.good = True
    return True


def _statement_lines(source: Source, raw: bytes) -> int:
    """The number of lines that are neither blank nor a comment."""
    return sum(not text.lstrip().startswith(b"#") for _, text in source.lines(raw))


def read_rdf(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """Read RDF that is not one statement per line; after a syntax error, continue where the parser can."""
    source.reject_columns()
    pyoxigraph = import_pyoxigraph(syntax)
    terms = RdfTerms(source)
    format = getattr(pyoxigraph.RdfFormat, PYOXIGRAPH_NAMES[syntax])
    peeked = file if isinstance(file, Peeked) else Peeked(file)
    document = CheckedXml(source, peeked.as_file()) if syntax == "RDF/XML" else None
    text = document or Pieces(Nesting(source, JSON if syntax == "JSON-LD" else TURTLE).checked(peeked.as_file()))
    quads = iter(pyoxigraph.parse(input=text, format=format))
    if syntax == "JSON-LD":  # a strict parser would leave out names that are no valid IRIs, and say nothing
        quads = pyoxigraph.parse(input=text, format=format, base_iri=RELATIVE, lenient=True)
        quads = (quad for quad in quads if ":" in quad.predicate.value)  # other keys have no definition
    bad_line = 0
    more = True
    while more:
        try:
            more = terms.read(quads, 3 * BLOCK_ROWS, BLOCK_BYTES)
        except PARSER_ERRORS as error:
            line = getattr(error, "lineno", None)
            if document and document.problem:
                continue  # which is reported below
            if line is None or line != bad_line:  # one bad line causes several errors
                source.bad(f"is not valid {syntax} ({reason_of(error)})", line)
            bad_line = line or bad_line
        else:
            yield terms.take()
    if document and document.problem:
        reason, line = document.problem
        source.bad(f"is not valid RDF/XML ({reason}), and nothing after it is read", line)


def import_pyoxigraph(syntax: str) -> Any:
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtra(f"reading {syntax}", "rdf") from None
    return pyoxigraph


def reason_of(error: Exception) -> str:
    """What is wrong, in the parser's words, without the place."""
    reason = RDF_ERROR_PLACE.sub("", getattr(error, "msg", None) or str(error))
    if REMOTE_CONTEXT in reason:
        return "its @context is an address, and nothing is downloaded: write the context itself into the file"
    return reason


class Terms:
    """The names in triples of RDF. Labels go to the report, and other literals are counted.

    `fields` are the head, relation, tail, head, … that were read since the last block.
    """

    def __init__(self, source: Source) -> None:
        if source.report.labels is None:
            source.report.labels = {}
        self.source = source
        self.labels = source.report.labels
        self.keep_literals = source.reading.keep_literals
        self.fields: list[bytes] = []
        self.size = 0  # bytes of the fields
        self.literals = 0

    def add(self, *triple: bytes) -> None:
        """Add a triple; raise ValueError if a name is too long."""
        size = sum(map(len, triple))
        if size > MAX_NAME_BYTES and max(map(len, triple)) > MAX_NAME_BYTES:
            raise ValueError(f"a name of over {MAX_NAME_BYTES:,} bytes")
        self.fields += triple
        self.size += size

    def take(self) -> Block:
        """Return the triples read since the last call, and add their literals to the report."""
        block = Block.of(self.fields)
        self.source.report.literals += self.literals
        self.fields = []
        self.size = 0
        self.literals = 0
        return block

    def add_label(self, subject: bytes, value: str, language: str) -> None:
        """Store a label. English is preferred, then a label without a language."""
        rank = 2 if language else 1
        if language.lower().partition("-")[0] == "en":
            rank = 0
        text = " ".join(value.split()).encode("utf-8", "replace")
        if text and len(text) <= MAX_NAME_BYTES and rank < self.labels.get(subject, (3, b""))[0]:
            self.labels[subject] = rank, text


class RdfTerms(Terms):
    """The names in pyoxigraph's triples. An unnamed blank node gets a name from its file and its place in it."""

    def __init__(self, source: Source) -> None:
        import pyoxigraph

        super().__init__(source)
        self.literal = pyoxigraph.Literal
        self.blank_node = pyoxigraph.BlankNode
        self.unnamed: dict[str, bytes] = {}
        self.count = 0  # of statements

    def read(self, quads: Iterable[Any], max_fields: int = 1 << 62, max_bytes: int = 1 << 62) -> bool:
        """Add triples to `fields` until it has `max_fields` or over `max_bytes`; return False after the last."""
        literal = self.literal
        name = self.name
        for quad in quads:
            self.count += 1
            if isinstance(quad.object, literal) and self._is_left_out(quad):
                continue
            self.add(name(quad.subject), name(quad.predicate), name(quad.object))
            if len(self.fields) >= max_fields or self.size > max_bytes:
                return True
        return False

    def name(self, term: Any) -> bytes:
        """The name of an IRI or blank node."""
        value: str = getattr(term, "value", None) or str(term)
        if type(term) is self.blank_node and UNNAMED.fullmatch(value):
            return self.unnamed.setdefault(value, f"_:{self.source.path.name}-{len(self.unnamed) + 1}".encode())
        return unquoted(value.removeprefix(RELATIVE)).encode()

    def _is_left_out(self, quad: Any) -> bool:
        """Whether a triple with a literal is a label, which is stored, or another one that is not kept."""
        relation = quad.predicate.value
        text = quad.object.value
        if relation in LABELS:
            self.add_label(self.name(quad.subject), text, quad.object.language or "")
        elif self.keep_literals:
            return False
        else:
            self.literals += 1
        self.source.spend(len(getattr(quad.subject, "value", "")) + len(relation) + len(text))
        return True


class Brackets(NamedTuple):
    """The brackets of a syntax, and the tokens in which they mean nothing.

    `token` matches a whole string, IRI or comment, or else its group a bracket. `text` matches tokens and what is
    between them, up to a token whose end is not there yet. Statements end with `end` and white space: no bracket is
    open after it.
    """

    what: str
    opening: bytes  # each of these bytes opens 1 / `size` brackets
    closing: bytes
    size: int
    token: re.Pattern[bytes]
    text: re.Pattern[bytes]
    end: bytes = b""


STRING = rb'"(?:[^"\\\n\r]++|\\.)++["\n\r]|""(?=[^"])|"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+"""'  # at most one line, or long
TURTLE_TOKEN = rb"<[^>\n\r]*+>|\#[^\n\r]*+(?=[\n\r])|" + STRING + b"|" + STRING.replace(b'"', b"'")
TURTLE = Brackets(
    "quoted triples",
    b"<",
    b">",
    2,
    re.compile(rb"(<<)|" + TURTLE_TOKEN, re.DOTALL),
    re.compile(rb"(?:[^\"'<#\\]++|\\.|<<|" + TURTLE_TOKEN + rb"|<(?=[^<>\n\r][^>\n\r]*+[\n\r]|[\n\r]))*+", re.DOTALL),
    b".",
)
JSON_TOKEN = rb'"(?:[^"\\]++|\\.)*+"'
LONG_NAME = re.compile(rb'"[^"\s]{%d,}+"' % MAX_PREFIX_BYTES)
JSON = Brackets(
    "objects and lists",
    b"[{",
    b"]}",
    1,
    re.compile(b"()" + JSON_TOKEN, re.DOTALL),
    re.compile(rb'(?:[^"]++|' + JSON_TOKEN + rb")*+", re.DOTALL),
)


class Nesting:
    """The depth of brackets in a text that is read piece by piece."""

    def __init__(self, source: Source, brackets: Brackets, line: int = 0) -> None:
        self.source = source
        self.path = source.path
        self.brackets = brackets
        self.line = line
        self.steps = np.zeros(256, np.int32)  # by byte
        self.steps[list(brackets.opening)] = 1
        self.steps[list(brackets.closing)] = -1
        self.depth = 0
        self.strings = 0
        self.longest = 0

    def checked(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yield the pieces of a file; raise before brackets are too deep, or a token is too long."""
        rest = b""
        while piece := file.read(PIECE_BYTES):
            rest += piece
            whole = self.brackets.text.match(rest)
            end = whole.end() if whole else 0
            self.check(rest[:end])
            if self.brackets is JSON:
                self._check_prefixes(rest[:end])
            rest = rest[end:]
            if len(rest) > MAX_LINE_BYTES:
                problem = f"has text of over {MAX_LINE_BYTES:,} bytes: check for a quote that is not closed"
                raise InputError(self.path, problem, self.line + 1)
            yield piece

    def check(self, text: bytes) -> None:
        """Raise if the brackets of the next text, which ends with a whole token, are too deep."""
        brackets = self.brackets
        if self.depth or brackets.opening[:1] * brackets.size in text or brackets.opening[-1:] * brackets.size in text:
            depths = self._depths(brackets.token.sub(rb"\1", text))
            if depths.max(initial=0) > MAX_NESTING * brackets.size:
                text = brackets.token.sub(lambda token: token[1] or b"\n" * token[0].count(b"\n"), text)
                line = self.line + 1 + text.count(b"\n", 0, int(np.argmax(depths > MAX_NESTING * brackets.size)))
                raise InputError(self.path, f"nests {brackets.what} over {MAX_NESTING} deep", line)
            self.depth = max(0, int(depths[-1])) if len(depths) else self.depth
        self.line += text.count(b"\n")

    def _check_prefixes(self, text: bytes) -> None:
        """Raise if the longest text that may be a prefix would fill the memory if every name began with it."""
        self.strings += text.count(b'"') // 2
        self.longest = max(self.longest, *map(len, LONG_NAME.findall(text)), 0)
        self.source.budget.check(self.strings * self.longest, f"has a name of {self.longest:,} bytes, and may take")

    def _depths(self, text: bytes) -> np.ndarray:
        """The depth after each byte of text without tokens: (n,)."""
        data = np.frombuffer(text, np.uint8)
        depths = self.depth + np.cumsum(self.steps[data])
        if self.brackets.end:
            is_end = (data[:-1] == self.brackets.end[0]) & np.isin(data[1:], list(b" \t\r\n"))
            last = np.maximum.accumulate(np.where(np.append(is_end, False), np.arange(len(data)), -1))
            depths -= np.where(last >= 0, depths[last], 0)
        return depths


class Pieces(io.RawIOBase):
    """A file of these pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces = pieces
        self.rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            return self.rest + b"".join(self.pieces)
        if not self.rest:
            self.rest = next(self.pieces, b"")
        content = self.rest[:size]
        self.rest = self.rest[size:]
        return content


class CheckedXml(Peeked):
    """XML up to its first error: `problem` is what is wrong, and the line.

    Reading raises if elements are nested so deeply that parsing would take hours, or if an entity or a namespace stands
    for so much text that a few references would fill the memory.
    """

    def __init__(self, source: Source, file: IO[bytes]) -> None:
        super().__init__(file)
        self.source = source
        self.path = source.path
        self.declared = dict[str, str]()
        self.problem: tuple[str, int] | None = None
        self.ended = False
        self.count = 0
        self.elements = 0
        self.depth = 0
        self.parser = xml.parsers.expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = self.parser.ordered_attributes = True
        self.parser.EntityDeclHandler = lambda name, of_dtd, text, *_: self.declared.setdefault(name, text or "")
        self.parser.StartNamespaceDeclHandler = lambda _, namespace: self._check_prefix("namespace", namespace)
        self.parser.StartElementHandler = self.begin_element
        self.parser.EndElementHandler = self.end_element

    def read(self, size: int = -1, /) -> bytes:
        if self.ended:
            return b""
        content = super().read(size)
        try:
            self.parser.Parse(content, not content)
        except xml.parsers.expat.ExpatError as error:
            self.problem = xml.parsers.expat.ErrorString(error.code), error.lineno
            if not self.elements:
                raise InputError(self.path, f"is not valid XML ({self.problem[0]})", error.lineno) from None
            content = content[: max(0, self.parser.ErrorByteIndex - self.count)]
        except LookupError as error:
            raise InputError(self.path, f"is not valid XML ({error}): write it in UTF-8", 1) from None
        self.count += len(content)
        self.ended = not content or self.problem is not None
        if not self.elements and self.count > MAX_PROLOG_BYTES:
            raise InputError(
                self.path, f"has no element in its first {MAX_PROLOG_BYTES:,} bytes: check that it is RDF/XML"
            )
        return content

    def begin_element(self, name: str, attributes: list[str]) -> None:
        self.elements += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            problem = f"nests elements over {MAX_DEPTH:,} deep: write it as N-Triples or Turtle"
            raise InputError(self.path, problem, self.parser.CurrentLineNumber)
        if self.elements == 1:
            self._check_entities()
        if XML_BASE in attributes:
            self._check_prefix("base", attributes[attributes.index(XML_BASE) + 1])

    def end_element(self, name: str) -> None:
        self.depth -= 1

    def _check_prefix(self, what: str, prefix: str | None) -> None:
        if prefix and len(prefix) > MAX_PREFIX_BYTES:
            problem = f"has an XML {what} of over {MAX_PREFIX_BYTES:,} bytes: write it as Turtle"
            raise InputError(self.path, problem, self.parser.CurrentLineNumber)

    def _check_entities(self) -> None:
        sizes: dict[str, int] = {}
        for name, text in self.declared.items():  # an entity can refer only to earlier ones
            inside = re.findall("&([^;#]+);", text)
            sizes[name] = len(text) + sum(sizes.get(other, 0) for other in inside)
            if sizes[name] > MAX_PREFIX_BYTES or any(other in self.declared and other not in sizes for other in inside):
                problem = f"declares an XML entity '{name}' of over {MAX_PREFIX_BYTES:,} bytes: write it as Turtle"
                raise InputError(self.path, problem)
