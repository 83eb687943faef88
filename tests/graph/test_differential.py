"""Every format, generated, damaged and cut: a second parser reads the same triples, or fewlink refuses the file."""

from __future__ import annotations

from pathlib import Path

import pytest

for module in ("lxml", "pyarrow", "pyoxigraph", "rdflib"):
    pytest.importorskip(module)

import differential  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside rdflib
FORMATS = [format.name for format in differential.formats()]


@pytest.mark.parametrize("format", FORMATS)
def test_a_second_parser_reads_the_same_triples(format: str) -> None:
    counts, problems = differential.compare(20, seed=7, only=format)
    assert counts == {format: 20} and problems == []


def test_a_reader_that_stops_early_disagrees(tmp_path: Path) -> None:
    lines = [b"<http://e/a> <http://e/r> <http://e/b> .\n", b"<http://e/b> <http://e/r> <http://e/c> .\n"]
    whole = differential.by_rdflib(b"".join(lines), "nt")
    format = differential.Format("N-Triples", "nt", differential.write_nt, lambda content: whole)
    assert differential.disagreement(tmp_path / "g.nt", b"".join(lines), "whole", format, b"".join(lines)) is None
    problem = differential.disagreement(tmp_path / "g.nt", lines[0], "cut", format, b"".join(lines))
    assert problem == "1 triples, but the second parser reads 2"
