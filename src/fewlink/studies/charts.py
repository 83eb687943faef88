"""Charts of results, drawn with matplotlib.

A chart is data until `svg` draws it, so tables do not need matplotlib. Series differ in colour, marker and dashes, so
that they also differ in black and white.
"""

from __future__ import annotations

import hashlib
import io
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fewlink.core.errors import MissingExtra
from fewlink.evaluation.curves import LearningCurve
from fewlink.evaluation.records import Record
from fewlink.studies.tables import figure, moments, select, values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#1f5fa8", "#b8540c", "#0b7558", "#86399f", "#b21e3f", "#69690a", "#0d7189", "#5b5e68")
MARKERS = ("o", "s", "^", "D", "v", "P", "p", "h")
DASHES: tuple[Any, ...] = ("-", (0, (6, 3)), (0, (2, 3)), (0, (9, 3, 2, 3)), (0, (12, 4)))
MAX_MARKERS = 20  # on a line
WIDTH_INCHES = 5.6
BAR_HEIGHT_INCHES = 0.17
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#5b606b",
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.facecolor": "white",
    "font.size": 9,
    "grid.color": "#dedbd3",
    "legend.frameon": False,
    "svg.fonttype": "none",  # letters stay text
    "text.parse_math": False,  # a name may contain dollar signs
}
Styles = Mapping[str, int]  # the number of each name's colour, marker and dashes


class Point(NamedTuple):
    """A mean and its standard deviation at x."""

    x: float
    mean: float
    deviation: float


@dataclass(frozen=True)
class Chart(ABC):
    """A chart with a title."""

    title: str

    @abstractmethod
    def description(self) -> str:
        """The content as text, for readers who do not see the chart."""

    @property
    @abstractmethod
    def height(self) -> float:
        """The height of the axes in inches."""

    @abstractmethod
    def draw(self, axes: Axes) -> None:
        """Draw everything but the title."""

    def svg(self) -> str:
        """The chart as an SVG file; the same text for the same chart."""
        try:
            import matplotlib
            from matplotlib.figure import Figure
        except ImportError:
            raise MissingExtra("a chart", "plots") from None
        file = io.StringIO()
        salt = hashlib.sha256(f"{self.title}{self.description()}".encode()).hexdigest()
        with matplotlib.rc_context({**STYLE, "svg.hashsalt": salt}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # the reader's font has it
            page = Figure(figsize=(WIDTH_INCHES, self.height))
            axes = page.add_subplot()
            axes.set_title(printable(self.title))
            self.draw(axes)
            no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            page.savefig(file, format="svg", bbox_inches="tight", metadata=no_metadata)
        return file.getvalue()

    def _repr_svg_(self) -> str:
        """The chart in a notebook."""
        return self.svg()


@dataclass(frozen=True)
class LineChart(Chart):
    """Lines with markers, and a band of ± one standard deviation around each.

    `styles` gives a name the same style in several charts. With `logarithmic`, both axes are logarithmic, and values
    must be positive. `x_names` are the texts to show in place of x.
    """

    series: Mapping[str, Sequence[Point]]
    x_label: str
    y_label: str
    styles: Styles | None = None
    logarithmic: bool = False
    x_names: Mapping[int, str] | None = None

    @property
    def height(self) -> float:
        return 3.2

    def description(self) -> str:
        texts = [f"{name}: {', '.join(map(self._point_text, points))}" for name, points in self.series.items()]
        return f"{self.y_label} by {self.x_label}. {'; '.join(texts)}."

    def _point_text(self, point: Point) -> str:
        if self.logarithmic:
            return f"{point.x:,.0f}: {point.mean:.3g}"
        return f"{self._x_text(point.x)}: {figure(point.mean, point.deviation)}"

    def _x_text(self, x: float) -> str:
        return self.x_names[int(x)] if self.x_names else f"{x:g}"

    def draw(self, axes: Axes) -> None:
        styles = self.styles or _numbered(self.series)
        if self.logarithmic:
            from matplotlib.ticker import EngFormatter, FuncFormatter

            thousands = EngFormatter(sep="")
            axes.set_xscale("log")
            axes.set_yscale("log")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(FuncFormatter(lambda v, _: thousands(v) if v >= 1000 else f"{v:g}"))
        for name, points in self.series.items():
            points = sorted(points)
            x, mean, deviation = ([point[i] for point in points] for i in range(3))
            look = _look(styles[name])
            axes.plot(
                x,
                mean,
                label=printable(name),
                linestyle=DASHES[styles[name] % len(DASHES)],
                markevery=max(1, math.ceil(len(points) / MAX_MARKERS)),
                **look,
            )
            if any(deviation):
                low = [m - d for m, d in zip(mean, deviation, strict=True)]
                high = [m + d for m, d in zip(mean, deviation, strict=True)]
                axes.fill_between(x, low, high, color=look["color"], alpha=0.13, linewidth=0)
        numbers = sorted({point.x for points in self.series.values() for point in points})
        if not self.logarithmic:
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:,g}" if x < 1e6 else f"{x:,.0f}")
            if self.x_names:
                axes.set_xticks(numbers, [printable(self._x_text(x)) for x in numbers])
            elif 1 < len(numbers) <= 6:
                axes.set_xticks(numbers)
            means = [point.mean for points in self.series.values() for point in points]
            if means and 0 <= min(means) <= max(means) / 2:
                axes.set_ylim(bottom=0)
        axes.set_xlabel(printable(self.x_label))
        axes.set_ylabel(printable(self.y_label))
        _legend(axes)


