"""Bundles as graphs and back: MITRE's conventions, anyone's objects, what is left out, and errors."""

from __future__ import annotations

import bz2
import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import Fewlink

from fewlink.core.errors import FewlinkError, InputError
from fewlink.curation.stix import Link, relationships
from fewlink.graph import CompileReport, compile_graph
from fewlink.graph.stix import is_bundle, read_bundle

Write = Callable[..., Path]


def thing(kind: str, number: int, name: str, public: str = "", **more: Any) -> dict[str, Any]:
    """A STIX object; `public`: its id of MITRE's."""
    references = [{"source_name": "some-blog"}, {"source_name": "mitre-attack", "external_id": public}]
    return {"type": kind, "id": f"{kind}--{number}", "name": name, **more} | (
        {"external_references": references} if public else {}
    )


def link(number: int, source: str, verb: str, target: str, **more: Any) -> dict[str, Any]:
    ends = {"source_ref": source, "target_ref": target}
    return {"type": "relationship", "id": f"relationship--{number}", "relationship_type": verb, **ends, **more}


GROUP = thing("intrusion-set", 1, "Quiet Fox", "G9001")
MALWARE = thing("malware", 2, "FoxRat", "S9001", x_mitre_platforms=["Windows", "Network Devices"], x_mitre_other={})
PHASES = [{"kill_chain_name": "mitre-attack", "phase_name": "initial-access"}]
TECHNIQUE = thing("attack-pattern", 3, "Phishing", "T9001", kill_chain_phases=PHASES)
TACTIC = thing("x-mitre-tactic", 4, "Initial Access", "TA9001", x_mitre_shortname="initial-access")
OLD = thing("tool", 5, "Old Tool", "S9002", revoked=True)
ADDRESS = {"type": "ipv4-addr", "id": "ipv4-addr--6", "value": "198.51.100.7"}
OBJECTS = [
    {"type": "x-mitre-collection", "id": "x-mitre-collection--0", "name": "All", "x_mitre_contents": []},
    GROUP,
    MALWARE,
    TECHNIQUE,
    TACTIC,
    OLD,
    ADDRESS,
    link(1, "intrusion-set--1", "uses", "malware--2"),
    link(2, "intrusion-set--1", "uses", "attack-pattern--3"),
    link(3, "intrusion-set--1", "uses", "tool--5"),
    link(4, "malware--2", "communicates-with", "ipv4-addr--6"),
    link(5, "malware--2", "uses", "attack-pattern--99"),
    link(6, "malware--2", "uses", "attack-pattern--3", x_mitre_deprecated=True),
]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(objects: Any = OBJECTS, **more: Any) -> Path:
        path = tmp_path / "bundle.json"
        path.write_text(json.dumps({"type": "bundle", "id": "bundle--1", "objects": objects, **more}))
        return path

    return write


def test_a_bundle_becomes_named_and_typed_triples(write: Write) -> None:
    bundle = read_bundle(write())
    assert bundle.triples == [
        ("S9001", "malware_runs_on_platform", "platform:windows"),
        ("S9001", "malware_runs_on_platform", "platform:network_devices"),
        ("T9001", "technique_serves_tactic", "TA9001"),
        ("G9001", "group_uses_malware", "S9001"),
        ("G9001", "group_uses_technique", "T9001"),
        ("S9001", "malware_communicates_with_ipv4_addr", "ipv4-addr--6"),
    ]
    names = [bundle.names[e] for e in ("G9001", "platform:network_devices", "TA9001")]
    assert names == ["Quiet Fox", "Network Devices", "Initial Access"]
    assert bundle.names["ipv4-addr--6"] == "198.51.100.7"
    assert bundle.kinds["T9001"] == "technique"


def test_what_is_left_out_is_counted_with_its_ids(write: Write) -> None:
    bundle = read_bundle(write())
    assert [*bundle.left_out.values()] == [["tool--5"], ["relationship--3", "relationship--6"], ["relationship--5"]]
    assert bundle.remarks()[1].endswith(": 2 (relationship--3, relationship--6)")


@pytest.mark.parametrize(
    ("new", "old"), [("2025", "2024"), ("2025-01-01T00:00:00.500Z", "2025-01-01T00:00:00Z")], ids=["years", "fractions"]
)
def test_the_latest_version_of_an_object_counts(write: Write, new: str, old: str) -> None:
    versions = [{**GROUP, "name": name, "modified": day} for name, day in (("New", new), ("Old", old))]
    assert read_bundle(write(versions)).names == {"G9001": "New"}


def test_objects_of_one_public_id_stay_apart(write: Write) -> None:
    bundle = read_bundle(write([GROUP, {**GROUP, "id": "intrusion-set--7", "name": "Other"}]))
    assert bundle.names == {"G9001": "Quiet Fox", "intrusion-set--7": "Other"}


