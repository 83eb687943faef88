from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.conftest import compiled, named

from fewlink.core.errors import FewlinkError, InputError
from fewlink.graph import CompileReport, compile_graph


def test_duplicates_are_left_out_and_self_loops_kept_and_both_are_counted() -> None:
    graph, report = compiled(b"a\tr\tb\nc\tr\tc\na\tr\tb\na\tr\tb\nc\tr\tc\n")
    assert named(graph) == [("a", "r", "b"), ("c", "r", "c")]
    assert (report.triples, report.duplicates, report.self_loops) == (5, 3, 1)
    assert [remark.split()[:2] for remark in report.remarks()] == [["3", "duplicate"], ["1", "self-loop"]]


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
        compiled(b"a r b c\nb r c d\n", on_error="skip")


def test_a_bad_side_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"types.tsv"):
        compiled(b"a\tr\tb\n", types=tmp_path / "types.tsv")
    (tmp_path / "names.tsv").write_text("a Alpha\n")
    with pytest.raises(InputError, match=r"names.tsv:1"):
        compiled(b"a\tr\tb\n", names=tmp_path / "names.tsv")


def test_types_that_name_no_entity_of_the_graph_are_an_error(tmp_path: Path) -> None:
    """They belong to another graph; with them the range of a relation would be its true tails and no others."""
    (tmp_path / "types.tsv").write_text("A\tletter\nB\tletter\n")
    with pytest.raises(FewlinkError, match=r"types.tsv"):
        compiled(b"a\tr\tb\n", types=tmp_path / "types.tsv")


def test_names_of_another_graph_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text("A\tAlpha\n")
    with pytest.raises(FewlinkError, match=r"names.tsv"):
        compiled(b"a\tr\tb\n", names=tmp_path / "names.tsv")
    (tmp_path / "names.tsv").write_text("A\tAlpha\nr\tis before\n")
    assert compiled(b"a\tr\tb\n", names=tmp_path / "names.tsv")[0].relation_name(0) == "is before"


@pytest.mark.parametrize("option", ["types", "names"])
def test_triples_in_place_of_a_side_file_are_an_error(option: str, tmp_path: Path) -> None:
    triples = b"a\tr\tb\nb\tr\tc\n"
    (tmp_path / "side.tsv").write_bytes(triples)
    with pytest.raises(FewlinkError, match=r"side.tsv"):
        compiled(triples, **{option: tmp_path / "side.tsv"})
    (tmp_path / "side.tsv").write_bytes(b"a\tT\tletter\nb\tT\tletter\n")
    compiled(triples, **{option: tmp_path / "side.tsv"})


def test_a_header_that_was_left_out_is_reported() -> None:
    """`h r t` may be a triple, so the user must see that it was not read as one."""
    graph, report = compiled(b"h\tr\tt\na\tr\tb\n")
    assert named(graph) == [("a", "r", "b")]
    assert any("header" in remark for remark in report.remarks())
