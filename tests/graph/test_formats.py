"""Tab- and comma-separated text, N-Triples, and a new format."""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Iterator

import pytest
from tests.conftest import compiled, named

from fewlink.core.errors import FewlinkError, InputError
from fewlink.graph.formats import FORMATS, Format
from fewlink.graph.plain import opened
from fewlink.graph.tables import Reader

needs_pyoxigraph = pytest.mark.skipif(importlib.util.find_spec("pyoxigraph") is None, reason="needs pyoxigraph")

ABC = [("a", "r", "b"), ("b", "r", "c")]
GOOD = {"graph.tsv": b"a\tr\tb\nb\tr\tc\n", "graph.csv": b"a,r,b\nb,r,c\n"}


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_are_skipped() -> None:
    graph, report = compiled(b"\xef\xbb\xbfa\tr\tb\r\n\r\nb\tr\tc\r\n\n")
    assert named(graph) == ABC
    assert report.triples == 2
    assert report.skipped == 0


@pytest.mark.parametrize("header", ["head\trelation\ttail", "Subject\tPredicate\tObject", "source\tedge\ttarget"])
def test_a_header_row_is_not_a_triple(header: str) -> None:
    assert named(compiled(f"{header}\na\tr\tb\nb\tr\tc\n".encode())[0]) == ABC
    assert named(compiled(f"{header}\na\tr\tb\nb\tr\tc\n".replace("\t", ",").encode(), "g.csv")[0]) == ABC
    quoted = header.replace("\t", '","')
    assert named(compiled(f'"{quoted}"\na,r,b\nb,r,c\n'.encode(), "g.csv")[0]) == ABC


def test_a_header_below_blank_lines_is_found() -> None:
    content = b"\n\n\nhead\trelation\ttail\na\tr\tb\nb\tr\tc\n"
    assert named(compiled(content)[0]) == ABC


def test_header_words_further_down_are_names() -> None:
    assert named(compiled(b"a\tr\tb\nhead\trelation\ttail\n")[0])[1] == ("head", "relation", "tail")


def test_quoted_csv_fields_may_contain_commas_quotes_and_line_ends() -> None:
    graph, report = compiled(b'a,r,b\n"x, y","said ""no""","two\nlines"\nb,r,c\n', "graph.csv")
    assert named(graph) == [("a", "r", "b"), ("x, y", 'said "no"', "two\nlines"), ("b", "r", "c")]
    assert report.triples == 3


def test_line_numbers_are_right_after_a_quoted_line_end() -> None:
    with pytest.raises(InputError, match=r"graph.csv:4"):
        compiled(b'a,r,b\n"two\nlines",r,b\nonly,two\n', "graph.csv")


def test_names_keep_their_spaces_and_non_ascii_letters() -> None:
    assert named(compiled("  São Tomé \tà côté\t日本 \n".encode())[0]) == [("  São Tomé ", "à côté", "日本 ")]


BAD_LINES = {  # each line with a token of its error
    b"a\tr": "2 columns",
    b"a r b": "has 1 column instead",
    b"a\tr\tb\tc": "4 columns",
    b"\tr\tb": "head",
    b"a\t\tb": "relation",
    b"a\tr\t": "tail",
    b"\t\t": "head",
    b"a\t\xff\tb": "UTF-8",
    b"a\t\xed\xa0\x80\tb": "UTF-8",
}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_bad_line_is_an_error_with_file_and_line_or_is_skipped_and_reported(bad: bytes) -> None:
    content = b"a\tr\tb\n\n" + bad + b"\nb\tr\tc\n"
    with pytest.raises(InputError, match=rf"graph.tsv:3: .*{BAD_LINES[bad]}"):
        compiled(content)
    with pytest.raises(InputError, match=rf"graph.csv:3: .*{BAD_LINES[bad]}"):
        compiled(content.replace(b"\t", b","), "graph.csv")
    graph, report = compiled(content, on_error="skip")
    assert named(graph) == ABC
    assert report.skipped == 1 and BAD_LINES[bad] in report.problems[0]


