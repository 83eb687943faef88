"""Decisions as RDF: true pairs as N-Triples, and all decisions as Turtle with their provenance in PROV-O.

Every decision is a reified statement (`rdf:Statement`, which every RDF tool reads) with its curator, time, decision and
probability; true pairs are triples as well. Ids that are not IRIs become URNs.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from fewlink.core.errors import MissingExtra
from fewlink.curation.rows import Row
from fewlink.graph.vocabulary import FEWLINK_IRI_PREFIXES

ENTITY, RELATION = FEWLINK_IRI_PREFIXES  # for ids that are not IRIs
CURATOR, PROJECT, MODEL, STATEMENT = (f"urn:fewlink:{kind}:" for kind in ("curator", "project", "model", "decision"))
TERMS = "urn:fewlink:terms:"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
PROV = "http://www.w3.org/ns/prov#"
XSD = "http://www.w3.org/2001/XMLSchema#"
PREFIXES = {"rdf": RDF, "rdfs": RDFS, "prov": PROV, "xsd": XSD, "fewlink": TERMS}
IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]+")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
ESCAPED = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})")


def ntriples(rows: Iterable[Row]) -> str:
    """A line for each row."""
    return "".join(f"{_triple(row)} .\n" for row in rows)


def turtle(rows: Sequence[Row], project: str, description: str, model: str) -> str:
    """The project, its curators, the names of entities, and each row as a statement; true pairs also as triples."""
    return "\n".join(_blocks(rows, project, description, model))


def _blocks(rows: Sequence[Row], project: str, description: str, model: str) -> Iterator[str]:
    yield "".join(f"@prefix {prefix}: <{iri}> .\n" for prefix, iri in PREFIXES.items())
    place = f"<{_urn(PROJECT, project)}>"
    about = [f"a prov:Collection ; rdfs:label {_literal(project)}"]
    about += [f"rdfs:comment {_literal(description)}"] if description else []
    about += [f"prov:wasInfluencedBy <{_urn(MODEL, model)}>"] if model else []
    yield _subject(place, about)
    if model:
        yield _subject(f"<{_urn(MODEL, model)}>", [f"a prov:SoftwareAgent ; rdfs:label {_literal(f'fewlink {model}')}"])
    for who in dict.fromkeys(row.who for row in rows if row.who):
        yield _subject(f"<{_urn(CURATOR, who)}>", [f"a prov:Person ; rdfs:label {_literal(who)}"])
    names = {row.head: row.head_name for row in rows} | {row.tail: row.tail_name for row in rows}
    labels = [f"<{iri(id, ENTITY)}> rdfs:label {_literal(name)} .\n" for id, name in names.items() if name != id]
    if labels:
        yield "".join(labels)
    for row in rows:
        statement = f"<{STATEMENT}{_uuid(project, *row.triple)}>"
        head, relation, tail = _iris(row)
        facts = [
            "a rdf:Statement, prov:Entity",
            f"rdf:subject {head} ; rdf:predicate {relation} ; rdf:object {tail}",
            f"fewlink:decision {_literal(row.decision)}",
        ]
        facts += [] if row.probability is None else [f'fewlink:probability "{row.probability!r}"^^xsd:double']
        facts += [f"prov:wasAttributedTo <{_urn(CURATOR, row.who)}>"] if row.who else []
        time = _literal(row.time) + ("^^xsd:dateTime" if TIME.fullmatch(row.time) else "")
        facts += [f"prov:generatedAtTime {time}"] if row.time else []
        triple = "" if row.decision == "rejected" else f"{_triple(row)} .\n"
        yield f"{triple}{place} prov:hadMember {statement} .\n{_subject(statement, facts)}"


def _subject(subject: str, facts: Sequence[str]) -> str:
    return f"{subject} " + " ;\n    ".join(facts) + " .\n"


def _triple(row: Row) -> str:
    return " ".join(_iris(row))


def _iris(row: Row) -> tuple[str, str, str]:
    return f"<{iri(row.head, ENTITY)}>", f"<{iri(row.relation, RELATION)}>", f"<{iri(row.tail, ENTITY)}>"


def _literal(text: str) -> str:
    """A literal: every escape of JSON is one of Turtle."""
    return json.dumps(text, ensure_ascii=False)


def _urn(prefix: str, text: str) -> str:
    return prefix + quote(text, safe="", errors="surrogatepass")


def _uuid(*texts: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, TERMS + json.dumps(texts))


def iri(text: str, prefix: str) -> str:
    """The text if it is an absolute IRI, else a URN that contains it; `of_iri` is the inverse."""
    if IRI.fullmatch(text) and not text.startswith(("urn:fewlink:", "_:")):
        return text
    return _urn(prefix, text)


def of_iri(text: str) -> str:
    """The id that `iri` turned into an IRI or URN."""
    text = ESCAPED.sub(lambda found: chr(int(found[1][1:], 16)), text)
    for prefix in (ENTITY, RELATION):
        if text.startswith(prefix):
            return unquote(text.removeprefix(prefix), errors="surrogatepass")
    return text


class Statement(NamedTuple):
    """A reified statement of a Turtle file; parts that it lacks are empty."""

    head: str
    relation: str
    tail: str
    decision: str
    probability: str
    who: str
    time: str


def read_statements(text: str, spend: Callable[[int], None]) -> list[Statement]:
    """The reified statements of Turtle, in the order of the file. Raises SyntaxError if it is not valid Turtle.

    `spend` is called with the length of each triple: prefixes and base IRIs can make it far longer than its text.
    """
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtra("reading Turtle", "rdf") from None
    facts: dict[str, dict[str, str]] = {}
    statements: dict[str, None] = {}
    for quad in pyoxigraph.parse(input=text.encode("utf-8", "surrogatepass"), format=pyoxigraph.RdfFormat.TURTLE):
        subject = str(quad.subject)
        predicate = quad.predicate.value
        value = getattr(quad.object, "value", "")
        spend(len(subject) + len(predicate) + len(value))
        if (predicate, value) == (RDF + "type", RDF + "Statement"):
            statements[subject] = None
        facts.setdefault(subject, {})[predicate] = value

    def curator(agent: str) -> str:
        return unquote(agent.removeprefix(CURATOR), errors="surrogatepass") if agent.startswith(CURATOR) else agent

    return [
        Statement(
            head=of_iri(own.get(RDF + "subject", "")),
            relation=of_iri(own.get(RDF + "predicate", "")),
            tail=of_iri(own.get(RDF + "object", "")),
            decision=own.get(TERMS + "decision", ""),
            probability=own.get(TERMS + "probability", ""),
            who=curator(own.get(PROV + "wasAttributedTo", "")),
            time=own.get(PROV + "generatedAtTime", ""),
        )
        for own in (facts[subject] for subject in statements)
    ]
