"""RDF, read by pyoxigraph: N-Triples, N-Quads, Turtle, TriG, RDF/XML and JSON-LD."""

from __future__ import annotations

import io
import itertools
import re
import xml.parsers.expat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from fewlink.core.errors import InputError, MissingExtra
from fewlink.graph.plain import MAX_NESTING, PIECE_BYTES, Watched, shallow_json
from fewlink.graph.tables import Reader
from fewlink.graph.vocabulary import unquoted

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
BLOCK_BYTES = 32 << 20  # of lines that are parsed together
BLOCK_TRIPLES = 1 << 17  # that are given to the engine together
WHOLE_ONLY = "correct it; such a file is read whole or not at all, also with --on-error skip"
MAX_ENTITY_BYTES = 2_000  # of an entity in XML, which stands for more text than is written
PLAIN_IRI = rb"<(https?://[a-zA-Z0-9.-]{1,99}/[\w./?&=+,;@!~*()':-]{0,999}(?:#[\w./?&=+,;@!~*()':-]{0,999})?)>"
PLAIN_LINE = re.compile(rb"^" + rb" ".join([PLAIN_IRI] * 3) + rb" \.\n", re.MULTILINE)  # whose IRIs are valid


def read_rdf_lines(reader: Reader, file: IO[bytes], syntax: str) -> None:
    """Read N-Triples or N-Quads; a block with a syntax error is parsed line by line."""
    terms = Terms(reader, syntax)
    first = 1
    for raw in _whole_lines(reader, io.BufferedReader(shallow_triples(file, reader.path), PIECE_BYTES)):
        statements = [line for line in raw.split(b"\n") if line.strip() and not line.lstrip().startswith(b"#")]
        plain = PLAIN_LINE.findall(raw) if syntax == "N-Triples" else []
        rest = PLAIN_LINE.sub(b"", raw) if plain else raw
        try:
            quads = list(terms.parse(rest))
            if len(quads) != len(statements) - len(plain):
                raise ValueError("a statement is not on one line")
            if plain and any(terms.is_triple(quad) for quad in quads):
                quads = list(terms.parse(raw))  # in the order of the file
                plain = []
        except PARSER_ERRORS:
            for number, line in enumerate(raw.split(b"\n"), first):
                try:
                    terms.read(list(terms.parse(line + b"\n")))
                except PARSER_ERRORS as error:
                    reader.bad(f"is not valid {syntax} ({reason_of(error)})", number)
        else:
            terms.texts += map(bytes.decode, itertools.chain.from_iterable(plain))
            terms.read(quads)
        first += raw.count(b"\n")
        terms.flush()


