"""Graphs and predictions from and to pandas, polars and networkx."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import named

import fewlink
from fewlink.bridges.frames import graph_of
from fewlink.core.errors import FewlinkError
from fewlink.graph import Graph
from fewlink.linker import Linker, Names

TRIPLES = [
    ("ann", "in", "oslo"),
    ("bob", "in", "rome"),
    ("cy", "in", "paris"),
    ("oslo", "of", "norway"),
    ("rome", "of", "italy"),
    ("paris", "of", "france"),
]
COLUMNS = dict(zip(("head", "relation", "tail"), map(list, zip(*TRIPLES, strict=True)), strict=True))
REFERENCES = [("ann", "norway"), ("bob", "italy")]
NAMES = {"ann": "Ann A.", "of": "is a city of"}
TYPES = {"oslo": "city", "rome": ["city", "capital"], "nowhere": "city"}


def pandas_frame(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


def polars_frame(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("polars").DataFrame(columns)


MAKERS = {"pandas": (pandas_frame, fewlink.from_pandas), "polars": (polars_frame, fewlink.from_polars)}
frames = pytest.mark.parametrize("library", MAKERS)


@frames
def test_a_frame_becomes_a_linker_that_answers(library: str) -> None:
    frame, read = MAKERS[library]
    linker = read(frame(COLUMNS), names=NAMES, types=TYPES)
    assert named(linker.graph) == TRIPLES
    assert linker.graph.name(linker.graph.entities.id("ann")) == "Ann A."
    assert linker.graph.relation_name(linker.graph.relations.id("of")) == "is a city of"
    assert linker.names.complete_types("", 9) == [("city", 2), ("capital", 1)]
    assert linker.predict(REFERENCES, ["cy"], 1)[0].tail == "france"


@frames
def test_columns_are_chosen_by_usual_names_or_are_the_only_three(library: str) -> None:
    frame, read = MAKERS[library]
    values = list(COLUMNS.values())
    for names in (("Subject", "p", "object"), ("a", "b", "c")):
        assert named(read(frame(dict(zip(names, values, strict=True)))).graph) == TRIPLES
    wide = {"tail": values[0], "where": values[2], "relation": values[1], "more": values[0]}
    assert named(read(frame(wide), head="tail", tail="where").graph) == TRIPLES
    with pytest.raises(FewlinkError, match="head="):
        read(frame(wide))
    with pytest.raises(FewlinkError, match="head, relation, tail"):
        read(frame(COLUMNS), head="x")


@frames
def test_an_empty_cell_raises_with_its_row(library: str) -> None:
    frame, read = MAKERS[library]
    with pytest.raises(FewlinkError, match=r"row 1 .*tail"):
        read(frame({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["b", None]}))
    with pytest.raises(FewlinkError, match="triples"):
        read(frame({"head": [], "relation": [], "tail": []}))


def test_two_columns_of_one_name_raise() -> None:
    frame = pandas_frame(COLUMNS)
    frame.insert(0, "tail", "x", allow_duplicates=True)
    with pytest.raises(FewlinkError, match="'tail'"):
        fewlink.from_pandas(frame)


def test_networkx_round_trip() -> None:
    networkx = pytest.importorskip("networkx")
    given = networkx.MultiDiGraph()
    given.add_node("ann", name="Ann A.", type="person")
    given.add_node("oslo", type=["city", "capital"])
    for head, relation, tail in TRIPLES[:3]:
        given.add_edge(head, tail, relation=relation)
    for head, relation, tail in TRIPLES[3:]:
        given.add_edge(head, tail, key=relation)
    linker = fewlink.from_networkx(given)
    assert set(named(linker.graph)) == set(TRIPLES)
    back = fewlink.to_networkx(linker)
    assert {(head, data["relation"], tail) for head, tail, data in back.edges(data=True)} == set(TRIPLES)
    assert back.nodes["ann"] == {"name": "Ann A.", "type": "person"}
    assert {back.nodes["oslo"][key] for key in ("type", "type_2")} == {"city", "capital"}
    answer = fewlink.to_networkx(linker.predict(REFERENCES, ["cy"], 2), relation="from")
    assert answer.get_edge_data("cy", "france")["from"]["rank"] == 1
    assert answer.nodes["ann" if "ann" in answer else "cy"]["name"]


def same_graph(one: Graph, other: Graph) -> bool:
    """Whether graphs have the same triples, names and types, in whatever order."""

    def described(graph: Graph) -> list[tuple[str, str, list[str]]]:
        names = Names(graph)
        entities = enumerate(graph.entities)
        return sorted((entity, graph.name(number), sorted(names.types_of(number))) for number, entity in entities)

    relations = [
        sorted((name, graph.relation_name(i)) for i, name in enumerate(graph.relations)) for graph in (one, other)
    ]
    return (
        set(named(one)) == set(named(other))
        and described(one) == described(other)
        and relations[0] == relations[1]
        and (one.labels is None) == (other.labels is None)
    )


@pytest.mark.parametrize("names", [NAMES, None])
@pytest.mark.parametrize("types", [TYPES, None])
def test_a_graph_that_went_to_networkx_and_back_is_the_same(
    names: dict[str, str] | None, types: dict[str, Any] | None, tmp_path: Path
) -> None:
    networkx = pytest.importorskip("networkx")
    graph = graph_of(TRIPLES, names, types)
    made = fewlink.to_networkx(graph)
    back = fewlink.from_networkx(made)
    assert same_graph(graph, back.graph)
    networkx.write_graphml(made, tmp_path / "g.graphml")
    assert same_graph(graph, fewlink.from_networkx(networkx.read_graphml(tmp_path / "g.graphml")).graph)
    answer = back.predict(REFERENCES, ["cy"], 2)
    networkx.write_graphml(fewlink.to_networkx(answer), tmp_path / "answer.graphml")


@frames
@pytest.mark.parametrize("names", [NAMES, None])
def test_a_graph_that_went_to_a_frame_and_back_has_its_names(library: str, names: dict[str, str] | None) -> None:
    pytest.importorskip(library)
    graph = graph_of(TRIPLES, names)
    made = getattr(fewlink, f"to_{library}")(graph)
    assert same_graph(graph, MAKERS[library][1](made).graph)
    other = MAKERS[library][1](made, names={"ann": "Ann B."}).graph
    assert other.name(other.entities.id("ann")) == "Ann B."


def test_a_lazy_frame_of_polars_is_read(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    lazy = polars.DataFrame({**COLUMNS, "more": [1] * len(TRIPLES)}).lazy()
    assert named(fewlink.from_polars(lazy).graph) == TRIPLES
    polars.DataFrame(COLUMNS).write_csv(tmp_path / "g.csv")
    assert named(fewlink.from_polars(polars.scan_csv(tmp_path / "g.csv")).graph) == TRIPLES


def test_probabilities_are_numbers_even_if_there_are_none() -> None:
    pandas = pytest.importorskip("pandas")
    linker: Linker = fewlink.from_pandas(pandas.DataFrame(COLUMNS))
    answer = linker.predict(REFERENCES, ["cy"], 2)
    assert all(row.probability is None for row in answer)
    assert fewlink.to_pandas(answer)["probability"].dtype == float


def test_a_type_may_be_any_value_and_several_types_any_collection() -> None:
    graph = graph_of([("a", "r", "b"), ("b", "r", "c")], types={"a": 7, "b": ("x", 7), "nobody": "y"})
    names = Names(graph)
    assert [names.types_of(graph.entities.id(entity)) for entity in "abc"] == [["7"], ["7", "x"], []]


def test_a_networkx_graph_without_relations_or_directions_raises() -> None:
    networkx = pytest.importorskip("networkx")
    plain = networkx.DiGraph([("a", "b", {"kind": "r"})])
    with pytest.raises(FewlinkError, match="a → b"):
        fewlink.from_networkx(plain)
    assert named(fewlink.from_networkx(plain, relation="kind").graph) == [("a", "r", "b")]
    with pytest.raises(FewlinkError, match="undirected"):
        fewlink.from_networkx(networkx.Graph([("a", "b")]))
    with pytest.raises(FewlinkError, match="'1'"):
        fewlink.from_networkx(networkx.DiGraph([(1, "1", {"relation": "r"})]))


def test_graphs_and_predictions_as_frames() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    graph = graph_of(TRIPLES, NAMES)
    for frame in (fewlink.to_pandas(graph), fewlink.to_polars(graph)):
        assert list(frame["relation"])[:3] == ["in", "in", "in"] and frame["head_name"][0] == "Ann A."
        assert list(frame["relation_name"])[-1] == "is a city of"
    assert list(fewlink.to_pandas(graph_of(TRIPLES)).columns) == ["head", "relation", "tail"]
    linker: Linker = fewlink.from_pandas(pandas.DataFrame(COLUMNS))
    answer = linker.predict(REFERENCES, ["cy"], 2, explain=True)
    one, other = fewlink.to_pandas(answer), fewlink.to_polars(answer)
    assert list(one["tail"]) == list(other["tail"]) == [row.tail for row in answer]
    assert "→" in other["reasons"][0] and other["probability"].dtype == polars.Float64
    assert fewlink.to_polars(linker.predict(REFERENCES, ["cy"], 2)).columns == list(one.columns[:-1])


@pytest.mark.parametrize("library", ["pandas", "polars", "networkx"])
def test_a_missing_library_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(FewlinkError, match=f"the extra '{library}'"):
        getattr(fewlink, f"to_{library}")(graph_of(TRIPLES))
