"""A project goes out and comes back: decisions as CSV, triples as N-Triples, the whole log as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewlink.core.errors import FewlinkError, InputError
from fewlink.curation import store
from fewlink.curation.exports import ENTITY, RELATION, export, iri, of_iri, write_export
from fewlink.curation.imports import Find, Imported, add_decisions, decisions_in, read_decisions
from fewlink.curation.store import ProjectFile

ODD = 'a "b"\t<c> \\n ü'


@pytest.fixture
def file(tmp_path: Path) -> ProjectFile:
    made = ProjectFile(tmp_path / "a.fewlink")
    made.add_project("can cure", [("http://x.org/a", "b")], description="what cures what", who="ann")
    made.decide("can cure", [("accepted", ODD, "y", 0.125), ("rejected", "x", "z")], "ann")
    made.decide("can cure", [("accepted", "x", "z")], "bob")
    made.decide("can cure", [("rejected", "u", "v")], "bob")
    made.undo("can cure", who="bob")
    return made


def import_file(file: ProjectFile, project: str, path: Path, who: str = "") -> Imported:
    return add_decisions(file, project, read_decisions(path, who))


def import_text(
    file: ProjectFile, project: str, text: str, format: str, who: str = "", find: Find | None = None
) -> Imported:
    return add_decisions(file, project, decisions_in(text, format, who), find)


def states(file: ProjectFile, project: str) -> list[tuple[str, ...]]:
    return sorted((s.kind, s.head, s.tail, s.who, s.time, str(s.probability)) for s in file.decisions(project))


@pytest.mark.parametrize("format", ["csv", "json"])
def test_decisions_survive_export_and_import(file: ProjectFile, tmp_path: Path, format: str) -> None:
    path = write_export(file, "can cure", tmp_path / f"out.{format}")
    with ProjectFile(tmp_path / "b.fewlink") as other:
        first = import_file(other, "can cure", path, who="eve")
        assert first.added == first.read > 0
        assert states(other, "can cure") == states(file, "can cure")
        assert import_file(other, "can cure", path, who="eve").added == 0


def test_json_keeps_the_log_and_the_description(file: ProjectFile, tmp_path: Path) -> None:
    path = write_export(file, "can cure", tmp_path / "out.json")
    with ProjectFile(tmp_path / "b.fewlink") as other:
        import_file(other, "copy", path)
        assert other.project("copy").description == "what cures what"
        assert other.log("copy") == file.log("can cure")
        assert other.project("copy").conflicts == 1


def test_two_logs_of_one_project_are_merged(file: ProjectFile, tmp_path: Path) -> None:
    path = write_export(file, "can cure", tmp_path / "out.json")
    with ProjectFile(tmp_path / "b.fewlink") as other:
        import_file(other, "can cure", path)
        other.decide("can cure", [("accepted", "p", "q")], "cy")
        file.decide("can cure", [("rejected", "r", "s")], "ann")
        back = write_export(other, "can cure", tmp_path / "back.json")
    assert import_file(file, "can cure", back).added == 1
    assert ("p", "q") in file.pairs("can cure", "accepted")
    assert ("r", "s") in file.pairs("can cure", "rejected")


def test_equal_events_of_one_moment_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "now", lambda: "2026-01-01T00:00:00.000Z")
    made, other = ProjectFile(tmp_path / "a"), ProjectFile(tmp_path / "b")
    made.add_project("p")
    made.decide("p", [(kind, "x", "y") for kind in ("accepted", "rejected", "accepted")], "ann")
    made.decide("p", [("accepted", "u", "v")], "bob")
    made.decide("p", [("rejected", "u", "v")], "ann")
    made.undo_all("p", [event.number for event in made.log("p")][-2:], "ann")
    for added in (len(made.log("p")), 0):
        assert import_text(other, "p", export(made, "p", "json"), "json").added == added
        assert other.log("p") == made.log("p") and states(other, "p") == states(made, "p")


def test_ntriples_hold_what_is_true(file: ProjectFile, tmp_path: Path) -> None:
    path = write_export(file, "can cure", tmp_path / "out.nt")
    lines = path.read_text().splitlines()
    assert lines[0] == f"<http://x.org/a> <{RELATION}can%20cure> <{ENTITY}b> ."
    assert len(lines) == 3
    with ProjectFile(tmp_path / "b.fewlink") as other:
        import_file(other, "can cure", path, who="eve")
        assert set(other.pairs("can cure", "accepted")) == {("http://x.org/a", "b"), (ODD, "y"), ("x", "z")}


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_every_id_comes_back_from_its_iri(text: str) -> None:
    assert of_iri(iri(text, ENTITY)) == text
    assert not set(iri(text, ENTITY)) & set(' <>"\n')


def test_a_plain_file_of_pairs_is_accepted_pairs(file: ProjectFile, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("k\tl\nm\tn\trejected\n")
    assert import_file(file, "can cure", path, who="eve").added == 2
    assert ("k", "l") in file.pairs("can cure", "accepted")
    assert file.log("can cure")[-1].who == "eve"


def test_a_decision_that_stands_already_is_not_repeated(file: ProjectFile) -> None:
    before = file.log("can cure")
    done = import_text(file, "can cure", "x\tz\nx\tw\n", "csv", who="eve")
    assert (done.added, done.read) == (1, 2)
    assert file.log("can cure")[:-1] == before and file.log("can cure")[-1].pair == ("x", "w")


def test_names_become_ids_and_unknown_ones_stay(file: ProjectFile) -> None:
    ids = {"Aspirin": "q1", "Headache": "q2", "q2": "q2"}
    text = "Aspirin\tHeadache\nAspirin\tq2\trejected\nAspirin\tnothing\nnobody\tHeadache\n"
    done = import_text(file, "new", text, "csv", who="eve", find=ids.get)
    assert done.unknown == [("Aspirin", "nothing"), ("nobody", "Headache")]
    assert [event.pair for event in file.log("new")] == [
        ("q1", "q2"),
        ("q1", "q2"),
        ("q1", "nothing"),
        ("nobody", "q2"),
    ]


def test_what_two_curators_undid_is_undone_once(file: ProjectFile, tmp_path: Path) -> None:
    with ProjectFile(tmp_path / "b.fewlink") as other:
        import_text(other, "can cure", export(file, "can cure", "json"), "json")
        for log, who in ((file, "ann"), (other, "cy")):
            (accepted,) = (event for event in log.log("can cure") if event.pair == (ODD, "y"))
            log.undo("can cure", accepted.number, who)
        other.decide("can cure", [("accepted", "later", "one")], "cy")
        back = export(other, "can cure", "json")
    assert import_text(file, "can cure", back, "json").added == 1  # the decision, not the second undo
    assert file.pairs("can cure", "accepted") == [("x", "z"), ("later", "one")]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("x.tsv", "a\n", r"x\.tsv:1: has 1 column: write"),
        ("x.tsv", "a\tb\tmaybe\n", r"x\.tsv:1: .*'maybe'"),
        ("x.tsv", "", r"x\.tsv: has no decisions"),
        ("x.nt", "<a:b> <c:d> 'e' .\n", r"x\.nt:1: is not a triple of three IRIs"),
        ("x.nt", "<a:b> <c:d> <e:f> .\n<a:b> <c:g> <e:f> .\n", "has 2 relations"),
        ("x.json", "{", "is not JSON"),
        ("x.json", "{}", r"x\.json: "),
        ("x.json", '{"format": "fewlink-project/2", "log": [], "log": []}', "'log' is repeated"),
        ("x.json", json.dumps({"format": "fewlink-project/2", "log": [{"kind": "x"}]}), "is a damaged export"),
        ("x.tsv", "a\tb\taccepted\tann\t2026\t1.5", "the probability '1.5' is not a number from 0 to 1"),
        ("x.tsv", "a\tb\taccepted\tann\t2026\thigh", "the probability 'high' is not a number from 0 to 1"),
        ("x.xls", "a,b", r"use \.csv"),
        ("x.csv", "a,b,maybe", r"x\.csv:1: .*'maybe'"),
        ("x.csv", "head,relation,tail\na,r,b\na,s,b\n", "has 2 relations"),
        ("x.tsv", "head\trelation\ttail\na\tr\n", r"x\.tsv:2: .*write head, relation, tail"),
        ("x.tsv", "head\trank\ttail\na\t1\tb\n", "lists predictions: add a column 'decision'"),
        ("x.csv", "head,tail,decision\na,b,\n", "has no decisions"),
    ],
)
def test_what_cannot_be_imported_is_named_and_changes_nothing(
    file: ProjectFile, tmp_path: Path, name: str, text: str, problem: str
) -> None:
    (tmp_path / name).write_text(text)
    before = file.log("can cure")
    with pytest.raises(InputError, match=problem):
        import_file(file, "can cure", tmp_path / name)
    assert file.log("can cure") == before


def test_an_import_that_is_refused_makes_no_project(file: ProjectFile, tmp_path: Path) -> None:
    content = json.loads(export(file, "can cure", "json"))
    first = {**content["log"][0], "number": 1}
    for log, problem in (
        ([first, {**first, "number": 2, "kind": "undo", "undoes": 7}], "event 2 undoes 7"),
        ([first, {**first, "number": 2, "head": " "}], "event 2"),
    ):
        (tmp_path / "x.json").write_text(json.dumps({**content, "log": log}))
        with pytest.raises(FewlinkError, match=problem):
            import_file(file, "another", tmp_path / "x.json")
        assert [project.name for project in file.projects()] == ["can cure"]


def test_a_table_of_missing_links_is_read_once_it_has_decisions(tmp_path: Path) -> None:
    table = tmp_path / "missing.tsv"
    table.write_text('# made with {"model": "trail"}\nhead\trank\ttail\nann\t1\toslo\neve\t1\trome\n')
    with pytest.raises(InputError, match="add a column 'decision'"):
        read_decisions(table)
    table.write_text("# made with {}\nhead\trank\ttail\tdecision\nann\t1\toslo\taccepted\neve\t1\trome\t\n")
    assert [(event.head, event.tail, event.kind) for event in read_decisions(table).events] == [
        ("ann", "oslo", "accepted")
    ]
    table.write_text("head\ttail\n# made with love\toslo\n")
    assert [event.head for event in read_decisions(table).events] == ["# made with love"]
