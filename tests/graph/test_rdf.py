"""RDF in all its syntaxes, its labels and types, and SPARQL results."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from tests.conftest import compiled, named

from fewlink.core.errors import FewlinkError, InputError
from fewlink.graph import compile_graph

pyoxigraph = pytest.importorskip("pyoxigraph")

TURTLE = b"""@prefix : <http://example.org/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:berlin :capitalOf :germany ; rdfs:label "Berlin"@de, "Berlin, the city"@en ; a :City .
:paris :capitalOf :france ; rdfs:label "Paris" ; a :City ; :people 2100000 .
:City rdfs:label "city" .
:capitalOf rdfs:label "is the capital of" .
"""
BASE = "http://example.org/"
CAPITALS = [
    (f"{BASE}berlin", f"{BASE}capitalOf", f"{BASE}germany"),
    (f"{BASE}paris", f"{BASE}capitalOf", f"{BASE}france"),
]


def in_syntax(format_: object) -> bytes:
    return pyoxigraph.serialize(pyoxigraph.parse(input=TURTLE, format=pyoxigraph.RdfFormat.TURTLE), format=format_)  # type: ignore[no-any-return]


FORMS = {
    "g.ttl": TURTLE,
    "g.nt": in_syntax(pyoxigraph.RdfFormat.N_TRIPLES),
    "g.nq": in_syntax(pyoxigraph.RdfFormat.N_QUADS),
    "g.trig": in_syntax(pyoxigraph.RdfFormat.TRIG),
    "g.rdf": in_syntax(pyoxigraph.RdfFormat.RDF_XML),
    "g.owl": in_syntax(pyoxigraph.RdfFormat.RDF_XML),
    "g.xml": in_syntax(pyoxigraph.RdfFormat.RDF_XML),
    "g.jsonld": in_syntax(pyoxigraph.RdfFormat.JSON_LD),
    "g.json": in_syntax(pyoxigraph.RdfFormat.JSON_LD),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_syntax_gives_the_same_graph_with_names_and_types(name: str) -> None:
    for content, suffix in ((FORMS[name], ""), (gzip.compress(FORMS[name]), ".gz")):
        graph, report = compiled(content, name + suffix)
        assert set(CAPITALS) < set(named(graph))
        assert graph.triple_count == 4  # with those of rdf:type
        names = {graph.entities[i]: graph.name(i) for i in range(len(graph.entities))}
        assert names[f"{BASE}berlin"] == "Berlin, the city"
        assert names[f"{BASE}paris"] == "Paris"
        assert names[f"{BASE}germany"] == "germany"  # the end of the address
        assert {graph.relation_name(i) for i in range(len(graph.relations))} == {"is the capital of", "type"}
        assert graph.types is not None
        assert list(graph.types.names) == ["city"]
        assert [graph.entities[e] for e in graph.types.members([0])] == [f"{BASE}berlin", f"{BASE}paris"]
        assert (report.literals, report.skipped) == (1, 0)


def test_files_of_names_and_types_come_before_those_of_rdf(tmp_path: Path) -> None:
    (tmp_path / "g.ttl").write_bytes(TURTLE)
    (tmp_path / "names").write_text(f"{BASE}paris\tLutetia\n")
    (tmp_path / "types").write_text(f"{BASE}paris\ttown\n")
    graph = compile_graph(tmp_path / "g.ttl", names=tmp_path / "names", types=tmp_path / "types")
    assert graph.name(graph.entities.id(f"{BASE}paris")) == "Lutetia"
    assert graph.name(graph.entities.id(f"{BASE}berlin")) == "Berlin, the city"
    assert graph.types is not None and list(graph.types.names) == ["town"]


def test_classes_of_rdf_itself_are_no_types_and_namesakes_keep_their_addresses() -> None:
    head = "@prefix o: <http://www.w3.org/2002/07/owl#> . @prefix a: <http://a/> . @prefix b: <http://b/> .\n"
    graph, _ = compiled(f"{head}a:x a o:NamedIndividual . a:y a a:Town . a:z a b:Town .".encode(), "g.ttl")
    assert graph.types is not None
    members = {kind: len(graph.types.groups[i]) for i, kind in enumerate(graph.types.names)}
    assert {kind: count for kind, count in members.items() if count} == {"http://a/Town": 1, "http://b/Town": 1}
    graph, _ = compiled(f"{head}a:x a o:NamedIndividual .".encode(), "g.ttl")
    assert graph.types is None


def test_blank_nodes_have_the_same_names_each_time() -> None:
    content = b"@prefix : <http://e/> . :a :p [ :q :c ] . :b :p [ :q :d ] . _:n :p :a ."
    graph, _ = compiled(content, "g.ttl")
    assert named(graph) == named(compiled(content, "g.ttl")[0])
    assert {"_:g.ttl-1", "_:g.ttl-2", "n"} < set(graph.entities)


@pytest.mark.parametrize(
    ("name", "content", "token", "left"),
    [
        ("g.ttl", TURTLE + b":bad bad bad .\n:x :capitalOf :y .\n", "g.ttl:7: .*Turtle", 5),
        ("g.trig", TURTLE + b":bad bad bad .\n:x :capitalOf :y .\n", "g.trig:7: .*TriG", 5),
        ("g.nq", FORMS["g.nq"] + b"no\n<x:a> <x:b> <x:c> .\n", r"g.nq:\d+: .*N-Quads", 5),
    ],
)
def test_errors_name_file_and_line_or_are_skipped(name: str, content: bytes, token: str, left: int) -> None:
    with pytest.raises(InputError, match=token):
        compiled(content, name)
    graph, report = compiled(content, name, on_error="skip")
    assert (graph.triple_count, report.skipped) == (left, 1)


def result(*terms: str) -> dict[str, dict[str, str]]:
    kinds = ("uri" if term.startswith("http") else "literal" for term in terms)
    return {v: {"type": kind, "value": term} for v, kind, term in zip("abc", kinds, terms, strict=False)}


ROWS = [result(*CAPITALS[0]), result(*CAPITALS[1]), result(f"{BASE}paris", f"{BASE}people", "2100000")]
RESULTS = {
    "r.srj": json.dumps({"head": {"vars": ["a", "b", "c"]}, "results": {"bindings": ROWS}}).encode(),
    "r.json": json.dumps({"head": {"vars": ["a", "b", "c"]}, "results": {"bindings": ROWS}}).encode(),
    "r.srx": b"""<?xml version="1.0"?><sparql xmlns="http://www.w3.org/2005/sparql-results#">
