from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ENTITIES, RELATIONS, id_graph

from fewlink.core.errors import FewlinkError
from fewlink.core.words import percent
from fewlink.graph.check import NEAR_COPY_SHARE, _near_copies, check_graph
from fewlink.graph.source import GraphSource


def check(tmp_path: Path, *rows: str, **options: Any) -> dict[str, Any]:
    path = tmp_path / "graph.tsv"
    path.write_text("".join(row.replace(" ", "\t") + "\n" for row in rows))
    return check_graph(GraphSource.of(path, on_error="skip"), **options)


def test_counts_of_a_small_graph(tmp_path: Path) -> None:
    result = check(tmp_path, "a r b", "b r c", "a r b", "d q d", "bad", "e q f", smallest=2, largest=3)
    assert result["counts"] == {
        "triples": 4,
        "entities": 6,
        "relations": 2,
        "entity types": 0,
        "bad lines": 1,
        "duplicate triples": 1,
        "self-loops": 1,
        "literals left out": 0,
        "connected parts": 3,
        "isolated entities": 1,
        "entities with one edge": 4,
        "relations with one triple": 0,
        "possible few-shot tasks": 2,
    }
    assert result["possible_tasks"] == ["r", "q"]
    assert result["largest_relations"][0] == {"relation": "r", "triples": 2, "heads": 2, "tails": 2}
    assert result["degrees"] == [{"degree": "1", "entities": 4}, {"degree": "2", "entities": 2}]
    assert sum(d["entities"] for d in result["degrees"]) == 6


def test_problems_are_reported(tmp_path: Path) -> None:
    rows = [f"a{i} r b{i}" for i in range(10)] + [f"b{i} back a{i}" for i in range(10)]
    rows += [f"a{i} copy b{i}" for i in range(9)]
    result = check(tmp_path, *rows, "a0 r b0", "x r x", "r r a1", "onlytwo columns", smallest=2)
    text = "\n".join(result["problems"])
    for token in ("graph.tsv:33: ", "1 duplicate", "1 self-loop, such as on 'x'", "('r')", "inverse of 'back' (90 %"):
        assert token in text


def test_names_with_white_space_around_them_are_reported(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("a\tr \tb\n")
    assert any(
        "('r ')" in problem for problem in check_graph(GraphSource.of(tmp_path / "g.tsv", on_error="skip"))["problems"]
    )


def test_a_small_graph_is_no_problem(tmp_path: Path) -> None:
    assert not check(tmp_path, "a r b", smallest=2, largest=5)["problems"]


def test_a_file_of_bad_lines_shows_the_reason(tmp_path: Path) -> None:
    (tmp_path / "spaces.txt").write_text("a r b c\nb r c d\n")
    with pytest.raises(FewlinkError, match=r"2 bad lines.*spaces.txt:1: "):
        check_graph(GraphSource.of(tmp_path / "spaces.txt", on_error="skip"))


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_an_empty_file_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_bytes(content)
    problem = r"graph.tsv: the file is empty or has only a header or comments; write a head"
    with pytest.raises(FewlinkError, match=problem):
        check_graph(GraphSource.of(tmp_path / "graph.tsv", on_error="skip"))


def test_readable_names_are_checked_and_shown(tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_text("Q1\tP1\tQ2\n")
    (tmp_path / "names.tsv").write_text("Q1\tOslo\nP1\tis in\n")
    report = check_graph(GraphSource.of(tmp_path / "graph.tsv", names=tmp_path / "names.tsv", on_error="skip"))
    assert report["counts"]["entities with a readable name"] == 1
    assert report["largest_relations"][0]["name"] == "is in"
    (tmp_path / "names.tsv").write_text("Q7\tRome\n")
    with pytest.raises(FewlinkError, match=r"names.tsv"):
        check_graph(GraphSource.of(tmp_path / "graph.tsv", names=tmp_path / "names.tsv", on_error="skip"))


def test_a_header_row_is_reported(tmp_path: Path) -> None:
    report = check(tmp_path, "h r t", "a r b")
    assert report["header"] and report["names"] == ["h", "r", "t"]


id_pairs = st.sets(st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, ENTITIES - 1)), min_size=5)
a_pair_less = st.tuples(id_pairs, st.booleans()).map(
    lambda both: [both[0], {(t, h) if both[1] else (h, t) for h, t in sorted(both[0])[1:]}]
)


@given(id_pairs, a_pair_less)
def test_near_copies_equal_those_of_a_literal_comparison(one: set[tuple[int, int]], others: list[Any]) -> None:
    pairs = [one, *others]
    expected = []
    for a, b in itertools.combinations(range(RELATIONS), 2):
        for how, other in (("a copy", pairs[b]), ("the inverse", {(t, h) for h, t in pairs[b]})):
            share = len(pairs[a] & other) / max(len(pairs[a]), len(other))
            if min(len(pairs[a]), len(other)) >= 5 and share >= NEAR_COPY_SHARE:
                expected.append(f"'r{b}' is nearly {how} of 'r{a}' ({percent(share)} of the pairs)")
    graph = id_graph([(h, r, t) for r in range(RELATIONS) for h, t in pairs[r]])
    assert _near_copies(graph, graph.triples()) == expected
