"""Entities by id, readable name and prefix: lookup, completion, and suggestions in errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import graph_of

from fewlink.core.errors import FewlinkError, UnknownName
from fewlink.graph import Graph, TypeTable, Vocabulary, compile_graph
from fewlink.graph.name_index import NameIndex, fold
from fewlink.linker import Names
from fewlink.linker.names import entity_of


def named(entities: Sequence[str], labels: Sequence[str] | None = None, types: TypeTable | None = None) -> Names:
    """Entities in a row, each with an edge to the next."""
    triples = np.array([(i, 0, (i + 1) % len(entities)) for i in range(len(entities))], np.int32)
    readable = Vocabulary.of([*labels, "next"]) if labels else None
    return Names(Graph.of(Vocabulary.of(entities), Vocabulary.of(["next"]), triples, types=types, labels=readable))


def test_ids_go_before_names_and_exact_case_before_other_case() -> None:
    names = named(["Q1", "Q2", "Oslo", "Q4"], ["Oslo", "Rome", "a boat", "rome"])
    assert names.find("Q1") == 0
    assert names.find("Oslo") == 2  # the id of one, the name of another
    assert names.find("Rome") == 1 and names.find("rome") == 3
    assert names.find("A BOAT") == 2 and names.find("q2") == 1


def test_underscores_and_concept_prefixes_are_ignored() -> None:
    names = named(["concept:city:new_york", "concept:city:oslo", "mental_process"])
    assert names.find("new york") == 0 and names.find("New_York") == 0 and names.find("Mental process") == 2
    assert names.find("CONCEPT:CITY:OSLO") == 1
    books = named(["Q1", "Q2", "Q3"], ["Concept: a story", "concept: another", "A_b "])
    assert books.find("Concept: a story") == books.find("concept: A STORY") == 0
    assert books.find("another") == 1 and books.find("A b") == books.find("a_b") == 2
    assert [m.id for m in named(["concept:city:oslo", "concept:newspaper:x"]).complete("concept:c")] == [
        "concept:city:oslo"
    ]


def test_an_ambiguous_name_raises_and_lists_ids() -> None:
    names = named([f"Q{i}" for i in range(9)], ["Paris"] * 8 + ["Rome"])
    with pytest.raises(UnknownName, match=r"'Paris'.*Q0.*; Q1.*; Q2.*; Q3.*; Q4.*; …$"):
        names.find("Paris")
    with pytest.raises(UnknownName, match="8 entities"):
        names.find("paris")
    assert names.find("Q7") == 7


def test_entities_of_one_name_are_told_apart_by_type_and_neighbour(tmp_path: Path) -> None:
    triples = "Q1 in Q4\nQ1 near Q5\nQ2 in Q4\nQ2 near Q6\nQ7 knows Q3\n".replace(" ", "\t")
    towns, types = "Q1\tParis\nQ2\tParis\nQ3\tParis\nQ5\tTroyes\nQ6\tDallas\nQ7\tHelen\n", "Q1\ttown\nQ2\ttown\n"
    files = [tmp_path / name for name in ("graph.tsv", "names.tsv", "types.tsv")]
    for file, text in zip(files, (triples, towns, types), strict=True):
        file.write_text(text)
    names = Names(compile_graph(files[0], names=files[1], types=files[2]))
    with pytest.raises(UnknownName) as error:
        names.find("Paris", "head")
    assert str(error.value) == (
        "head 'Paris' is the name of 3 entities: give the id of one: "
        "Q1 (town · —near→ Troyes); Q2 (town · —near→ Dallas); Q3 (←knows— Helen)"
    )


def test_an_unknown_name_raises_and_suggests_the_nearest() -> None:
    names = named(["Q1", "Q2", "Q3"], ["New York City", "Oslo", "Rome"])
    with pytest.raises(UnknownName, match=r"head 'New Yrok City'.*'New York City' \(Q1\)"):
        names.find("New Yrok City", "head")
    with pytest.raises(UnknownName, match="entity 'zzz'"):
        names.find("zzz")
    with pytest.raises(FewlinkError, match="not a name"):
        names.find(7)  # type: ignore[arg-type]


UNUSUAL = [
    "a\tb",
    "a\nb",
    " spaced ",
    "___",
    "Straße",
    "İstanbul",
    "e\u0301tude",
    "ﬁsh",
    "日本 語",
    "x=>y",
    "-",
    "\x00",
    "…",
]


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_names_are_found_exactly(name: str) -> None:
    names = named([*UNUSUAL, "plain"])
    assert names.find(name) == UNUSUAL.index(name)
    assert entity_of(names.graph, UNUSUAL.index(name)).id == name


def test_case_and_composition_are_ignored_in_all_scripts() -> None:
    names = named(["Straße", "Étude", "ﬁsh", "ΟΔΟΣ", "plain"])
    for typed, expected in (("STRASSE", 0), ("e\u0301TUDE", 1), ("FISH", 2), ("οδος", 3)):
        assert names.find(typed) == expected


@pytest.mark.parametrize("text", ["", " ", "\t", "\n", "\ud800", "\x00", "a" * 10_000])
def test_unknown_text_raises_and_completes_to_nothing(text: str) -> None:
    names = named(["oslo", "rome"])
    with pytest.raises(UnknownName):
        names.find(text)
    assert names.complete(text) == []


def test_completion_order_is_name_prefix_word_id_and_substring() -> None:
    ids = ["york", "new_york", "yorkshire", "Q-york", "yorktown", "duke_of_york", "xyork"]
    names = named(ids)
    found = [match.id for match in names.complete("York")]
    assert found[0] == "york" and set(found[1:3]) == {"yorkshire", "yorktown"}
    assert set(found[3:6]) == {"new_york", "Q-york", "duke_of_york"} and found[6:] == ["xyork"]
    assert [m.id for m in names.complete("york", 1)] == ["york"]


def test_completion_prefers_entities_with_most_edges() -> None:
    graph = graph_of("anna r x", "annika r x", "annika r y", "annika r z", "anton r x", "anton r y")
    assert [match.id for match in Names(graph).complete("an", 3)] == ["annika", "anton", "anna"]


def test_completion_by_id_if_names_differ() -> None:
    names = named(["Q42", "Q421", "P1"], ["Douglas Adams", "a book", "Q-tip"])
    assert [m.id for m in names.complete("q42")] == ["Q42", "Q421"]
    assert [m.name for m in names.complete("adam")] == ["Douglas Adams"]
    assert [m.id for m in names.complete("concept:")] == []


@given(st.lists(st.text(max_size=8), min_size=1), st.text(alphabet="abAB_ :é", min_size=1, max_size=4))
def test_the_index_agrees_with_a_linear_search(texts: list[str], typed: str) -> None:
    lines = [fold(text.replace("\n", " ")) for text in texts]
    index, typed = NameIndex.of("".join(f"{line}\n" for line in lines), words=False), fold(typed)
    expected = [i for i, line in enumerate(lines) if line.startswith(typed)]
    assert sorted(index.owners(index.starting(typed)).tolist()) == expected
    assert index.equal(typed).tolist() == [i for i, line in enumerate(lines) if line == typed]
    assert index.containing(typed, 1000) == [i for i, line in enumerate(lines) if typed in line]
    assert [index[i] for i in range(len(lines))] == lines


def test_members_of_types() -> None:
    table = TypeTable.of([b"city", b"Person", b"ghost"], np.array([0, 1, 2]), np.array([0, 0, 1]), 3)
    names = named(["oslo", "rome", "ann"], types=table)
    assert names.members("city").tolist() == [0, 1] and names.members("person").tolist() == [2]
    assert names.has_type("Person") and not names.has_type("person")
    with pytest.raises(FewlinkError, match="'ghost'"):
        names.members("ghost")
    with pytest.raises(UnknownName, match=r"'cty'.*'city'"):
        names.members("cty")
    with pytest.raises(FewlinkError, match="has no types"):
        named(["a", "b"]).members("city")


def test_hints_are_types_and_the_neighbour_with_most_edges() -> None:
    plain = graph_of("ann lives oslo", "bob lives oslo", "ann knows bob", "rome near oslo")
    types = TypeTable.of([b"person", b"city"], np.arange(4), np.array([0, 1, 0, 1]), 4)
    graph = Graph.of(plain.entities, plain.relations, plain.triples(), types=types)
    hints = {name: Names(graph).hint(number) for number, name in enumerate(graph.entities)}
    assert hints["ann"] == "person · —lives→ oslo" and hints["rome"] == "city · —near→ oslo"
    assert hints["oslo"] == "city · ←lives— ann"  # a neighbour by an edge of its own is preferred, and oslo has none
    assert Names(plain).hint(0) == "—lives→ oslo"


def test_types_are_completed_by_start_then_by_size() -> None:
    graph = graph_of("a likes b", "c likes d")
    members = np.array([0, 1, 2, 3, 0, 1]), np.array([1, 1, 1, 2, 0, 0])
    types = TypeTable.of([b"City", b"capacity", b"person", b"ghost"], *members, 4)
    names = Names(Graph.of(graph.entities, graph.relations, graph.triples(), types=types))
    assert names.complete_types("cit") == [("City", 2), ("capacity", 3)]
    assert names.complete_types("") == [("capacity", 3), ("City", 2), ("person", 1)]  # not the empty one
    assert names.complete_types("", 1) == [("capacity", 3)] and Names(graph).complete_types("a") == []


def test_shared_names_are_those_of_several_entities_in_the_same_case() -> None:
    names = named(["Q1", "Q2", "Q3", "Q4", "a_b", "a b"], ["Rome", "Oslo", "Rome", "rome", "A_b", "A b"])
    assert names.with_shared_names(range(6)) == {0, 2, 4, 5}
    assert names.with_shared_names([2, 3, 1]) == {2}
    assert names.with_shared_names([]) == set()
    assert named(["Oslo", "Rome"]).with_shared_names([0, 1]) == set()


def test_a_name_that_is_an_id_and_the_name_of_others_is_remarked_on() -> None:
    names = named(["Ruth", "ruth_2450", "ruth_9", "Q4"], ["Book of Ruth", "Ruth", "Ruth", "ruth"])
    (remark,) = names.remarks(["Ruth", "Q4", "ruth_9", "Ruth", "nobody"], "head")
    assert remark == (
        "the head 'Ruth' is read as an id; 2 other entities have this name; to ask for that, give its id: "
        "ruth_2450 (—next→ Ruth); ruth_9 (—next→ ruth)"
    )
    assert named(["Ruth", "ruth"]).remarks(["Ruth"]) == []
