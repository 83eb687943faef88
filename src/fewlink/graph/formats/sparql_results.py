"""Results of SPARQL queries in JSON, XML, TSV or CSV."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from fewlink.core.errors import InputError
from fewlink.core.words import plural
from fewlink.graph.columns import Layout, named_layout
from fewlink.graph.formats.json_text import JsonText, NotJson
from fewlink.graph.formats.rdf import LABELS, CheckedXml, Terms
from fewlink.graph.source import BLOCK_BYTES, BLOCK_ROWS, Source, numbered_lines
from fewlink.graph.vocabulary import Block, unquoted

NAMESPACE = "http://www.w3.org/2005/sparql-results# "
LANGUAGE = "http://www.w3.org/XML/1998/namespace lang"
RESULTS_HEADER = re.compile(rb"[^\n]*\?\w+\t[^\n]*\?\w")  # the beginning of SPARQL results in TSV
IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+|urn:\S+")  # an IRI in CSV
VARIABLE = re.compile(r"\?\w+")
TERM = re.compile(
    r"""<(?P<uri>[A-Za-z](?:[^\x00-\x20<>"{}|^`\\]|\\[uU])*)>|_:(?P<bnode>[^\s<>"]+)
    |(?P<quote>["'])(?P<text>(?:(?!(?P=quote))[^\\]|\\.)*)(?P=quote)(?:@(?P<language>\w+(?:-\w+)*)(?:--(?:ltr|rtl))?|\^\^<[^<>\s]*>)?
    |(?P<bare>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|true|false)""",
    re.VERBOSE,
)  # in TSV
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U(00(?:0[0-9A-Fa-f]|10)[0-9A-Fa-f]{4})|(.))", re.DOTALL)
LONE_SURROGATE = re.compile(r"\\(u|U0000)[Dd][89A-Fa-f]")
ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}
PIECE_BYTES = 1 << 16
PARTS = ("subject", "predicate", "object")  # of a quoted triple
LABEL = "Label"  # ends the name of a variable whose values are labels of another's, as Wikidata writes them


class Term(NamedTuple):
    """A value of a variable: its kind is `uri`, `bnode`, `literal` or `triple`."""

    kind: str
    value: str
    language: str = ""

    @property
    def has_name(self) -> bool:
        """False for an IRI or a blank node without a name; the text of a literal may be empty."""
        return bool(self.value) or self.kind == "literal"


Solution = Mapping[str, Term]  # by variable; unbound ones are missing
Numbered = tuple[int | None, Solution]  # with its line
Part = list[str] | Numbered  # the variables, or a solution


def read_results(source: Source, file: IO[bytes], syntax: str) -> Iterator[Block]:
    """Read results in JSON, XML or TSV."""
    parts = {"JSON": _json, "XML": _xml, "TSV": _tsv}[syntax](source, file)
    early: list[Numbered] = []  # JSON may have solutions before the variables
    for part in parts:
        if isinstance(part, list):
            yield from read_solutions(source, part, itertools.chain(early, _solutions(source, parts)))
            return
        source.spend(sum(len(term.value) for term in part[1].values()))
        early.append(part)
    raise InputError(source.path, "is no file of SPARQL results: it names no variables")


def _solutions(source: Source, parts: Iterable[Part]) -> Iterator[Numbered]:
    """The solutions after the variables."""
    for part in parts:
        if isinstance(part, list):
            raise InputError(source.path, "is no file of SPARQL results: it names its variables twice")
        yield part


def read_solutions(source: Source, variables: Sequence[str], solutions: Iterable[Numbered]) -> Iterator[Block]:
    """Read the chosen variables, or those named head, relation and tail or alike, or else the only three.

    A variable such as `itemLabel` has the readable names of `item`, if there is such a variable.
    """
    terms = Terms(source)
    layout = results_layout(source, variables)
    source.facts.add(layout)
    if layout.places is None:
        raise InputError(source.path, "is SPARQL results: choose a variable for head, relation and tail")
    columns = [variables[place] for place in layout.places]
    labels = [(column, column + LABEL) for column in columns if column + LABEL in variables]
    for number, (line, solution) in enumerate(solutions, 1):
        row = [term if (term := solution.get(column)) and term.has_name else None for column in columns]
        if None in row:
            missing = ("head", "relation", "tail")[row.index(None)]
            source.bad(f"has no {missing} in result {number:,}", line)
            continue
        head, relation, tail = (term for term in row if term)
        for column, label in labels:
            if label in solution and solution[column].kind != "literal":
                terms.add_label(_name(solution[column]), solution[label].value, solution[label].language)
        if tail.kind == "literal" and relation.value in LABELS:
            terms.add_label(_name(head), tail.value, tail.language)
        elif "literal" in (head.kind, relation.kind, tail.kind) and not terms.keep_literals:
            terms.literals += 1
            source.spend(len(head.value) + len(relation.value) + len(tail.value))
        else:
            try:
                terms.add(_name(head), _name(relation), _name(tail))
            except ValueError as error:
                source.bad(f"has {error} in result {number:,}", line)
        if len(terms.fields) >= 3 * BLOCK_ROWS or terms.size > BLOCK_BYTES:
            yield terms.take()
    yield terms.take()


def results_layout(source: Source, variables: Sequence[str]) -> Layout:
    """The variables of head, relation and tail; those of labels count only if they are chosen."""
    names = list(variables)
    plain = [name for name in names if not (name.endswith(LABEL) and name.removesuffix(LABEL) in names)]
    if source.reading.columns is None and len(plain) == 3:
        layout = named_layout(source.path, plain, None)
        places = [names.index(plain[place]) for place in layout.places or ()]
        return Layout(len(names), places[0], places[1], places[2], tuple(names))
    return named_layout(source.path, names, source.reading.columns)


def _name(term: Term) -> bytes:
    return unquoted(term.value).encode("utf-8", "replace")


def _json(source: Source, file: IO[bytes]) -> Iterator[Part]:
    """The variables and solutions of a JSON document."""
    text = JsonText(file)
    number = 0
    complete = False
    try:
        for key in text.members():
            if key == "boolean":
                raise _ask(source)
            if key == "head":
                head = text.value()
                names = head.get("vars", []) if isinstance(head, dict) else None
                if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                    raise text.error("head has no list of vars")
                if names:
                    yield names
            elif key == "results":
                for key in text.members():
                    if key != "bindings":
                        text.value()
                        continue
                    complete = True
                    for binding in text.elements():
                        number += 1
                        try:
                            yield text.line_number(), {name: _json_term(value) for name, value in binding.items()}
                        except (AttributeError, KeyError, TypeError, ValueError):
                            source.bad(f"has a value that is no RDF term in result {number:,}", text.line_number())
            else:
                text.value()
        text.end()
        if not complete:
            raise text.error("results has no bindings")
    except NotJson as error:
        source.bad(f"{error}, and nothing after it is read", error.line)


def _json_term(value: Mapping[str, Any]) -> Term:
    """A term as JSON writes it. Raise if it is none."""
    kind = {"typed-literal": "literal"}.get(value["type"], value["type"])
    if kind == "triple":
        return Term(kind, _triple_text(*(_json_term(value["value"][part]) for part in PARTS)))
    text = value["value"]
    language = value.get("xml:lang", "")
    if kind not in ("uri", "bnode", "literal") or not isinstance(text, str) or not isinstance(language, str):
        raise ValueError
    return Term(kind, text, language)


def _triple_text(*terms: Term) -> str:
    """The name of a quoted triple."""
    marks = {"uri": "<{}>", "bnode": "_:{}", "literal": '"{}"', "triple": "<<( {} )>>"}
    return " ".join(marks[term.kind].format(term.value) for term in terms)


def _ask(source: Source) -> InputError:
    return InputError(source.path, "is the result of an ASK query: SELECT a head, a relation and a tail instead")


class _ResultsXml(CheckedXml):
    """XML whose variables and solutions are collected in `parts` while it is read."""

    def __init__(self, source: Source, file: IO[bytes]) -> None:
        super().__init__(source, file)
        self.parts: list[Part] = []
        self.variables: list[str] = []
        self.solution: dict[str, Term] = {}
        self.variable = ""
        self.language = ""
        self.text = list[str]()
        self.stack: list[Term] = []  # of terms inside the current binding
        self.parser.CharacterDataHandler = self.text.append

    def begin_element(self, name: str, attributes: list[str]) -> None:
        super().begin_element(name, attributes)
        given = dict(zip(attributes[::2], attributes[1::2], strict=True))
        self.text.clear()
        self.language = given.get(LANGUAGE, "")
        match name.removeprefix(NAMESPACE):
            case "variable":
                self.variables.append(given.get("name", ""))
            case "boolean":
                raise _ask(self.source)
            case "binding":
                self.variable = given.get("name", "")
                self.stack.clear()

    def end_element(self, name: str) -> None:
        super().end_element(name)
        text = "".join(self.text)
        match name.removeprefix(NAMESPACE):
            case "head":
                self.parts.append(self.variables)
            case "uri" | "bnode" as kind:
                self.stack.append(Term(kind, text.strip()))
            case "literal":
                self.stack.append(Term("literal", text, self.language))
            case "triple":
                self.stack[-3:] = [Term("triple", _triple_text(*self.stack[-3:]))]
            case "binding":
                if len(self.stack) != 1 or self.variable in self.solution:
                    line = self.parser.CurrentLineNumber
                    self.source.bad(f"has no value, or several, of variable '{self.variable}' in a result", line)
                else:
                    self.solution[self.variable] = self.stack[0]
            case "result":
                self.parts.append((self.parser.CurrentLineNumber, self.solution))
                self.solution = {}
        self.text.clear()


def _xml(source: Source, file: IO[bytes]) -> Iterator[Part]:
    """The variables and solutions of an XML document."""
    document = _ResultsXml(source, file)
    while document.read(PIECE_BYTES):
        parts, document.parts = document.parts, []
        yield from parts
    yield from document.parts
    if document.problem:
        reason, line = document.problem
        source.bad(f"is not a valid XML file of SPARQL results ({reason}), and nothing after it is read", line)


def _tsv(source: Source, file: IO[bytes]) -> Iterator[Part]:
    """The variables and solutions of tab-separated text."""
    variables: list[str] = []
    for line, raw in numbered_lines(source, file):
        try:
            cells = [cell.strip(" ") for cell in raw.decode().split("\t")]
        except UnicodeDecodeError:
            source.bad("is not UTF-8 text", line)
            continue
        if not variables:
            for cell in cells:
                if not VARIABLE.fullmatch(cell):
                    raise InputError(source.path, f"is SPARQL results, but '{cell[:100]}' is no variable", line)
            variables = [cell.removeprefix("?") for cell in cells]
            yield variables
            continue
        found = [None if LONE_SURROGATE.search(cell) else TERM.fullmatch(cell) for cell in cells]
        if len(cells) != len(variables):
            source.bad(f"has {plural(len(cells), 'column')} instead of {len(variables)}", line)
        elif wrong := next((cell for cell, term in zip(cells, found, strict=True) if cell and not term), None):
            source.bad(f"has a value that is no RDF term ({wrong[:100]})", line)
        else:
            yield line, {name: _tsv_term(term) for name, term in zip(variables, found, strict=True) if term}


def _tsv_term(found: re.Match[str]) -> Term:
    for kind in ("uri", "bnode"):
        if found[kind] is not None:
            return Term(kind, ESCAPE.sub(_unescaped, found[kind]))
    return Term("literal", ESCAPE.sub(_unescaped, found["text"] or found["bare"] or ""), found["language"] or "")


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1] or found[2], 16)) if found[3] is None else ESCAPED.get(found[3], found[3])


def csv_term(cell: str) -> Term | None:
    """A term as CSV writes it, where only IRIs and blank nodes can be told from literals; None if it is unbound."""
    if not cell:
        return None
    if cell.startswith("_:"):
        return Term("bnode", cell.removeprefix("_:"))
    return Term("uri" if IRI.fullmatch(cell) else "literal", cell)