<head><variable name="a"/><variable name="b"/><variable name="c"/></head><results>"""
    + b"".join(
        b'<result><binding name="a"><uri>%b</uri></binding><binding name="b"><uri>%b</uri></binding>'
        b'<binding name="c"><uri>%b</uri></binding></result>' % tuple(n.encode() for n in triple)
        for triple in CAPITALS
    )
    + b"</results></sparql>",
    "r.tsv": b"?a\t?b\t?c\n" + "".join("\t".join(f"<{n}>" for n in t) + "\n" for t in CAPITALS).encode(),
    "r.csv": b"town,p,state\r\n" + "".join(",".join(t) + "\r\n" for t in CAPITALS).encode(),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_of_a_sparql_query_with_three_variables(name: str) -> None:
    graph, report = compiled(RESULTS[name], name)
    assert named(graph) == CAPITALS
    assert report.literals == (name in ("r.srj", "r.json"))


def test_results_without_three_variables_or_values_are_errors() -> None:
    two = json.dumps({"head": {"vars": ["a", "b"]}, "results": {"bindings": []}}).encode()
    with pytest.raises(InputError, match=r"r.srj"):
        compiled(two, "r.srj")
    yes = b'{"head": {}, "boolean": true}'
    with pytest.raises(InputError, match=r"ASK query"):
        compiled(yes, "r.srj")
    gap = json.dumps({"head": {"vars": ["a", "b", "c"]}, "results": {"bindings": [ROWS[0], result("http://x")]}})
    with pytest.raises(InputError, match=r"relation.*result 2"):
        compiled(gap.encode(), "r.srj")
    assert compiled(gap.encode(), "r.srj", on_error="skip")[0].triple_count == 1
    with pytest.raises(InputError, match=r"r.srj:1"):
        compiled(RESULTS["r.srj"][:-30], "r.srj")


def test_an_ordinary_first_row_is_not_taken_for_variables() -> None:
    assert len(named(compiled(b"a,r,b\nc,r,d\n", "g.csv")[0])) == 2
    assert len(named(compiled(b"x:a,x:r,x:b\nhttp://e/c,http://e/r,http://e/d\n", "g.csv")[0])) == 2


def test_a_file_cut_off_in_compression_is_an_error_of_that_file(tmp_path: Path) -> None:
    (tmp_path / "g.ttl.gz").write_bytes(gzip.compress(TURTLE * 50)[:-20])
    with pytest.raises(InputError, match=r"g.ttl.gz"):
        compile_graph(tmp_path / "g.ttl.gz")


def test_the_best_label_is_kept_in_any_order() -> None:
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    texts = ['"eins"@de', '"one"@en-GB', '"1"', '"two\\nlines"@en', '""@en']
    for order in (texts, texts[::-1]):
        content = "".join(f"<x:a> {label} {text} .\n" for text in order) + "<x:a> <x:r> <x:b> .\n"
        graph, report = compiled(content.encode(), "g.nt")
        assert graph.name(graph.entities.id("x:a")) == ("one" if order is texts else "two lines")
        assert report.literals == 0


# files that are cut or not well-formed


def descriptions(first: int, last: int) -> bytes:
    line = b'<rdf:Description rdf:about="http://e/%d"><e:p rdf:resource="http://e/x"/></rdf:Description>\n'
    return b"".join(line % number for number in range(first, last))


XML_BEGIN = b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">\n'


@pytest.mark.parametrize("name", ["g.rdf", "g.xml"])
def test_xml_that_is_not_well_formed_is_an_error_wherever_it_breaks(name: str) -> None:
    label = b'<rdf:Description rdf:about="http://e/z"><e:l>a\x01b</e:l></rdf:Description>\n'
    content = XML_BEGIN + descriptions(0, 2000) + label + descriptions(2000, 6000) + b"</rdf:RDF>"
    for on_error in ("stop", "skip"):
        with pytest.raises(InputError, match=rf"{name}:2002: "):
            compiled(content, name, on_error=on_error)


def test_xml_that_is_cut_between_tags_is_an_error() -> None:
    whole = XML_BEGIN + descriptions(0, 30) + b"</rdf:RDF>"
    for end in range(len(XML_BEGIN), len(whole), 97):
        with pytest.raises(InputError, match=r"g.rdf"):
            compiled(whole[:end], "g.rdf")
    assert compiled(whole, "g.rdf")[0].triple_count == 30


def test_sparql_results_that_are_cut_are_an_error() -> None:
    for name in ("r.srx", "r.srj"):
        content = RESULTS[name]
        for end in range(0, len(content), 37):
            with pytest.raises(InputError, match=name):
                compiled(content[:end], name)


def test_statements_of_n_triples_are_on_one_line() -> None:
    good = b"# comment\n<x:a> <x:r> <x:b> .\n\n  # more\n<x:b> <x:r> <x:c> . # c\n"
    assert compiled(good, "g.nt")[0].triple_count == 2
    with pytest.raises(InputError, match=r"g.nt:6: "):
        compiled(good + b"<x:c> <x:r>\n<x:d> .\n", "g.nt")
    assert compiled(good + b"<x:c> <x:r>\n<x:d> .\n", "g.nt", on_error="skip")[1].skipped == 2


# SPARQL results as other programs write them


def test_solutions_may_come_before_the_variables() -> None:
    content = json.dumps({"results": {"ordered": True, "bindings": ROWS}, "head": {"link": [], "vars": [*"abc"]}})
    assert named(compiled(content.encode(), "r.srj")[0]) == CAPITALS


def test_variables_of_labels_are_names() -> None:
    """As Wikidata's label service writes them: ?item has its label in ?itemLabel."""
    label = {"type": "literal", "value": "Berlin", "xml:lang": "en"}
    rows = [ROWS[0] | {"aLabel": label, "bLabel": {"type": "literal", "value": "capital of"}}, ROWS[1]]
    variables = ["a", "aLabel", "b", "bLabel", "c"]
    as_json = json.dumps({"head": {"vars": variables}, "results": {"bindings": rows}}).encode()
    (berlin, of, germany), (paris, _, france) = CAPITALS
    cells = [(berlin, "Berlin", of, "capital of", germany), (paris, "", of, "", france)]
    terms = [f'<{a}>\t"{x}"\t<{b}>\t"{y}"@en\t<{c}>' for a, x, b, y, c in cells]
    as_tsv = "\n".join(["\t".join(f"?{name}" for name in variables), *terms]).encode()
    for name, content in (("r.srj", as_json), ("r.tsv", as_tsv)):
        graph, _ = compiled(content, name)
        assert named(graph) == CAPITALS
        assert [graph.name(i) for i in range(4)] == ["Berlin", "germany", "paris", "france"]
        assert graph.relation_name(0) == "capital of"