def _whole_lines(reader: Reader, file: IO[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines; each line ends with a line feed."""
    for block in iter(lambda: file.read(BLOCK_BYTES), b""):
        raw = block + file.readline(BLOCK_BYTES)
        if len(raw) == 2 * BLOCK_BYTES and not raw.endswith(b"\n"):
            raise InputError(reader.path, f"has a line of over {BLOCK_BYTES >> 20} MB")
        yield (raw if raw.endswith(b"\n") else raw + b"\n").replace(b"\r\n", b"\n")


def read_rdf(reader: Reader, file: IO[bytes], syntax: str) -> None:
    """Read RDF that is not one statement per line; after a syntax error, continue where the parser can."""
    terms = Terms(reader, syntax)
    text = shallow_triples(file, reader.path)
    if syntax == "RDF/XML":
        text = checked_xml(file, reader.path)
    elif syntax == "JSON-LD":
        text = shallow_json(file, reader.path)
    more = {"base_iri": RELATIVE, "lenient": True} if syntax == "JSON-LD" else {}
    quads = iter(terms.parse(text, **more))
    if syntax == "JSON-LD":  # a strict parser would leave out names that are no valid IRIs, and say nothing
        quads = (quad for quad in quads if ":" in quad.predicate.value)  # other keys have no definition
    bad_line = 0
    going = True
    while going:
        try:
            going = terms.read(itertools.islice(quads, BLOCK_TRIPLES)) > 0
        except PARSER_ERRORS as error:
            line = getattr(error, "lineno", None)
            if line is None or line != bad_line:  # one bad line causes several errors
                reader.bad(f"is not valid {syntax} ({reason_of(error)})", line)
            bad_line = line or bad_line
        terms.flush()


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
    """Passes the triples of a parser on to a reader: labels as readable names, other literals only if they are kept.

    An unnamed blank node gets a name from its file and its place in it.
    """

    def __init__(self, reader: Reader, syntax: str) -> None:
        self.pyoxigraph = import_pyoxigraph(syntax)
        self.reader = reader
        self.format = getattr(self.pyoxigraph.RdfFormat, PYOXIGRAPH_NAMES.get(syntax, ""), None)
        self.unnamed: dict[str, str] = {}
        self.texts: list[str] = []  # head, relation, tail, head, …
        self.size = 0  # of the texts; a short prefix may stand for long names
        self.labels: list[tuple[str, int, str]] = []
        reader.report.has_rdf = True
        if self.format is not None:
            reader.reject_columns()

    def parse(self, text: Any, **options: Any) -> Iterable[Any]:
        quads: Iterable[Any] = self.pyoxigraph.parse(input=text, format=self.format, **options)
        return quads

    def read(self, quads: Iterable[Any]) -> int:
        """Take the triples of statements; return the number of statements."""
        count = 0
        for quad in quads:
            count += 1
            self.add(quad.subject, quad.predicate, quad.object)
        return count

    def is_triple(self, quad: Any) -> bool:
        """Whether a statement is more than a literal that is left out."""
        is_literal = isinstance(quad.object, self.pyoxigraph.Literal)
        return not is_literal or (self.reader.source.keep_literals and quad.predicate.value not in LABELS)

    def add(self, head: Any, relation: Any, tail: Any) -> None:
        """Take a triple of terms."""
        literal = self.pyoxigraph.Literal
        if isinstance(tail, literal) and relation.value in LABELS:
            self.add_label(head, tail)
        elif not self.reader.source.keep_literals and any(isinstance(term, literal) for term in (head, relation, tail)):
            self.reader.report.literals += 1
        else:
            triple = (self.name(head), self.name(relation), self.name(tail))
            self.texts += triple
            self.size += sum(map(len, triple))
            if self.size > BLOCK_BYTES:
                self.flush()

    def add_label(self, term: Any, label: Any) -> None:
        """Take a readable name. English is preferred, then a label without a language."""
        language = (label.language or "").lower().partition("-")[0]
        rank = {"en": 0, "": 1}.get(language, 2)
        if text := " ".join(label.value.split()):
            self.labels.append((self.name(term), rank, text))

    def name(self, term: Any) -> str:
        """The name of an IRI, a blank node or a literal."""
        value: str = getattr(term, "value", None) or str(term)
        if type(term) is self.pyoxigraph.BlankNode and UNNAMED.fullmatch(value):
            return self.unnamed.setdefault(value, f"_:{self.reader.path.name}-{len(self.unnamed) + 1}")
        return unquoted(value.removeprefix(RELATIVE))

    def flush(self) -> None:
        """Give what was taken to the reader."""
        self.reader.add_fields(self.texts)
        self.reader.add_labels(self.labels)
        self.texts = []
        self.size = 0
        self.labels = []


def shallow_triples(file: IO[bytes], path: Path) -> Watched:
    """A file of Turtle or N-Triples: reading raises where triples are nested so deeply that a parser would crash."""
    depth = 0
    last = b""

    def watch(content: bytes) -> None:
        nonlocal depth, last
        text = last + content
        last = text[-2:]
        for bracket in re.findall(rb"<<\(|\)>>", text) if depth or b"<<(" in text else ():
            depth = max(0, depth + (1 if bracket == b"<<(" else -1))
            if depth > MAX_NESTING:
                raise InputError(path, f"nests triples over {MAX_NESTING:,} deep")

    return Watched(file, watch)


def checked_xml(file: IO[bytes], path: Path) -> Watched:
    """A file of XML, which pyoxigraph reads even where it is not well-formed: reading raises there."""
    parser = xml.parsers.expat.ParserCreate(namespace_separator=" ")
    ended = False
    depth = 0

    def begin(name: str, attributes: Any) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_NESTING:
            raise InputError(path, f"nests elements over {MAX_NESTING:,} deep", parser.CurrentLineNumber)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1

    def declare(name: str, is_parameter: int, text: str | None, *other: Any) -> None:
        if text and (len(text) > MAX_ENTITY_BYTES or "&" in text):
            problem = f"declares the XML entity '{name}', which is long or has others inside: write it as Turtle"
            raise InputError(path, problem, parser.CurrentLineNumber)

    def watch(content: bytes) -> None:
        nonlocal ended
        try:
            if not ended:
                parser.Parse(content, not content)
        except xml.parsers.expat.ExpatError as error:
            problem = f"is not valid XML ({xml.parsers.expat.ErrorString(error.code)})"
            raise InputError(path, f"{problem}: {WHOLE_ONLY}", error.lineno) from None
        except LookupError as error:
            raise InputError(path, f"is not valid XML ({error}): write it in UTF-8", 1) from None
        ended = not content

    parser.StartElementHandler = begin
    parser.EndElementHandler = end
    parser.EntityDeclHandler = declare
    return Watched(file, watch)