def test_skipped_lines_are_counted_and_the_first_five_shown() -> None:
    graph, report = compiled(b"a\tr\tb\n" + b"bad\n" * 7 + b"b\tr\tc\n", on_error="skip")
    assert named(graph) == ABC
    assert report.skipped == 7
    assert [p.split(":")[1] for p in report.problems] == ["2", "3", "4", "5", "6"]
    assert report.remarks()[0].startswith("7 bad lines")


def test_on_error_is_stop_or_skip() -> None:
    with pytest.raises(FewlinkError, match="ignore"):
        compiled(b"a\tr\tb\n", on_error="ignore")


STRANGE_LINES = {
    "spaces": b" \t \t \n",
    "a long name": b"a\tr\t" + b"x" * (2 << 20) + b"\n",
    "a return": b"a\rb\tr\tc\n",
}


@pytest.mark.parametrize("strange", STRANGE_LINES)
@pytest.mark.parametrize("name", ["graph.tsv", "graph.csv"])
def test_how_a_line_is_read_does_not_depend_on_other_lines(strange: str, name: str) -> None:
    line, quoted = STRANGE_LINES[strange], b""
    if name == "graph.csv":
        line, quoted = line.replace(b"\t", b","), b'"q",r,b\n'
    alone = named(compiled(GOOD[name] + line, name, on_error="skip")[0])
    for others in (b"\n", b"bad\n", quoted):
        triples = named(compiled(GOOD[name] + line + others, name, on_error="skip")[0])
        assert [t for t in triples if t[0] != "q"] == alone


GOOD_NTRIPLES = b"<x:a> <x:r> <x:b> .\n<x:b> <x:r> <x:c> .\n"


@needs_pyoxigraph
def test_literals_in_ntriples_are_left_out_and_counted() -> None:
    content = b"""# a comment
<x:a> <x:r> <x:b> .
<x:a> <x:name> "Ann" .
<x:a> <x:age> "3"^^<http://www.w3.org/2001/XMLSchema#integer> .

_:n1 <x:r> _:n2 .
"""
    graph, report = compiled(content, "graph.nt")
    triples = named(graph)
    assert triples[0] == ("x:a", "x:r", "x:b")
    assert [n.removeprefix("_:") for n in triples[1]] == ["n1", "x:r", "n2"]
    assert (report.triples, report.literals) == (2, 2)
    assert len(report.remarks()) == 1


@needs_pyoxigraph
def test_a_blank_node_is_the_same_one_everywhere() -> None:
    graph, _ = compiled(b"_:n <x:r> <x:a> .\n_:n <x:r> <x:b> .\n", "graph.nt")
    assert len(graph.entities) == 3


@needs_pyoxigraph
@pytest.mark.parametrize("bad", [b"<x:a> <x:r> .", b"<x:a> <x:r> <x:\xff> .", b"a\tr\tb", b'<x:a> <x:r> "open .'])
def test_a_bad_ntriples_line_is_an_error_with_file_and_line(bad: bytes) -> None:
    content = GOOD_NTRIPLES + bad + b"\n" + b"<x:c> <x:r> <x:d> .\n"
    with pytest.raises(InputError, match=r"graph.nt:3"):
        compiled(content, "graph.nt")
    graph, report = compiled(content, "graph.nt", on_error="skip")
    assert (graph.triple_count, report.skipped) == (3, 1)


def read_facts(reader: Reader) -> None:
    """Lines such as `likes(ann, bob)`."""
    with opened(reader.path) as file:
        for line, text in enumerate(file, 1):
            relation, bracket, entities = text.decode().strip(") \n").partition("(")
            head, comma, tail = entities.partition(", ")
            if bracket and comma:
                reader.add_fields([head, relation, tail])
            else:
                reader.bad("is not a fact", line)


@pytest.fixture
def facts_format() -> Iterator[None]:
    FORMATS.append(Format("facts", (".facts",), read_facts))
    yield
    FORMATS.pop()


@pytest.mark.usefixtures("facts_format")
def test_a_new_format_is_a_function_and_a_line() -> None:
    content = b"r(a, b)\nr(a)\noops\nr(b, c)\n"
    graph, report = compiled(gzip.compress(content), "graph.facts.gz", on_error="skip")
    assert named(graph) == ABC
    assert [p.split(":", 1)[1][:12] for p in report.problems] == ["2: is not a ", "3: is not a "]