def test_rows_that_state_a_label_are_names() -> None:
    label = "http://www.w3.org/2000/01/rdf-schema#label"
    rows = [*ROWS, result(CAPITALS[0][0], label, "Berlin")]
    content = json.dumps({"head": {"vars": ["a", "b", "c"]}, "results": {"bindings": rows}}).encode()
    graph, report = compiled(content, "r.srj")
    assert (graph.name(0), graph.triple_count, report.literals) == ("Berlin", 2, 1)


def test_a_context_at_an_address_is_an_error_that_says_what_to_do() -> None:
    content = b'{"@context": "https://schema.org/", "@id": "x:a", "knows": {"@id": "x:b"}}'
    with pytest.raises(InputError, match=r"g.jsonld.*write the context itself into the file"):
        compiled(content, "g.jsonld")


@pytest.mark.parametrize("seed", range(6))
def test_plain_lines_are_read_as_in_n_quads(seed: int) -> None:
    chance = random.Random(seed)
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"

    def name() -> str:
        return f"http://e.org/{chance.choice(['', 'a/', 'x#', 'é', '%20', 'y?z='])}{chance.randrange(9)}"

    kinds = [
        lambda: f"<{name()}> <{name()}> <{name()}> .",
        lambda: f"<{name()}> <http://e.org/r> <{name()}> .",
        lambda: f'<{name()}> {label} "<http://e.org/1> <http://e.org/2> <http://e.org/3> ."@en .',
        lambda: f'<{name()}> <{name()}> "5" .',
        lambda: "# <http://e.org/1> <http://e.org/2> <http://e.org/3> .",
        lambda: "",
        lambda: f"_:b{chance.randrange(3)} <{name()}> <{name()}> .",
        lambda: f"<{name()}>  <{name()}> <{name()}>.",
        lambda: f"<{name()}> <http://e.org/1#2#3> <{name()}> .",
        lambda: f"<{name()}> <{name()}> <{name()}> . <{name()}> <{name()}> <{name()}> .",
    ]
    kinds = kinds[: chance.choice([1, 2, 6, 7, len(kinds)])]
    content = "".join(f"{chance.choice(kinds)()}\n" for _ in range(chance.choice([3, 60]))).encode()

    def read(name: str) -> object:
        try:
            graph, report = compiled(content, name, on_error="skip")
        except FewlinkError:
            return None
        labels = [graph.name(number) for number in range(len(graph.entities))]
        return named(graph), labels, report.literals, report.skipped, report.triples

    assert read("graph.nt") == read("graph.nq")
