"""Charts: what matplotlib gets to draw, text for readers who do not see it, and names that are safe in any page."""

from __future__ import annotations

import builtins
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fewlink.core.errors import MissingExtra
from fewlink.studies.charts import COLOURS, BarChart, Chart, LineChart, Point, ScatterChart

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<script>alert("1")</script>&\x00 $x_{2$ \u202e'
LINES = LineChart("MRR", {"a": [Point(5, 0.5, 0.1), Point(1, 0.1, 0.0)], "b": [Point(1, 0.3, 0.0)]}, "K", "mean")
BARS = BarChart("MRR", {"likes": {"a": (0.2, 0.0), "b": (0.4, 0.1)}, "visits": {"b": (0.5, 0.0)}}, "MRR")
MAP = ScatterChart("map", [(0, 0, "positive"), (2, 2, "negative"), (1, 2, "negative")])


def drawn(chart: Chart) -> Axes:
    axes = Figure().add_subplot()
    chart.draw(axes)
    return axes


def test_a_line_joins_the_means_in_the_order_of_x() -> None:
    lines = {str(line.get_label()): line.get_xydata().tolist() for line in drawn(LINES).lines}  # type: ignore[union-attr]
    assert lines == {"a": [[1, 0.1], [5, 0.5]], "b": [[1, 0.3]]}
    (band,) = drawn(LINES).collections  # only a has deviations
    assert {round(float(y), 3) for _, y in band.get_paths()[0].vertices} == {0.1, 0.4, 0.6}  # type: ignore[union-attr]


def test_lines_differ_without_colour() -> None:
    series = {str(number): [Point(1, number, 0), Point(2, number, 0)] for number in range(12)}
    lines = drawn(LineChart("", series, "", "")).lines
    assert len({(str(line.get_linestyle()), line.get_marker(), str(line._dash_pattern)) for line in lines}) == 12  # type: ignore[attr-defined]


def test_bars_are_as_long_as_their_values() -> None:
    axes = drawn(BARS)
    bars = [[bar.get_width() for bar in group] for group in axes.containers if hasattr(group, "patches")]
    assert bars == [[0.2], [0.4, 0.5]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["likes", "visits"]
    assert [text.get_text() for text in axes.texts] == [".200", ".400 ± .100", ".500"]


def test_bars_side_by_side_can_share_a_scale() -> None:
    other = BarChart("", {"r": {"a": (0.1, 0.0)}}, "MRR", limit=0.5)
    assert drawn(other).get_xlim() == drawn(BARS).get_xlim()


def test_a_style_gives_a_name_the_same_colour_in_every_chart() -> None:
    lines = LineChart("", {"a": [Point(1, 1, 0)]}, "", "", styles={"a": 4})
    bars = BarChart("", {"r": {"a": (1.0, 0.0)}}, "", styles={"a": 4})
    assert drawn(lines).lines[0].get_color() == COLOURS[4]
    assert COLOURS[4] in bars.svg() and COLOURS[0] not in bars.svg()


def test_logarithmic_axes() -> None:
    chart = LineChart("time", {"a": [Point(100, 0.1, 0), Point(10_000, 10, 0)]}, "triples", "s", logarithmic=True)
    axes = drawn(chart)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "10,000: 10" in chart.description()


def test_a_map_has_a_marker_for_each_class() -> None:
    classes = drawn(MAP).lines
    assert [line.get_label() for line in classes] == ["negative (2)", "positive (1)"]
    assert len({line.get_marker() for line in classes}) == 2


def test_a_description_has_the_figures() -> None:
    assert "a: 5: .500 ± .100, 1: .100; b: 1: .300" in LINES.description()
    assert "likes: a .200, b .400 ± .100; visits: b .500" in BARS.description()
    assert MAP.description() == "A map of 2 negative, 1 positive."


@pytest.mark.parametrize(
    "chart",
    [
        LineChart(HOSTILE, {HOSTILE: [Point(1, 1, 0)]}, HOSTILE, HOSTILE),
        BarChart(HOSTILE, {HOSTILE: {HOSTILE: (1.0, 0.0), "other": (1.0, 0.0)}}, HOSTILE),
        ScatterChart(HOSTILE, [(0, 0, HOSTILE)]),
        LineChart("nothing", {}, "", ""),
        BarChart("nothing", {}, ""),
        ScatterChart("nothing", []),
    ],
)
def test_any_name_and_no_data_at_all_can_be_drawn(chart: Chart) -> None:
    root = ElementTree.fromstring(chart.svg())
    assert root.tag == f"{SVG}svg" and not list(root.iter(f"{SVG}script"))
    assert chart.svg() == chart.svg()


def test_a_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match="plots"):
        LINES.svg()
