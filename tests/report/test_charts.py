from __future__ import annotations

import math
import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewlink.core.errors import FewlinkError
from fewlink.report import charts
from fewlink.report.charts import Point

SERIES = {"a": [Point(1, 0.1, 0.0), Point(3, 0.3, 0.0), Point(5, 0.5, 0.0)]}
HOSTILE = '<script>alert("1")</script>&\x00'


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in parsed(svg).iter("text")]


def lines(series: dict[str, list[Point]], **more: bool) -> str:
    return charts.lines(series, title="MRR", x_label="K", y_label="mean", **more)


def test_points_of_a_line_are_placed_by_their_values() -> None:
    # x: 1 … 5 on 54 … 390; y: 0 … .5 on 236 … 46
    path = next(e for e in parsed(lines(SERIES, keyed=False)).iter("path") if e.get("class") == "line")
    assert path.get("d") == "M54.0 198.0L222.0 122.0L390.0 46.0"


def test_a_power_is_a_straight_line_on_logarithmic_axes() -> None:
    series = {"a": [Point(x, x**0.5, 0.0) for x in (1, 10, 100, 10_000)]}
    drawn = charts.lines(series, title="time", x_label="triples", y_label="seconds", logarithmic=True)
    path = next(e for e in parsed(drawn).iter("path") if e.get("class") == "line" and "L" in e.get("d", ""))
    # x: 1 … 10⁴ on 54 … 390; y: 1 … 100 on 258 … 68, below a legend of 22
    assert path.get("d") == "M54.0 258.0L138.0 210.5L222.0 163.0L390.0 68.0"
    assert {"1", "10", "100", "1000", "10⁴"} <= set(texts(drawn))
    assert "10,000: 100" in next(e.text or "" for e in parsed(drawn).iter("desc"))


@pytest.mark.parametrize(("low", "high", "expected"), [(1, 1000, 4), (0.02, 3, 4), (5, 5, 2), (1, 1, 2)])
def test_powers_of_ten_enclose_the_values(low: float, high: float, expected: int) -> None:
    powers = charts.powers_of_ten(low, high)
    assert powers[0] <= low and high <= powers[-1] and len(powers) == expected


def test_zero_on_a_logarithmic_axis_is_refused() -> None:
    with pytest.raises(FewlinkError, match=r"the chart 'time' cannot show 0\.0 of a"):
        charts.lines({"a": [Point(1, 0.0, 0)]}, title="time", x_label="", y_label="", logarithmic=True)


def test_a_line_of_many_points_has_few_marks_and_one_at_its_end() -> None:
    drawn = parsed(lines({"test": [Point(500 * n, n / 100, 0.0) for n in range(1, 81)]}, keyed=False))
    path = next(e.get("d") or "" for e in drawn.iter("path") if e.get("class") == "line")
    marks = [e for e in drawn.iter("path") if e.get("class") == "mark"]
    assert path.count("L") == 79 and len(marks) == charts.MOST_MARKS
    assert path.endswith((marks[-1].get("transform") or "").removeprefix("translate(").removesuffix(")"))


def test_a_band_is_a_deviation_above_and_below() -> None:
    drawn = lines({"a": [Point(1, 0.3, 0.1), Point(5, 0.4, 0.1)]}, keyed=False)
    band = next(e for e in parsed(drawn).iter("path") if e.get("class") == "band")
    assert band.get("d") == "M54.0 84.0L390.0 46.0L390.0 122.0L54.0 160.0z"


def test_lines_differ_without_colour() -> None:
    series = {str(n): [Point(1, n, 0), Point(2, n, 0)] for n in range(12)}
    drawn = parsed(lines(series, keyed=False))
    looks = set()
    for group in drawn.iter("g"):
        line, mark = (next(e for e in group if e.get("class") == kind) for kind in ("line", "mark"))
        looks.add((line.get("stroke-dasharray"), mark.get("d")))
    assert len(looks) == 12


def test_a_style_gives_a_name_the_same_colour_in_every_chart() -> None:
    drawn = parsed(charts.lines(SERIES, title="", x_label="", y_label="", styles={"a": 4}))
    assert {g.get("class") for g in drawn.iter("g")} == {"series-5"}
    assert "series-5" in charts.swatch(4) and 'aria-hidden="true"' in charts.swatch(4, "bar")


def test_bars_are_as_long_as_their_values() -> None:
    drawn = charts.bars({"r": {"a": (0.2, 0.0), "b": (0.4, 0.1)}}, title="MRR", value_label="MRR", keyed=False)
    # 0 … .5 on 2 … 342
    rects = [e for e in parsed(drawn).iter("rect") if e.get("class") == "bar"]
    assert [(e.get("x"), e.get("width")) for e in rects] == [("2.0", "136.0"), ("2.0", "272.0")]
    whisker = next(e for e in parsed(drawn).iter("path") if e.get("class") == "whisker")
    assert whisker.get("d", "").startswith("M206.0 ") and "H342.0" in whisker.get("d", "")
    assert ".200" in texts(drawn) and ".400 ± .100" in texts(drawn)


def test_bars_side_by_side_can_share_a_scale() -> None:
    drawn = charts.bars({"r": {"a": (0.2, 0.0), "b": (0.1, 0.0)}}, title="", value_label="", limit=0.4)
    rect = next(e for e in parsed(drawn).iter("rect") if e.get("x") == "2.0")
    assert rect.get("width") == "170.0"


