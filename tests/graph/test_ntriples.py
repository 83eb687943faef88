from __future__ import annotations

import pytest
from tests.conftest import compiled, named

from fewlink.base.errors import InputError
from fewlink.graph import source

pytest.importorskip("pyoxigraph")

GOOD = b"<x:a> <x:r> <x:b> .\n<x:b> <x:r> <x:c> .\n"


def test_ntriples_leave_literals_out_and_count_them() -> None:
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
    assert report.remarks() == ["2 triples with a literal object left out"]


def test_a_blank_node_is_the_same_one_in_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BLOCK_BYTES", 20)
    graph, _ = compiled(b"_:n <x:r> <x:a> .\n_:n <x:r> <x:b> .\n", "graph.nt")
    assert len(graph.entities) == 3


@pytest.mark.parametrize("bad", [b"<x:a> <x:r> .", b"<x:a> <x:r> <x:\xff> .", b"a\tr\tb", b'<x:a> <x:r> "open .'])
def test_a_bad_ntriples_line_is_an_error_with_file_and_line(bad: bytes) -> None:
    content = GOOD + bad + b"\n" + b"<x:c> <x:r> <x:d> .\n"
    with pytest.raises(InputError, match=r"graph.nt:3: is not an N-Triples line"):
        compiled(content, "graph.nt")
    graph, report = compiled(content, "graph.nt", on_error="skip")
    assert (graph.triple_count, report.skipped) == (3, 1)
