"""Every format of exports as a literal file, names and refusals; what is read back is the same."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import stix2
from hypothesis import given, settings
from hypothesis import strategies as st

from fewlink.core.errors import FewlinkError, InputError
from fewlink.curation import store
from fewlink.curation.exports import FORMATS, Described, FormatName, export, format_of, write_export
from fewlink.curation.imports import READERS, add_decisions, decisions_in
from fewlink.curation.store import KINDS, ProjectFile
from fewlink.graph import compile_graph

FILES = Path(__file__).parent / "exports"  # a file for each format
WIKIDATA = "http://www.wikidata.org/entity/"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectFile:
    """A project about malware: a reference, three accepted pairs and a rejected one."""
    times = (f"2026-01-01T00:00:{second:02}.250Z" for second in itertools.count())
    monkeypatch.setattr(store, "now", lambda: next(times))
    made = ProjectFile(tmp_path / "a.decisions")
    made.add_project("group_uses_malware", [("G9001", "S9001")], description="What groups use.", who="ann")
    made.decide(
        "group_uses_malware", [("accepted", "G9001", "S9002", 0.834), ("accepted", "G9002", "S9001", 0.5)], "ann"
    )
    made.decide(
        "group_uses_malware", [("accepted", "G9002", "=S3", 1.0), ("rejected", "G9002", "S9002", 0.25)], "Bob Ö."
    )
    return made


@pytest.fixture
def described(tmp_path: Path) -> Described:
    (tmp_path / "g.tsv").write_text("G9001\tknows\tG9002\nS9001\tknows\tS9002\nS9002\tknows\t=S3\n")
    (tmp_path / "g.names.tsv").write_text('G9001\tQuiet "Fox"\nG9002\tOwl\nS9001\tFoxRat\nS9002\tOwl, the tool\n')
    (tmp_path / "g.types.tsv").write_text("G9001\tgroup\nG9002\tgroup\nS9001\tmalware\nS9002\ttool\n=S3\tmalware\n")
    graph = compile_graph(tmp_path / "g.tsv", names=tmp_path / "g.names.tsv", types=tmp_path / "g.types.tsv")
    return Described(graph, str(tmp_path / "g.tsv"))


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "quickstatements"])
def test_each_format_writes_this_file(file: ProjectFile, described: Described, tmp_path: Path, format: str) -> None:
    expected = FILES / f"malware{FORMATS[format].suffixes[0]}"
    out = write_export(file, 1, tmp_path / expected.name, described=described)
    assert out.read_bytes() == expected.read_bytes()


def test_wikidata_gets_statements(file: ProjectFile, tmp_path: Path) -> None:
    file.add_project("record label", [("Q1", f"{WIKIDATA}Q2")])
    file.decide("record label", [("accepted", "wd:Q3", "Q4", 0.5), ("rejected", "Q5", "Q6")], "ann")
    for relation in ("P264", "wdt:P264", "http://www.wikidata.org/prop/direct/P264"):
        out = write_export(file, "record label", tmp_path / "out.qs", relation=relation)
        assert out.read_text() == "Q1\tP264\tQ2\nQ3\tP264\tQ4\n"


@pytest.mark.parametrize(
    ("pair", "relation", "problem"),
    [
        (("Q1", "Q2"), None, r"property of Wikidata, not 'label': name one, as in --relation P31"),
        (("Q1", "Q2"), "Q264", r"not 'Q264'"),
        (("Q1", "P2"), "P264", r"P2"),
        (("http://example.org/Q1", "Q2"), "P264", r"'http://example.org/Q1'"),
        (("Q01", "Q2"), "P264", r"'Q01'"),
    ],
)
def test_what_is_not_of_wikidata_is_refused(
    file: ProjectFile, tmp_path: Path, pair: tuple[str, str], relation: str | None, problem: str
) -> None:
    file.add_project("label", [pair])
    with pytest.raises(FewlinkError, match=problem):
        write_export(file, "label", tmp_path / "out.qs", relation=relation)
    assert not (tmp_path / "out.qs").exists()


TIMESTAMP = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
STIX = {  # what STIX 2.1 asks of the objects that an export makes
    "type": "object",
    "required": ["type", "spec_version", "id", "created", "modified"],
    "properties": {
        "spec_version": {"const": "2.1"},
        "id": {"pattern": f"^[a-z][a-z0-9-]+--{UUID}$"},
        "created": TIMESTAMP,
        "modified": TIMESTAMP,
        "confidence": {"type": "integer", "minimum": 0, "maximum": 100},
        "labels": {"type": "array", "minItems": 1, "items": {"type": "string"}},
    },
    "allOf": [
        {
            "if": {"properties": {"type": {"const": "relationship"}}},
            "then": {
                "required": ["relationship_type", "source_ref", "target_ref"],
                "properties": {"relationship_type": {"pattern": "^[a-z0-9-]+$"}},
            },
            "else": {"required": ["name"]},
        },
        {"if": {"properties": {"type": {"const": "malware"}}}, "then": {"required": ["is_family"]}},
    ],
}


def stix_of(file: ProjectFile, described: Described, **options: Any) -> dict[str, Any]:
    bundle: dict[str, Any] = json.loads(export(file, 1, "stix", described=described, **options))
    return bundle


def test_a_bundle_is_complete_and_valid(file: ProjectFile, described: Described) -> None:
    bundle = stix_of(file, described)
    ids = [each["id"] for each in bundle["objects"]]
    assert len(ids) == len(set(ids))
    for each in bundle["objects"]:
        jsonschema.validate(each, STIX)
        assert {each[key] for key in each if key.endswith("_ref")} <= set(ids)
        assert each["id"].startswith(each["type"] + "--")
    made = [each for each in bundle["objects"] if each["type"] == "relationship"]
    assert [each.get("confidence") for each in made] == [None, 83, 50, 100]
    names = {each["id"]: each.get("name") for each in bundle["objects"]}
    assert [names[each["created_by_ref"]] for each in made] == ["ann", "ann", "ann", "Bob Ö."]
    assert {each["relationship_type"] for each in stix_of(file, described, relation="uses")["objects"][2:6]} == {"uses"}


def test_exports_of_one_project_are_versions_of_the_same_objects(file: ProjectFile, described: Described) -> None:
    """stix2 reads every export, and a platform would update an object: only `modified` and what it says differ."""
    exports = [stix_of(file, described)]
    file.undo(1, who="ann")
    file.decide(1, [("accepted", "G9002", "S9001", 0.9)], "ann")
    exports.append(stix_of(file, described))
    file.decide(1, [("accepted", "G9002", "S9001", 0.7)], "Bob Ö.")  # another author, so another object
    exports.append(stix_of(file, described))
    objects = [each for bundle in exports for each in stix2.parse(bundle).objects]
    for each in objects:
        same = [other for other in objects if other.id == each.id]
        assert {(other.created, other.get("created_by_ref"), other.get("source_ref")) for other in same} == {
            (each.created, each.get("created_by_ref"), each.get("source_ref"))
        }
    platform = stix2.MemoryStore(objects)
    names = {each.id: each.get("name") for each in objects}
    found = {}
    for each in platform.query([stix2.Filter("type", "=", "relationship")]):
        ends = names[each.source_ref], names[each.target_ref], names[each.created_by_ref]
        found.setdefault(ends, []).append(each.get("confidence"))
    assert sorted(found["Owl", "FoxRat", "ann"]) == [50, 90]
    assert found["Owl", "FoxRat", "Bob Ö."] == [70]


def test_objects_of_the_bundle_that_the_graph_came_from_are_kept(file: ProjectFile, tmp_path: Path) -> None:
    marking = {"type": "marking-definition", "id": "marking-definition--1", "definition_type": "statement"}
    maker = {"type": "identity", "id": "identity--1", "name": "MITRE"}
    objects = [
        {
            "type": "intrusion-set" if public[0] == "G" else "malware",
            "id": f"{public}--x",
            "name": public,
            "created_by_ref": "identity--1",
            "object_marking_refs": ["marking-definition--1", "marking-definition--2"],
            "external_references": [{"source_name": "mitre-attack", "external_id": public, "url": "https://x.org"}],
        }
        for public in ("G9001", "G9002", "S9001", "S9002", "=S3", "S9009")
    ]
    path = tmp_path / "bundle.json"
    path.write_text(json.dumps({"type": "bundle", "id": "bundle--1", "objects": [marking, maker, *objects]}))
    bundle = stix_of(file, Described(source=str(path)))
    kept = [each for each in bundle["objects"] if each["type"] != "relationship"][2:]
    assert kept == [objects[0], objects[2], objects[3], objects[1], objects[4], maker, marking]
    assert stix_of(file, Described(source=str(path))) == bundle


def test_entities_that_are_no_objects_of_stix_are_refused(
    file: ProjectFile, described: Described, tmp_path: Path
) -> None:
    with pytest.raises(FewlinkError, match="'G9001' has no type, and STIX needs one"):
        export(file, 1, "stix")
    (tmp_path / "p.tsv").write_text("platform:windows\tis\tG9001\n")
    (tmp_path / "p.types.tsv").write_text("platform:windows\tplatform\nG9001\tgroup\n")
    graph = compile_graph(tmp_path / "p.tsv", types=tmp_path / "p.types.tsv")
    file.add_project("runs on", [("G9001", "platform:windows")])
    with pytest.raises(FewlinkError, match="platform:windows"):
        export(file, "runs on", "stix", described=Described(graph))
    for relation in ("使用", "x использует", "--"):
        with pytest.raises(FewlinkError, match="STIX needs a relation in the letters a to z"):
            export(file, 1, "stix", described=described, relation=relation)


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8).filter(str.strip)
hard = st.sampled_from(
    ["=1", "'=1", "''", "a,b;c", 'a "b"', "\t\\n", "x\r\ny", "http://x.org/a", "urn:fewlink:entity:a"]
)
ids = text | hard
decisions = st.tuples(st.sampled_from(KINDS[1:]), ids, ids, st.none() | st.floats(0, 1))


@pytest.mark.parametrize("format", ["csv", "json"])
@settings(deadline=None, max_examples=12)
@given(made=st.lists(decisions, min_size=1, max_size=5), who=st.just("") | ids, name=ids)
def test_decisions_are_read_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, format: str, made: list[Any], who: str, name: str
) -> None:
    folder = tmp_path_factory.mktemp("back")
    with ProjectFile(folder / "a") as file, ProjectFile(folder / "b") as other:
        file.add_project(name)
        file.decide(1, made, who)
        add_decisions(other, "copy", decisions_in(export(file, 1, format), format))
        kept = [[(s.kind, s.pair, s.who, s.time, s.probability) for s in each.decisions(1)] for each in (file, other)]
        assert kept[0] == kept[1]


def test_tables_of_spreadsheets_are_imported(file: ProjectFile) -> None:
    text = 'tail;note;decision;head\r\nS9007;sure;rejected;G9007\r\nS9008;"a;\nb";accepted;G9007\r\nS9009;;;G9007\r\n'
    done = add_decisions(file, "new", decisions_in(text, "csv", "eve"))
    assert (done.added, done.read) == (2, 2)
    assert file.pairs("new", "rejected") == [("G9007", "S9007")] and file.pairs("new", "accepted") == [
        ("G9007", "S9008")
    ]


def test_the_suffix_gives_the_format() -> None:
    for name, format in FORMATS.items():
        for suffix in format.suffixes:
            assert format_of(Path(f"a.b{suffix.upper()}")) == name
    with pytest.raises(InputError, match=re.escape("use .csv")):
        format_of(Path("a.xlsx"))
    assert get_args(FormatName) == tuple(FORMATS) and set(READERS) <= set(FORMATS)
