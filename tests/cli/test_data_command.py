"""`fewlink data`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from tests.conftest import Answer, Fewlink, write_layout


def error_line(answer: Answer) -> str:
    """The one-line error message of a command."""
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    return answer.err


def test_data_list_shows_the_catalogue(fewlink: Fewlink) -> None:
    shown = fewlink("data", "list").out
    assert all(name in shown for name in ("umls", "nell-one", "wiki-one"))
    rows = {row["name"]: row for row in json.loads(fewlink("data", "list", "--json").out)}
    assert rows["umls"]["here"] is True
    assert rows["nell-one"]["here"] is False
    assert rows["nell-one"]["from"].startswith("https://")


@pytest.mark.parametrize("memory", ["1K", "4GB"])
def test_data_compile_writes_a_graph(fewlink: Fewlink, tmp_path: Path, memory: str) -> None:
    (tmp_path / "graph.tsv").write_text("".join(f"e{i}\tr{i % 3}\te{i * i % 70}\n" for i in range(100)))
    answer = fewlink("data", "compile", "graph.tsv", "--out", "compiled", "--memory", memory)
    assert answer.code == 0 and "100" in answer.out and not list(tmp_path.glob(".compiled*.work"))
    fewlink("ask", "compiled", "--reference", "e1 => e4", "--head", "e2", "--json")
    assert "compiled: " in error_line(fewlink("data", "compile", "graph.tsv", "--out", "compiled"))
    assert "--memory is 'much'" in error_line(fewlink("data", "compile", "graph.tsv", "--out", "a", "--memory", "much"))


def test_data_compile_writes_a_benchmark(fewlink: Fewlink, tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "tiny")
    answer = fewlink("data", "compile", layout, "--out", "compiled")
    assert answer.code == 0 and "compiled" in answer.out
    counts = [json.loads(fewlink("data", "info", place, "--json").out)["counts"] for place in (layout, "compiled")]
    assert counts[0] == counts[1]
    assert "compiled: " in error_line(fewlink("data", "compile", layout, "--out", "compiled"))
    assert str(tmp_path) in error_line(fewlink("data", "compile", tmp_path, "--out", "other"))
    assert not (tmp_path / "other").exists()


def test_data_info_counts_entities_triples_and_tasks(fewlink: Fewlink, tmp_path: Path) -> None:
    facts = json.loads(fewlink("data", "info", write_layout(tmp_path / "tiny"), "--json").out)
    assert facts["counts"] == {
        "entities": 7,
        "background triples": 4,
        "background relations": 2,
        "entity types": 0,
        "train tasks": 1,
        "dev tasks": 1,
        "test tasks": 1,
        "train pairs": 2,
        "dev pairs": 2,
        "test pairs": 3,
    }
    assert facts["tasks"][-1] == {"split": "test", "relation": "visited", "pairs": 3, "candidates": 2}
    assert "visited" in fewlink("data", "info", tmp_path / "tiny").out


def test_data_get_from_an_archive_makes_the_benchmark_available_by_name(fewlink: Fewlink, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "mine.tar.gz", "w:gz") as tar:
        tar.add(write_layout(tmp_path / "tiny"), arcname="nell")
    answer = fewlink("data", "get", "nell-one", "--from", tmp_path / "mine.tar.gz")
    assert answer.code == 0
    assert answer.err.startswith("note: ")  # the figures are not those of the published files
    assert str(tmp_path / "home" / "nell-one") in answer.out
    assert fewlink("evaluate", "nell-one", "--split", "test", "--shots", 1).code == 0


def test_data_check_reports_counts_and_problems(fewlink: Fewlink, tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("a\tr\tb\na\tr\tb\nb\tq\tb\nbad line\n")
    answer = fewlink("data", "check", "g.tsv")
    assert answer.code == 0
    assert "g.tsv:4: " in answer.out and "'b'" in answer.out
    report = json.loads(fewlink("data", "check", "g.tsv", "--json").out)
    assert report["counts"]["duplicate triples"] == 1


@pytest.mark.parametrize("name", ["[/x]", "a[bold]b", "x:dog:y", "[link=http://x]y"])
def test_names_are_printed_without_markup(name: str, fewlink: Fewlink, tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text(f"a\t{name}\tb\n")
    answer = fewlink("data", "check", "g.tsv")
    assert answer.code == 0
    assert name in answer.out


def test_data_carve_writes_a_benchmark_that_can_be_evaluated(fewlink: Fewlink, tmp_path: Path) -> None:
    rows = [f"p{i}\tin\tc{i % 4}" for i in range(40)]
    rows += [f"p{i}\tr{k}\tp{(i + k + 1) % 40}" for k in range(5) for i in range(10 + k)]
    (tmp_path / "g.tsv").write_text("\n".join([*rows, "bad line", rows[0]]))
    carve = ("data", "carve", "g.tsv", "--out", "mine", "--smallest", 5, "--largest", 20)
    assert "g.tsv:101: " in error_line(fewlink(*carve))
    answer = fewlink(*carve, "--on-error", "skip")
    assert answer.code == 0
    assert answer.err.count("note: 1 ") == 2  # a bad line and a duplicate triple
    record = json.loads(fewlink("evaluate", "mine", "--split", "test", "--json").out)
    before = (tmp_path / "mine" / "manifest.json").read_bytes()
    assert "mine: " in error_line(fewlink(*carve, "--on-error", "skip", "--seed", 1))
    assert (tmp_path / "mine" / "manifest.json").read_bytes() == before
    assert record["benchmark"] == "mine"
    assert record["queries"] > 0
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("irreplaceable")
    assert "thesis" in error_line(fewlink(*carve[:4], "thesis", *carve[5:], "--on-error", "skip"))
