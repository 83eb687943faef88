from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import compiled, graph_of

from fewlink.graph import Graph, TypeTable, Vocabulary
from fewlink.graph.types import types_from_names


def test_types_are_read_from_a_file(tmp_path: Path) -> None:
    rows = ["bob\tP\tperson", "ann\tP\tperson", "ann\tC", "nobody\tP", "oslo\tcity", "bob\tP\tperson"]
    (tmp_path / "types.tsv").write_text("\n".join(rows))
    table = compiled(b"ann\tin\toslo\nbob\thas\tthing\n", types=tmp_path / "types.tsv")[0].types
    assert table is not None
    assert list(table.names) == ["person", "C", "city"]
    assert table.offsets.tolist() == [0, 2, 3, 4, 4]
    assert table.types.tolist() == [0, 1, 2, 0]
    assert table.of_entities(np.array([0, 1])).tolist() == [0, 1, 2]
    assert table.members(np.array([0])).tolist() == [0, 2]
    assert table.members(np.array([], int)).tolist() == []


def test_types_are_read_from_names_of_the_convention() -> None:
    table = types_from_names(Vocabulary.of(["concept:city:oslo", "concept:person:ann", "concept:city:rome"]))
    assert table is not None
    assert list(table.names) == ["city", "person"]
    assert table.types.tolist() == [0, 1, 0]


def test_a_few_names_outside_the_convention_have_no_type() -> None:
    table = types_from_names(Vocabulary.of([*(f"concept:city:{i}" for i in range(19)), "concept:odd"]))
    assert table is not None
    assert np.diff(table.offsets).tolist() == [1] * 19 + [0]


def test_the_convention_is_not_applied_if_many_names_break_it() -> None:
    assert types_from_names(Vocabulary.of(["concept:city:oslo", "ann", "bob"])) is None
    assert types_from_names(Vocabulary.of(["a:b:c", "concept::x", "concept:x:"])) is None
    assert types_from_names(Vocabulary.of([])) is None


pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)))


@given(pairs, st.permutations(range(6)))
def test_a_table_maps_entities_to_types_and_types_to_entities(both: list[tuple[int, int]], order: list[int]) -> None:
    entities, types = (np.array([p[i] for p in both], np.int32) for i in (0, 1))
    table = TypeTable.of([b"a", b"b", b"c", b"d"], entities, types, 6)
    for entity in range(6):
        assert table.of_entities(np.array([entity])).tolist() == sorted({t for e, t in both if e == entity})
    for kind in range(4):
        assert table.members(np.array([kind])).tolist() == sorted({e for e, t in both if t == kind})
    taken = table.take(np.array(order[:3]))
    assert [taken.of_entities(np.array([i])).tolist() for i in range(3)] == [
        table.of_entities(np.array([e])).tolist() for e in order[:3]
    ]


def test_types_and_readable_names_are_saved_with_the_graph(tmp_path: Path) -> None:
    (tmp_path / "types.tsv").write_text("a\tT\n")
    (tmp_path / "names.tsv").write_text("a\tAlpha\nr\tis next to\n")
    graph, _ = compiled(b"a\tr\tb\n", types=tmp_path / "types.tsv", names=tmp_path / "names.tsv")
    opened = Graph.open(graph.save(tmp_path / "g"))
    assert opened.types is not None
    assert list(opened.types.names) == ["T"]
    assert opened.types.offsets.tolist() == [0, 1, 1]
    assert [opened.name(0), opened.name(1), opened.relation_name(0)] == ["Alpha", "b", "is next to"]
    assert Graph.open(compiled(b"a\tr\tb\n")[0].save(tmp_path / "plain")).types is None


def test_a_table_in_which_no_entity_has_a_type_is_saved_and_opened(tmp_path: Path) -> None:
    nothing = np.zeros(0, np.int32)
    graph = dataclasses.replace(graph_of("a r b"), types=TypeTable.of([], nothing, nothing, 2))
    opened = Graph.open(graph.save(tmp_path / "g"))
    assert opened.types is not None
    assert opened.types.offsets.tolist() == [0, 0, 0]
    assert opened.types.members(opened.types.of_entities(np.arange(2))).tolist() == []