def test_bars_below_zero_go_to_the_left() -> None:
    drawn = charts.bars({"r": {"a": (-1.0, 0.0), "b": (1.0, 0.0)}}, title="", value_label="", keyed=False)
    rects = [e for e in parsed(drawn).iter("rect") if e.get("class") == "bar"]
    assert [(e.get("x"), e.get("width")) for e in rects] == [("2.0", "170.0"), ("172.0", "170.0")]


def test_a_map_keeps_the_shape_of_its_points() -> None:
    drawn = charts.scatter([(0, 0, "positive"), (2, 2, "negative"), (1, 2, "negative")], title="map")
    dots = [e for e in parsed(drawn).iter("path") if "dot" in e.get("class", "")]
    places = [e.get("transform", "").split(")")[0] for e in dots]
    assert places == ["translate(15.0 458.0", "translate(405.0 68.0", "translate(210.0 68.0"]
    assert len({e.get("d") for e in dots}) == 2
    assert "positive (1)" in texts(drawn) and "negative (2)" in texts(drawn)


DRAWN: list[Callable[[str], str]] = [
    lambda name: charts.lines({name: [Point(1, 1, 0)]}, title=name, x_label=name, y_label=name),
    lambda name: charts.bars({name: {name: (1.0, 0.0), "other": (1.0, 0.0)}}, title=name, value_label=name),
    lambda name: charts.bars({name: {name: (1.0, 0.0)}}, title=name, value_label=name),
    lambda name: charts.scatter([(0, 0, name)], title=name),
]


@pytest.mark.parametrize("draw", DRAWN)
def test_names_are_escaped(draw: Callable[[str], str]) -> None:
    drawn = draw(HOSTILE)
    assert "<script" not in drawn
    assert not list(parsed(drawn).iter("script"))


@pytest.mark.parametrize("draw", DRAWN)
def test_a_chart_is_accessible_scalable_and_coloured_by_its_page(draw: Callable[[str], str]) -> None:
    drawn = draw("name")
    root = parsed(drawn)
    assert root.get("role") == "img" and root.get("viewBox", "").startswith("0 0 420 ")
    named = {e.get("id"): e.tag for e in root.iter() if e.get("id")}
    assert named == {root.get("aria-labelledby"): "title", root.get("aria-describedby"): "desc"}
    assert not re.search(r"#[0-9a-f]{3,6}\b|rgb\(|fill=|stroke=", drawn)


def test_the_style_takes_every_colour_from_the_page() -> None:
    assert not re.search(r"#[0-9a-f]{3,6}\b|rgb\(", charts.STYLE)
    for colour in re.findall(r"(?:fill|stroke):([^;}]+)", charts.STYLE):
        assert colour == "none" or colour.startswith("var(--")


@pytest.mark.parametrize(
    "drawn",
    [
        lines({}),
        lines({"a": []}),
        charts.bars({}, title="MRR", value_label=""),
        charts.bars({"r": {}}, title="MRR", value_label=""),
        charts.scatter([], title="MRR"),
    ],
)
def test_a_chart_of_nothing_says_so(drawn: str) -> None:
    assert texts(drawn) == ["MRR", "nothing to show"]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused_by_name(value: float) -> None:
    with pytest.raises(FewlinkError, match=r"the chart 'MRR' cannot show .* of complex"):
        lines({"complex": [Point(1, value, 0)]})
    with pytest.raises(FewlinkError, match="of r"):
        charts.bars({"r": {"a": (0.0, value)}}, title="MRR", value_label="")
    with pytest.raises(FewlinkError, match="of positive"):
        charts.scatter([(0, value, "positive")], title="MRR")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 0.5, [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.12, 0.31, [0.1, 0.15, 0.2, 0.25, 0.3, 0.35]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-3, 7, [-4, -2, 0, 2, 4, 6, 8]),
    ],
)
def test_ticks_are_round_numbers_around_the_values(low: float, high: float, expected: list[float]) -> None:
    assert charts.ticks(low, high) == pytest.approx(expected)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_enclose_the_values_and_are_few(low: float, size: float) -> None:
    ticks = charts.ticks(low, low + size)
    assert ticks[0] <= low + 1e-6 * size and ticks[-1] >= low + size - 1e-6 * size
    assert 2 <= len(ticks) <= 8


def test_a_chart_in_a_notebook_has_the_colours_of_the_page() -> None:
    page = charts.in_notebook(charts.bars({"r": {"a": (0.5, 0.0), "b": (0.25, 0.0)}}, title="t", value_label="v"), 300)
    assert "--ink:currentColor" in page and "max-width:300px" in page and "prefers-color-scheme" not in page
    style = page[page.index("<style>") + len("<style>") : page.index("</style>")]
    assert all(rule.startswith(".fewlink-chart .chart") for rule in style.split("}") if rule)
    assert set(re.findall(r"var\((--[a-z0-9-]+)\)", page)) <= {f"--{name}" for name in charts.ANY_PAGE} | {"--series"}

    def contrast(colour: str, page: float) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        return (max(light, page) + 0.05) / (min(light, page) + 0.05)

    for name, colour in charts.ANY_PAGE.items():
        if name.startswith("series"):
            assert contrast(colour, 1.0) >= 3 and contrast(colour, 0.006) >= 3, name  # white, and #111
