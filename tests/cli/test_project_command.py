"""`fewlink project`: what a project file holds, exported, imported and undone; and `--not` of `fewlink ask`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fewlink.cli import app
from fewlink.core.errors import FewlinkError
from fewlink.curation.store import ProjectFile


def call(*words: Any) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, FewlinkError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with ProjectFile(tmp_path / "a.decisions") as file:
        file.add_project("cures", [("a", "b")], who="ann")
        file.decide("cures", [("accepted", "c", "d"), ("rejected", "c", "e")], "ann")
    return tmp_path / "a.decisions"


def test_list_and_log(path: Path) -> None:
    (row,) = json.loads(call("project", "list", path, "--json"))
    assert (row["name"], row["references"], row["accepted"], row["rejected"]) == ("cures", 1, 1, 1)
    assert "cures" in call("project", "list", path)
    assert [event["kind"] for event in json.loads(call("project", "log", path, "--json"))] == [
        "reference",
        "accepted",
        "rejected",
    ]
    assert "rejected" in call("project", "log", path)


def test_show_tells_the_progress(path: Path) -> None:
    assert "1 reference, 2 decided, 50 % right so far" in call("project", "show", path)
    with ProjectFile(path) as file:
        file.decide("cures", [("accepted", f"head {place}", "d") for place in range(8)])
    found = json.loads(call("project", "show", path, "--json"))
    assert (found["right"], found["tails"]) == (0.9, [{"tail": "d", "accepted": 9}])
    assert found["warning"].startswith("all 9 accepted pairs have the tail d:")
    assert found["warning"].split(":")[0] in call("project", "show", path)


def test_export_import_and_undo(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "cures.json"
    call("project", "export", path, "--out", out)
    other = tmp_path / "b.decisions"
    assert "3 of 3 decisions added to cures" in call("project", "import", other, out)
    assert "0 of 3 decisions added to cures" in call("project", "import", other, out)
    assert "undone: c → e was rejected by ann" in call("project", "undo", other, "--who", "ann")
    with ProjectFile(other) as file:
        assert file.pairs("cures", "rejected") == []


def test_exports_have_names_of_the_graph_that_the_file_is_named_after(path: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\tknows\tb\nc\tknows\td\nc\tknows\te\n")
    (tmp_path / "a.names.tsv").write_text("a\tAnna\nb\tBob\n")
    call(
        "project",
        "export",
        path,
        "--out",
        tmp_path / "x.csv",
        "--relation",
        "heals",
        "--names",
        tmp_path / "a.names.tsv",
    )
    assert (tmp_path / "x.csv").read_text("utf-8-sig").splitlines()[1].startswith("a,Anna,heals,b,Bob,reference,,ann,")


def test_an_export_of_a_graph_without_names_says_how_to_get_them(path: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\tknows\tb\nc\tknows\td\nc\tknows\te\n")
    (tmp_path / "names.tsv").write_text("a\tAnna\nb\tBob\n")
    export = ("project", "export", path, "--out")
    assert "--names FILE" in call(*export, tmp_path / "x.csv")
    assert "note:" not in call(*export, tmp_path / "y.csv", "--names", tmp_path / "names.tsv")
    assert "note:" not in call(*export, tmp_path / "x.nt")


def test_what_cannot_be_exported_leaves_no_file(path: Path, tmp_path: Path) -> None:
    for name, problem in (("x.qs", "'a'"), ("x.stix.json", "'a' has no type"), ("x.xls", r"use \.csv")):
        with pytest.raises(FewlinkError, match=problem):
            call("project", "export", path, "--out", tmp_path / name)
        assert not (tmp_path / name).exists()


def test_an_export_does_not_replace_a_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("mine")
    with pytest.raises(FewlinkError, match=r"x\.csv: exists already: remove it, or choose another file"):
        call("project", "export", path, "--out", tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == "mine"


def test_a_failed_import_leaves_no_file(tmp_path: Path) -> None:
    path, table = tmp_path / "new.decisions", tmp_path / "cures.csv"
    for rows, problem in (("a,b,maybe", "unknown decision 'maybe'"), (" ,b,accepted", "cures.csv:2")):
        table.write_text(f"head,tail,decision\n{rows}\n")
        with pytest.raises(FewlinkError, match=problem):
            call("project", "import", path, table)
        assert sorted(tmp_path.iterdir()) == [table]


def test_an_import_makes_a_project_of_the_relation_in_the_table(path: Path, tmp_path: Path) -> None:
    table, new = tmp_path / "t.csv", tmp_path / "new.decisions"
    table.write_text("head,relation,tail,decision\na,father,b,accepted\n")
    assert "added to father" in call("project", "import", new, table)
    assert "added to father" in call("project", "import", new, table)  # its only project
    assert "added to parent" in call("project", "import", new, table, "--project", "parent")
    call("project", "export", path, "--out", tmp_path / "log.json")
    assert "decisions added to cures" in call("project", "import", tmp_path / "b.decisions", tmp_path / "log.json")
    table.write_text("head,relation,tail\na,father,b\na,mother,c\n")
    with pytest.raises(FewlinkError, match="has 2 relations, but a project has one: split the file"):
        call("project", "import", tmp_path / "c.decisions", table)


@pytest.mark.parametrize("suffix", ["csv", "nt", "json"])
def test_decisions_on_another_relation_go_into_a_project_only_if_it_is_named(
    path: Path, tmp_path: Path, suffix: str
) -> None:
    out, other = tmp_path / f"x.{suffix}", tmp_path / "b.decisions"
    call("project", "export", path, "--out", out)
    with ProjectFile(other) as file:
        file.add_project("lives in")
    refused = r"x\.\w+: has decisions on 'cures', but the project in .*b\.decisions is 'lives in': give --project"
    with pytest.raises(FewlinkError, match=refused):
        call("project", "import", other, out)
    with ProjectFile(other) as file:
        assert [(project.name, project.events) for project in file.projects()] == [("lives in", 0)]
    assert "added to lives in" in call("project", "import", other, out, "--project", "lives in")
    assert "added to cures" in call("project", "import", other, out, "--project", "cures")


def test_one_of_several_projects_must_be_named(path: Path, tmp_path: Path) -> None:
    with ProjectFile(path) as file:
        file.add_project("causes")
    with pytest.raises(FewlinkError, match="cures, causes"):
        call("project", "log", path)
    call("project", "log", path, "--project", "causes")
    with pytest.raises(FewlinkError, match="does not exist"):
        call("project", "undo", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_wrong_pairs_of_a_question(tmp_path: Path) -> None:
    references = ["--reference", "virus => cell", "--reference", "fungus => plant", "--head", "alga", "--json"]
    (tmp_path / "wrong.tsv").write_text("alga\tplant\n")
    for given in (["--not", "alga => plant"], ["--rejected", tmp_path / "wrong.tsv"]):
        result = CliRunner().invoke(app, ["ask", "umls", *references, *map(str, given)])
        assert result.exit_code == 0, result.output
        assert "plant" not in [row["tail"] for row in json.loads(result.stdout)]
        assert "1 rejected pair was used" in result.stderr


def test_names_of_a_graph_become_ids(tmp_path: Path) -> None:
    path, pairs = tmp_path / "a.decisions", tmp_path / "cures.tsv"
    pairs.write_text("Body System\tcell\nalga\tno such thing\n")
    said = call("project", "import", path, pairs, "--graph", "umls")
    assert "1 decided pair names an entity that this graph lacks" in said and "alga → no such thing" in said
    with ProjectFile(path) as file:
        assert file.pairs("cures", "accepted") == [("body_system", "cell"), ("alga", "no such thing")]


def test_a_question_reads_a_project(tmp_path: Path) -> None:
    path = tmp_path / "a.decisions"
    with ProjectFile(path) as file:
        pairs = [("gene_or_genome", "hormone"), ("cell", "immunologic_factor"), ("mental_process", "enzyme")]
        file.add_project("makes", pairs)
    asked = ("ask", "umls", "--project", path, "--head", "pathologic_function", "--json", "-k", 5)
    said = call(*asked)
    rows = json.loads(said[said.index("[\n") :])
    assert all(row["probability"] == row["base_probability"] for row in rows)
    with ProjectFile(path) as file:
        for row in rows[:3]:
            file.decide("makes", [("rejected", row["head"], row["tail"], row["base_probability"])])
    said = call(*asked)
    assert "3 decisions of the project makes" in said
    after = json.loads(said[said.index("[\n") :])
    assert not {row["tail"] for row in after} & {row["tail"] for row in rows[:3]}
    assert all(row["probability"] < row["base_probability"] for row in after)
    with pytest.raises(FewlinkError, match="--project-name"):
        call("ask", "umls", "--project-name", "makes", "--head", "alga")
    with pytest.raises(FewlinkError, match=r"'make'.*'makes'"):
        call(*asked, "--project-name", "make")


def test_a_project_that_is_named_after_a_relation_of_the_graph_reads_its_pairs(tmp_path: Path) -> None:
    path, table = tmp_path / "a.decisions", tmp_path / "missing.csv"
    table.write_text("head,relation,tail,decision\nalga,causes,plant,accepted\n")
    call("project", "import", path, table)
    said = call("ask", "umls", "--project", path, "--head", "bacterium", "-k", 1)
    assert "the graph has the relation causes of this project" in said and "references were held out" in said
    call("complete", "umls", "--project", path, "--out", tmp_path / "more.csv", "--top", 1)
    assert (tmp_path / "more.csv").read_text("utf-8-sig").splitlines()[1].split(",")[2] == "causes"


def test_a_backup_is_restored(path: Path, tmp_path: Path) -> None:
    copy, log = tmp_path / "copy", call("project", "log", path, "--json")
    assert "3 events" in call("project", "backup", path, copy)
    with pytest.raises(FewlinkError, match="exists already"):
        call("project", "backup", copy, path)
    path.unlink()
    assert "3 events" in call("project", "backup", copy, path)
    assert call("project", "log", path, "--json") == log