@dataclass(frozen=True)
class BarChart(Chart):
    """Groups of horizontal bars with whiskers: row → name → (mean, standard deviation).

    The axis extends at least to `limit`, so that charts side by side can share a scale.
    """

    rows: Mapping[str, Mapping[str, tuple[float, float]]]
    value_label: str
    styles: Styles | None = None
    limit: float | None = None

    @property
    def _bars(self) -> int:
        return sum(map(len, self.rows.values()))

    @property
    def _single(self) -> bool:
        """Whether every row has one bar, so that a legend is not needed."""
        return all(len(cells) == 1 for cells in self.rows.values())

    @property
    def height(self) -> float:
        return 0.6 + BAR_HEIGHT_INCHES * (self._bars + 0.7 * len(self.rows))

    def description(self) -> str:
        rows = [
            f"{row}: " + ", ".join(f"{n} {figure(*c)}" for n, c in cells.items()) for row, cells in self.rows.items()
        ]
        return f"{self.value_label}. {'; '.join(rows)}."

    def draw(self, axes: Axes) -> None:
        names = list(dict.fromkeys(name for cells in self.rows.values() for name in cells))
        styles = self.styles or _numbered(names)
        places: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
        middles = []
        at = 0.0
        for cells in self.rows.values():
            middles.append(at + (len(cells) - 1) / 2)
            for name in (name for name in names if name in cells):
                places[name].append((at, *cells[name]))
                at += 1
            at += 0.7
        for name, bars in places.items():
            y, means, deviations = zip(*bars, strict=True)
            axes.barh(y, means, 0.85, label=printable(name), color=_look(styles[name])["color"], alpha=0.75)
            axes.errorbar(means, y, xerr=deviations, fmt="none", ecolor="#1d1f23", elinewidth=0.8, capsize=2)
            for place, mean, deviation in bars:
                tip = (max(mean + deviation, 0.0), place)
                text = figure(mean, deviation)
                axes.annotate(text, tip, (4, 0), textcoords="offset points", va="center", fontsize=7, color="#5b606b")
        axes.set_yticks(middles, [printable(row) for row in self.rows])
        axes.set_ylim(at - 0.5, -0.7)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        values = [mean + deviation for cells in self.rows.values() for mean, deviation in cells.values()]
        axes.set_xlim(right=max(self.limit or 0.0, *values, 0.0) * 1.18 or 1.0)
        axes.set_xlabel(printable(self.value_label))
        if not self._single:
            _legend(axes)


@dataclass(frozen=True)
class ScatterChart(Chart):
    """A map of points (x, y, name of the class), without labels on its axes."""

    points: Sequence[tuple[float, float, str]]

    @property
    def height(self) -> float:
        return WIDTH_INCHES

    def _classes(self) -> dict[str, list[tuple[float, float]]]:
        classes: dict[str, list[tuple[float, float]]] = {}
        for x, y, name in sorted(self.points, key=lambda point: point[2]):
            classes.setdefault(name, []).append((x, y))
        return classes

    def description(self) -> str:
        return "A map of " + ", ".join(f"{len(points):,} {name}" for name, points in self._classes().items()) + "."

    def draw(self, axes: Axes) -> None:
        for number, (name, points) in enumerate(self._classes().items()):
            x, y = zip(*points, strict=True)
            label = f"{printable(name)} ({len(points):,})"
            axes.plot(x, y, linestyle="none", label=label, alpha=0.75, **_look(number))
        axes.set_aspect("equal", "datalim")
        axes.spines[:].set_visible(True)
        axes.set_xticks([])
        axes.set_yticks([])
        _legend(axes)


def printable(text: str) -> str:
    """Text without control characters, which XML does not allow."""
    return "".join(c if c.isprintable() else " " for c in text)


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _look(style: int) -> dict[str, Any]:
    number = style % len(COLOURS)
    return {
        "color": COLOURS[number],
        "marker": MARKERS[(style + style // len(COLOURS)) % len(MARKERS)],
        "markersize": 4,
    }


def _legend(axes: Axes) -> None:
    """A legend below the chart."""
    names = axes.get_legend_handles_labels()[1]
    if names:
        columns = 3 if max(map(len, names)) <= 16 else 2
        height = axes.get_position().height * axes.get_figure(root=True).get_figheight()  # type: ignore[union-attr]
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.5 / height), ncols=columns)


def relation_bars(records: Sequence[Record], models: Iterable[str]) -> dict[str, dict[str, tuple[float, float]]]:
    """MRR for a bar chart: the mean and deviation over the records of each model, by relation."""
    rows: dict[str, dict[str, tuple[float, float]]] = {}
    for model in models:
        seeds = select(records, model=model)
        for name in dict.fromkeys(name for r in seeds for name in r.relations):
            rows.setdefault(name, {})[model] = moments([r.relations[name]["mrr"] for r in seeds if name in r.relations])
    return rows


def shots_lines(records: Sequence[Record], models: Iterable[str], metric: str) -> dict[str, list[Point]]:
    """A metric for a line chart: by number of references, for each model with few-shot records."""
    lines = {}
    for model in models:
        seeds = select(records, model=model)
        numbers = sorted({r.shots for r in seeds if r.shots})
        lines[model] = [Point(k, *moments(values(select(seeds, shots=k), metric))) for k in numbers]
    return {model: points for model, points in lines.items() if points}


def step_lines(curves: Sequence[LearningCurve]) -> dict[str, list[Point]]:
    """MRR on dev and test for a line chart, at the steps that all curves share."""
    if not curves:
        return {}
    steps = sorted(set.intersection(*({point.step for point in curve.points} for curve in curves)))
    lines: dict[str, list[Point]] = {"dev": [], "test": []} if steps else {}
    for split, points in lines.items():
        for step in steps:
            mrrs = [getattr(p, split)["mrr"] for curve in curves for p in curve.points if p.step == step]
            points.append(Point(step, *moments(mrrs)))
    return lines
