"""Path graphs and tables for notebooks: what is drawn where, and that any name is safe in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.linker.markup import Markup, read_svg

from fewlink.linker import drawing
from fewlink.linker.drawing import Cell, DrawnPath, Hop

EVIL = '<script>alert("1")</script>&\x00\x1b\u202e\ud800'
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in read_svg(svg).iter(f"{SVG}text")]


def test_paths_share_both_ends() -> None:
    one = DrawnPath([Hop("born", False, "Rome"), Hop("in", False, "Italy")], "+1.50", 1.5)
    other = DrawnPath([Hop("likes", True, "Bob"), Hop("reference", False, "Italy", dashed=True)], "", 0.5)
    svg = drawing.path_graph("Ann", "Italy", [one, other])
    assert sorted(texts(svg)) == ["+1.50", "Ann", "Bob", "Italy", "Rome", "born", "in", "likes", "reference"]
    assert svg.count("stroke-dasharray") == 1  # the reference is no edge of the graph
    label = read_svg(svg).attrib["aria-label"]
    assert "Ann —born→ Rome —in→ Italy (+1.50); Ann ←likes— Bob —reference→ Italy" in label


def test_an_arrow_points_to_the_tail_of_its_relation() -> None:
    def tip(inverse: bool) -> tuple[float, float]:
        svg = drawing.path_graph("a", "b", [DrawnPath([Hop("r", inverse, "b")])])
        line, head = (path.attrib["d"] for path in read_svg(svg).iter(f"{SVG}path"))
        return float(head[1:].split()[0]), float(line[1:].split()[0])

    forward, backward = tip(False), tip(True)
    assert forward[0] > forward[1] and backward[0] < backward[1]


def test_a_path_from_a_reference_begins_beside_the_head() -> None:
    svg = drawing.path_graph("Ann", "Italy", [DrawnPath([Hop("in", False, "Italy")], start="Rome")])
    x = {text.text: float(text.attrib["x"]) for text in read_svg(svg).iter(f"{SVG}text")}
    assert x["Ann"] < x["Rome"] < x["in"] < x["Italy"]


def test_heavier_paths_have_thicker_lines() -> None:
    paths = [DrawnPath([Hop("r", False, "b")], weight=weight) for weight in (2.0, 1.0)]
    lines = [
        path.attrib.get("stroke-width") for path in read_svg(drawing.path_graph("a", "b", paths)).iter(f"{SVG}path")
    ]
    assert float(lines[0] or 0) > float(lines[2] or 0) > 0


@pytest.mark.parametrize(
    ("text", "lines"),
    [("group uses technique", ["group uses", "technique"]), ("日" * 8, ["日" * 6, "日" * 2]), ("", [""])],
)
def test_long_names_are_broken_into_lines(text: str, lines: list[str]) -> None:
    assert drawing.lines_of(text, 75, 3) == lines


@given(st.text(), st.integers(20, 200), st.integers(1, 4))
def test_names_that_do_not_fit_are_cut(text: str, width: int, most: int) -> None:
    lines = drawing.lines_of(text, width, most)
    assert 1 <= len(lines) <= most and all(len(line) * drawing.LETTER <= width for line in lines)


@given(st.lists(st.text(), min_size=1, max_size=4), st.text(), st.text(), st.booleans())
def test_any_names_give_well_formed_drawings(names: list[str], relation: str, caption: str, beside: bool) -> None:
    hops = [Hop(relation, bool(i % 2), name) for i, name in enumerate(names)]
    svg = drawing.path_graph("head", names[-1], [DrawnPath(hops, caption, 1.0, "x" if beside else None)])
    read_svg(svg)
    Markup(svg)


def test_names_are_escaped_everywhere() -> None:
    path = DrawnPath([Hop(EVIL, False, EVIL), Hop("r", False, EVIL)], EVIL, 1.0, EVIL)
    page = drawing.block(
        drawing.path_graph(EVIL, EVIL, [path]),
        drawing.paragraphs([EVIL]),
        drawing.bullets([EVIL]),
        drawing.facts({EVIL: EVIL}),
        drawing.table({EVIL: ""}, [[Cell(drawing.named(EVIL, EVIL + "2"))]]),
    )
    assert "<script" not in page and '<script>alert("1")</script>&' in Markup(page).text
    page.encode()


def test_tables_have_headings_and_spans() -> None:
    rows = [[Cell("a", rows=2, heading=True), Cell("1", "fl-number")], [Cell("2", columns=2)]]
    markup = Markup(drawing.table({"x": "", "y": "fl-number"}, rows))
    assert [attributes for tag, attributes in markup.tags if tag in ("th", "td")] == [
        {"scope": "col"},
        {"scope": "col", "class": "fl-number"},
        {"scope": "rowgroup", "rowspan": "2"},
        {"class": "fl-number"},
        {"colspan": "2"},
    ]
    assert "thead" not in drawing.facts({"name": "value"})


@pytest.mark.parametrize(
    ("value", "low", "high", "place"),
    [
        (0.25, 0, 1, "left:0.0%;width:25.0%"),
        (-1, -1, 3, "left:0.0%;width:25.0%"),
        (3, -1, 3, "left:25.0%;width:75.0%"),
        (7, 0, 1, "left:0.0%;width:100.0%"),
        (0, 0, 0, "left:0.0%;width:0.0%"),
    ],
)
def test_bars_begin_at_zero(value: float, low: float, high: float, place: str) -> None:
    bar = drawing.bar(value, "", low, high)
    assert place in bar and ("fl-against" in bar) == (value < 0)


def test_probabilities_are_never_certain() -> None:
    assert [drawing.percent(p) for p in (0.0, 0.0101, 0.626, 0.99, 1.0)] == ["< 1 %", "1 %", "63 %", "99 %", "> 99 %"]