@pytest.mark.parametrize(
    ("objects", "token"),
    [
        ([{"type": "tool"}], "number 1"),
        ([{"id": "tool--1"}], "tool--1"),
        ([link(9, "", "uses", "tool--1")], "relationship--9.*source_ref"),
        ([{**link(9, "a", "b", "c"), "relationship_type": 3}], "relationship--9.*relationship_type"),
        ({"a": 1}, "STIX bundle"),
    ],
)
def test_an_error_names_the_file_and_the_object(write: Write, objects: Any, token: str) -> None:
    with pytest.raises(InputError, match=f"bundle.json: .*{token}"):
        read_bundle(write(objects))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["malware--2", "uses", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
KEYS = ("type", "id", "name", "modified", "revoked", "external_references", "kill_chain_phases", "x_mitre_platforms")
KEYS += ("relationship_type", "source_ref", "target_ref", "x_mitre_shortname", "value")


@given(
    st.lists(st.dictionaries(st.sampled_from(KEYS), ANYTHING), max_size=3),
    st.lists(st.tuples(st.sampled_from(OBJECTS), st.sampled_from(KEYS), ANYTHING), max_size=3),
)
@settings(max_examples=8, deadline=None)
def test_whatever_a_bundle_holds_is_read_or_refused_with_a_reason(
    more: list[dict[str, Any]], changed: list[tuple[dict[str, Any], str, Any]]
) -> None:
    objects = [*OBJECTS, *more, *({**each, key: value} for each, key, value in changed)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bundle.json"
        path.write_text(json.dumps({"type": "bundle", "objects": objects}))
        graph = compile_graph(path, on_error="skip")
        assert graph.triple_count
        try:
            compile_graph(path)
        except InputError as error:
            assert "bundle.json" in str(error)


def test_a_file_is_a_bundle_by_its_beginning(write: Write, tmp_path: Path) -> None:
    assert is_bundle(write())
    for name, text in (("a.json", '{"head": {"vars": []}}'), ("b.tsv", '{"type": "bundle"}'), ("c.json", "")):
        (tmp_path / name).write_text(text)
        assert not is_bundle(tmp_path / name)
    assert not is_bundle(tmp_path / "nowhere.json")


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".BZ2", bz2.compress)])
def test_a_compressed_bundle_is_read(suffix: str, compress: Callable[[bytes], bytes], write: Write) -> None:
    plain = write()
    packed = plain.with_name(f"packed.json{suffix}")
    packed.write_bytes(compress(plain.read_bytes()))
    assert is_bundle(packed) and read_bundle(packed) == read_bundle(plain)
    assert compile_graph(packed).fingerprint == compile_graph(plain).fingerprint
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(InputError, match="is cut off"):
        compile_graph(packed)


def test_a_bundle_is_compiled_like_any_file_of_triples(write: Write, tmp_path: Path) -> None:
    report = CompileReport()
    graph = compile_graph(write(), report=report)
    assert graph.triple_count == 6
    group = graph.entities.find("G9001")
    assert group is not None and graph.types is not None
    assert graph.name(group) == "Quiet Fox"
    assert [graph.types.names[i] for i in graph.types.of_entities([group])] == ["group"]
    assert "revoked" in report.remarks()[0]
    (tmp_path / "names.tsv").write_text("G9001\tMine\n")
    assert compile_graph(write(), names=tmp_path / "names.tsv").name(group) == "Mine"
    bad = [*OBJECTS, link(9, "", "uses", "malware--2")]
    report = CompileReport()
    assert compile_graph(write(bad), on_error="skip", report=report).triple_count == 6
    assert report.skipped == 1


def test_the_commands_read_a_bundle(write: Write, fewlink: Fewlink) -> None:
    checked = fewlink("data", "check", write())
    assert checked.code == 0, checked.err
    assert "group_uses_malware" in checked.out and "objects that are revoked or deprecated: 1" in checked.out
    wrong = fewlink("data", "carve", write([link(9, "", "uses", "tool--1")]), "--out", "b")
    assert (wrong.code, "relationship--9" in wrong.err) == (2, True)


def test_links_are_written_with_confidence_and_provenance(write: Write) -> None:
    bundle, now = read_bundle(write()), "2026-01-02T00:00:00Z"
    links = [Link("S9001", "malware_uses_technique", "T9001", 0.834), Link("G9001", "related_to", "S9001")]
    written = relationships(links, bundle, note="why", now=now)
    assert (written["type"], written["id"][:8]) == ("bundle", "bundle--")
    maker, first, second, *joined = written["objects"]
    assert joined == [MALWARE, TECHNIQUE, GROUP]
    assert (maker["type"], maker["name"], maker["identity_class"]) == ("identity", "fewlink", "system")
    assert {key: first[key] for key in ("relationship_type", "source_ref", "target_ref", "confidence")} == {
        "relationship_type": "uses",
        "source_ref": "malware--2",
        "target_ref": "attack-pattern--3",
        "confidence": 83,
    }
    assert (first["created_by_ref"], first["spec_version"]) == (maker["id"], "2.1")
    assert first["modified"] == "2026-01-02T00:00:00.000Z"
    assert (second["relationship_type"], "confidence" in second) == ("related-to", False)
    again = relationships(links, bundle, note="why", now="2026-01-03T00:00:00Z")
    assert [each["id"] for each in again["objects"]] == [each["id"] for each in written["objects"]]


def test_links_that_are_one_relationship_are_written_once(write: Write) -> None:
    links = [Link("S9001", relation, "T9001", p) for relation, p in (("Uses", 0.5), ("uses", 0.75), ("uses", 0.75))]
    written = relationships(links, read_bundle(write()), note="", now="2026-01-02T00:00:00Z")
    made = [each for each in written["objects"] if each["type"] == "relationship"]
    assert [(each["relationship_type"], each["confidence"]) for each in made] == [("uses", 75)]


@pytest.mark.parametrize(
    ("head", "token"),
    [
        ("S9003", r"'S9003'.* 'S9001'[^,]*\?$"),
        ("nobody", r"'nobody'[^,]*$"),
        ("platform:windows", "'platform:windows'"),
    ],
)
def test_a_link_of_no_object_is_an_error_that_does_not_list_the_whole_bundle(
    write: Write, head: str, token: str
) -> None:
    with pytest.raises(FewlinkError, match=token):
        relationships([Link(head, "x", "T9001")], read_bundle(write()), note="", now="2026-01-03T00:00:00Z")
