from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.conftest import compiled, named

from fewlink.core.errors import FewlinkError
from fewlink.graph import CompileReport, compile_graph


def test_duplicates_are_left_out_and_self_loops_kept_and_both_are_counted() -> None:
    graph, report = compiled(b"a\tr\tb\nc\tr\tc\na\tr\tb\na\tr\tb\nc\tr\tc\n")
    assert named(graph) == [("a", "r", "b"), ("c", "r", "c")]
    assert (report.triples, report.duplicates, report.self_loops) == (5, 3, 1)
    assert [remark.split()[:2] for remark in report.remarks()] == [["3", "duplicate"], ["1", "self-loops"]]


def test_a_clean_file_has_no_remarks() -> None:
    assert compiled(b"a\tr\tb\n")[1].remarks() == []


def test_several_files_become_one_graph(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"head\trelation\ttail\na\tr\tb\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"head,relation,tail\nb,q,c\na,r,b\n"))
    report = CompileReport()
    graph = compile_graph([tmp_path / "a.tsv", str(tmp_path / "b.csv.gz")], report=report)
    assert named(graph) == [("a", "r", "b"), ("b", "q", "c")]
    assert report.duplicates == 1


def test_a_single_path_is_not_read_as_a_list_of_letters(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"a\tr\tb\n")
    assert named(compile_graph(str(tmp_path / "a.tsv"))) == [("a", "r", "b")]
    assert named(compile_graph(tmp_path / "a.tsv")) == [("a", "r", "b")]  # type: ignore[arg-type]


def test_no_files_are_an_error() -> None:
    with pytest.raises(FewlinkError, match="no files"):
        compile_graph([])


def test_files_of_bad_lines_only_are_an_error_that_shows_the_first() -> None:
    with pytest.raises(FewlinkError, match=r"2 bad lines.*graph.tsv:1: "):
        compiled(b"a r b\nb r c\n", on_error="skip")


@pytest.mark.parametrize("option", ["types", "names"])
@pytest.mark.parametrize(
    "content",
    [None, b"a Alpha\n", b"A\tletter\nB\tletter\n", b"a\tr\tb\nb\tr\tc\n"],
    ids=["missing", "one column", "of another graph", "triples"],
)
def test_a_wrong_side_file_is_an_error_that_names_it(option: str, content: bytes | None, tmp_path: Path) -> None:
    """With types of another graph, the range of a relation would be its true tails and no others."""
    if content is not None:
        (tmp_path / "side.tsv").write_bytes(content)
    with pytest.raises(FewlinkError, match=r"side.tsv"):
        compiled(b"a\tr\tb\nb\tr\tc\n", **{option: tmp_path / "side.tsv"})


@pytest.mark.parametrize("option", ["types", "names"])
def test_a_side_file_may_have_three_columns(option: str, tmp_path: Path) -> None:
    (tmp_path / "side.tsv").write_bytes(b"a\tT\tletter\nb\tT\tletter\n")
    compiled(b"a\tr\tb\nb\tr\tc\n", **{option: tmp_path / "side.tsv"})


def test_names_may_be_of_relations_alone(tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text("A\tAlpha\nr\tis before\n")
    assert compiled(b"a\tr\tb\n", names=tmp_path / "names.tsv")[0].relation_name(0) == "is before"


def test_a_header_that_was_left_out_is_reported() -> None:
    """`h r t` may be a triple, so the user must see that it was not read as one."""
    graph, report = compiled(b"h\tr\tt\na\tr\tb\n")
    assert named(graph) == [("a", "r", "b")]
    assert any("header" in remark for remark in report.remarks())
