"""Small SVG charts that take their colours from the page."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fewlink.core.errors import FewlinkError
from fewlink.report.drawing import cut, escape, svg_text, text_width

WIDTH = 420  # of every chart; a unit is a pixel if the page is wide enough
COLOURS = 8  # --series-1 … --series-8
MOST_MARKS = 20  # on a line
DASHES = ("", "6 3", "2 3", "9 3 2 3", "12 4")
MARKERS = (  # paths around the origin, of about the same visual weight
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.8L4.6 3.4h-9.2z",
    "M0-5L5 0L0 5L-5 0z",
    "M0 4.8L4.6-3.4h-9.2z",
    "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "M0-4.8L4.6-1.5L2.8 3.9h-5.6L-4.6-1.5z",
    "M-4.6-2.6v5.2L0 5.2L4.6 2.6v-5.2L0-5.2z",
)
STYLE = (
    ".chart{display:block;width:100%;height:auto}"
    ".chart text{font:12px system-ui,sans-serif;fill:var(--ink);font-variant-numeric:tabular-nums}"
    ".chart .name{font-weight:600;font-size:13px}.chart .soft{fill:var(--soft)}"
    ".chart .value{font-size:11px;fill:var(--soft)}.chart .end{text-anchor:end}.chart .middle{text-anchor:middle}"
    ".chart .grid{stroke:var(--rule);stroke-width:1}.chart .axis{stroke:var(--soft);stroke-width:1}"
    ".chart .frame{fill:none;stroke:var(--rule)}"
    ".chart .line{fill:none;stroke:var(--series);stroke-width:2;stroke-linejoin:round}"
    ".chart .band{fill:var(--series);opacity:.13}.chart .bar{fill:var(--series);opacity:.72}"
    ".chart .mark{fill:var(--series);stroke:var(--paper);stroke-width:1}"
    ".chart .dot{fill:var(--series);opacity:.75}.chart .whisker{stroke:var(--ink);stroke-width:1;fill:none}"
    + "".join(f".chart .series-{n}{{--series:var(--series-{n})}}" for n in range(1, COLOURS + 1))
)
LIGHT = {  # the colours of a page, as CSS variables
    **{"paper": "#fbfaf7", "ink": "#1d1f23", "soft": "#5b606b", "rule": "#dedbd3"},
    **{"series-1": "#1f5fa8", "series-2": "#b8540c", "series-3": "#0b7558", "series-4": "#86399f"},
    **{"series-5": "#b21e3f", "series-6": "#69690a", "series-7": "#0d7189", "series-8": "#5b5e68"},
}
DARK = {
    **{"paper": "#15171b", "ink": "#e9e7e2", "soft": "#a4a8b1", "rule": "#343840"},
    **{"series-1": "#7fb2f0", "series-2": "#f0a35e", "series-3": "#5fd0a5", "series-4": "#cf9cf0"},
    **{"series-5": "#f58a98", "series-6": "#cdd06a", "series-7": "#66c8e0", "series-8": "#b4b6bf"},
}
ANY_PAGE = {  # colours that show on light and dark pages alike
    **{"paper": "transparent", "ink": "currentColor", "soft": "currentColor", "rule": "rgba(128,128,128,.3)"},
    **{"series-1": "#3d85c6", "series-2": "#c2703d", "series-3": "#2f9e78", "series-4": "#a362bd"},
    **{"series-5": "#d14e68", "series-6": "#8f8f2e", "series-7": "#2c94ab", "series-8": "#80838d"},
}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
Scale = Callable[[float], float]
Styles = Mapping[str, int]


class Axis(NamedTuple):
    """A kind of axis: the bound that values must exceed, its ticks from low to high, its scale and its tick labels."""

    above: float
    ticks: Callable[[float, float], list[float]]
    scale: Callable[[float, float, float, float], Scale]
    label: Callable[[float, Sequence[float]], str]


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers (1, 2, 2.5 or 5 times a power of ten apart) that enclose low and high."""
    if high <= low:
        low, high = (low - abs(low) / 2, low + abs(low) / 2) if low else (0.0, 1.0)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{n * step:.10g}") for n in range(first, last + 1)]


def powers_of_ten(low: float, high: float) -> list[float]:
    """Powers of ten that enclose low and high, both above zero; at least two."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    return [10.0**n for n in range(first, max(last, first + 1) + 1)]


def scale(low: float, high: float, start: float, end: float) -> Scale:
    """The linear map from [low, high] to [start, end]; to the middle if low and high are equal."""
    if high == low:
        return lambda value: (start + end) / 2
    return lambda value: start + (value - low) / (high - low) * (end - start)


def log_scale(low: float, high: float, start: float, end: float) -> Scale:
    """The same for logarithms."""
    linear = scale(math.log10(low), math.log10(high), start, end)
    return lambda value: linear(math.log10(value))


def power_label(value: float, ticks: Sequence[float]) -> str:
    """A power of ten: .01 to 1000 in digits, others as 10⁴."""
    power = round(math.log10(value))
    return f"{value:g}" if -2 <= power <= 3 else "10" + str(power).translate(SUPERSCRIPTS)


def tick_label(value: float, ticks: Sequence[float]) -> str:
    """A tick with as many decimals as all ticks need, without a leading zero."""
    decimals = max(len(f"{tick:.6g}".partition(".")[2]) for tick in ticks)
    text = f"{value:,.{decimals}f}" if value else "0"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


LINEAR = Axis(-math.inf, ticks, scale, tick_label)
LOGARITHMIC = Axis(0.0, powers_of_ten, log_scale, power_label)


class Point(NamedTuple):
    """A mean and its deviation at x."""

    x: float
    mean: float
    deviation: float


def figure(mean: float, deviation: float = 0.0) -> str:
    """`.312 ± .014`, or the mean alone if there is no deviation."""
    return f"{short(mean)} ± {short(deviation)}" if deviation else short(mean)


def short(value: float) -> str:
    """Three decimals without a leading zero."""
    text = f"{value:.3f}"
    return text[1:] if text.startswith("0.") else text.replace("-0.", "-.", 1)


def lines(
    series: Mapping[str, Sequence[Point]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    styles: Styles | None = None,
    keyed: bool = True,
    logarithmic: bool = False,
) -> str:
    """Lines with markers, a band of ± deviation around each, and a legend unless `keyed` is false.

    `styles` gives names the number of their colour, marker and dashes, so that a name looks the same in every chart.
    On logarithmic axes, for values above zero, a power of x is a straight line.
    """
    axis, describe = (LOGARITHMIC, _say_large) if logarithmic else (LINEAR, _say)
    drawn = {name: sorted(points) for name, points in series.items() if points}
    _refuse_unshowable(title, ((name, value) for name, points in drawn.items() for p in points for value in p))
    _refuse_unshowable(title, ((n, v) for n, points in drawn.items() for p in points for v in p[:2]), axis.above)
    if not drawn:
        return _nothing(title)
    styles = styles or _numbered(drawn)
    every = [p for points in drawn.values() for p in points]
    high, least = max(p.mean + p.deviation for p in every), min(p.mean for p in every)
    low = min((p.mean - p.deviation for p in every if p.mean - p.deviation > axis.above), default=least)
    xs = sorted({p.x for p in every})
    columns = axis.ticks(xs[0], xs[-1])
    if not logarithmic:
        low = 0.0 if least >= 0 and low <= high / 2 else low
        columns = xs if len(xs) <= 6 else columns
    rows = axis.ticks(low, high)
    key, taken = _legend(drawn, styles, "line") if keyed else ("", 0)
    top, bottom, left = 46 + taken, 236 + taken, 40.0
    right = WIDTH - max(16.0, text_width(axis.label(columns[-1], columns)) / 2)
    inset = 14 if len(xs) <= 6 else 0
    across = axis.scale(min(columns[0], xs[0]), max(columns[-1], xs[-1]), left + inset, right - inset)
    down = axis.scale(rows[0], rows[-1], bottom, top)
    parts = [svg_text(0, 14, cut(title, WIDTH * 0.9), "name"), key, svg_text(0, 34 + taken, y_label, "soft")]
    for value in rows:
        parts.append(f'<path class="grid" d="M{left:g} {down(value):.1f}H{right:g}"/>')
        parts.append(svg_text(left - 8, down(value) + 4, axis.label(value, rows), "soft end"))
    parts.append(f'<path class="axis" d="M{left:g} {bottom}H{right:g}"/>')
    parts += [svg_text(across(value), bottom + 18, axis.label(value, columns), "soft middle") for value in columns]
    parts.append(svg_text(right, bottom + 36, x_label, "soft end"))
    for name, points in drawn.items():
        style = styles[name]
        edge = [(p.x, p.mean + p.deviation) for p in points]
        edge += [(p.x, max(p.mean - p.deviation, rows[0])) for p in points[::-1]]
        outline = "L".join(f"{across(x):.1f} {min(max(down(y), top), bottom):.1f}" for x, y in edge)
        path = "L".join(f"{across(p.x):.1f} {down(p.mean):.1f}" for p in points)
        drawings = [
            f'<path class="band" d="M{outline}z"/>',
            f'<path class="line" stroke-dasharray="{_dash(style)}" d="M{path}"/>',
            *(_mark(style, across(p.x), down(p.mean), f"{name}, {describe(p)}") for p in _marked_points(points)),
        ]
        parts.append(_coloured(style, *drawings))
    texts = (f"{name}: {', '.join(map(describe, _marked_points(points)))}" for name, points in drawn.items())
    return _svg(title, f"{y_label} by {x_label}. {'; '.join(texts)}.", bottom + 42, parts)


def _marked_points(points: Sequence[Point]) -> Sequence[Point]:
    """The points that have a marker: at most `MOST_MARKS`, evenly spaced up to the last."""
    return points[:: -math.ceil(len(points) / MOST_MARKS)][::-1]


def bars(
    rows: Mapping[str, Mapping[str, tuple[float, float]]],
    *,
    title: str,
    value_label: str,
    styles: Styles | None = None,
    limit: float | None = None,
    keyed: bool = True,
) -> str:
    """Groups of horizontal bars, row -> name -> (mean, deviation), with whiskers and figures, and a legend.

    The axis reaches at least to `limit`, so that charts side by side can share a scale. A chart of one name, or with
    `keyed` false, has no legend.
    """
    drawn = {row: dict(cells) for row, cells in rows.items() if cells}
    _refuse_unshowable(title, ((row, v) for row, cells in drawn.items() for pair in cells.values() for v in pair))
    if not drawn:
        return _nothing(title)
    names = list(dict.fromkeys(name for cells in drawn.values() for name in cells))
    styles = styles or _numbered(names)
    beside = all(len(cells) == 1 for cells in drawn.values())
    key, taken = _legend(names, styles, "bar") if keyed and len(names) > 1 else ("", 0)
    pairs = [pair for cells in drawn.values() for pair in cells.values()]
    low, high = min(0.0, *(m - d for m, d in pairs)), max(limit or 0.0, *(m + d for m, d in pairs)) or 1.0
    if min(m for m, _ in pairs) >= 0:
        low = 0.0
    lines_at = [value for value in LINEAR.ticks(low, high) if low <= value <= high]
    left, right = (min(max(map(text_width, drawn)) + 8, WIDTH * 0.42) if beside else 2.0), WIDTH - 78.0
    across = LINEAR.scale(low, high, left, right)
    parts, y = [], 42.0 + taken
    for row, cells in drawn.items():
        if beside:
            parts.append(svg_text(left - 8, y + 10, cut(row, left - 8), "end"))
        else:
            parts.append(svg_text(0, y + 12, cut(row, WIDTH), "soft"))
            y += 18
        for name in (n for n in names if n in cells):
            mean, deviation = cells[name]
            parts.append(_bar(across, y, f"{row}, {name}", mean, deviation, styles[name], len(names) > 1))
            y += 15
        y += 5 if beside else 9
    behind = [f'<path class="grid" d="M{across(v):.1f} {36 + taken}V{y:.1f}"/>' for v in lines_at]
    below = [svg_text(across(v), y + 15, LINEAR.label(v, lines_at), "soft middle") for v in lines_at]
    heading = [svg_text(0, 14, cut(title, WIDTH * 0.9), "name"), key, *behind]
    axis = f'<path class="axis" d="M{across(0):.1f} {36 + taken}V{y:.1f}"/>'
    label = svg_text(WIDTH, y + 15, value_label, "soft end")
    texts = (f"{row}: " + ", ".join(f"{n} {figure(*c[n])}" for n in c) for row, c in drawn.items())
    return _svg(title, f"{value_label}. {'; '.join(texts)}.", y + 22, [*heading, *parts, axis, *below, label])


def scatter(points: Sequence[tuple[float, float, str]], *, title: str) -> str:
    """A map of points (x, y, name of the class); its axes have no unit and are not drawn."""
    _refuse_unshowable(title, ((name, value) for x, y, name in points for value in (x, y)))
    if not points:
        return _nothing(title)
    counts = {name: sum(p[2] == name for p in points) for name in sorted({p[2] for p in points})}
    styles = _numbered(counts)
    key, taken = _legend(counts, styles, "dot", [f"{name} ({count:,})" for name, count in counts.items()])
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    size, top = WIDTH - 2.0, 32.0 + taken
    reach = max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0
    unit, middle = (size - 28) / reach, ((min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2)
    dots = [
        f'<path class="dot {_colour(styles[name])}" d="{MARKERS[_marker(styles[name])]}" transform="translate('
        f'{1 + size / 2 + (x - middle[0]) * unit:.1f} {top + size / 2 - (y - middle[1]) * unit:.1f}) scale(.75)"/>'
        for x, y, name in points
    ]
    frame = f'<rect class="frame" x="1" y="{top:g}" width="{size:g}" height="{size:g}" rx="4"/>'
    text = "A map of " + ", ".join(f"{count:,} {name}" for name, count in counts.items()) + "."
    return _svg(title, text, top + size + 2, [svg_text(0, 14, cut(title, WIDTH * 0.9), "name"), key, frame, *dots])


def swatch(style: int, kind: str = "line") -> str:
    """A sample of a style as a `line`, `bar` or `dot`, for the legend of several charts."""
    drawn = _coloured(style, _sample(style, kind, 1, 7))
    return f'<svg class="swatch chart" viewBox="0 0 24 14" aria-hidden="true">{drawn}</svg>'


def variables(theme: Mapping[str, str]) -> str:
    """A theme as CSS."""
    return "".join(f"--{name}:{value};" for name, value in theme.items())


def in_notebook(chart: str, width: int = 480) -> str:
    """A chart as HTML in the colours of the page around it, light or dark, at most so many pixels wide."""
    look = f"{variables(ANY_PAGE)}max-width:{width}px;margin:.7em 0"
    style = STYLE.replace(".chart", ".fewlink-chart .chart")
    return f'<div class="fewlink-chart" style="{look}"><style>{style}</style>{chart}</div>'


def standalone(chart: str) -> str:
    """A chart as a complete SVG file with a light and a dark theme."""
    themes = (
        f"svg{{{variables(LIGHT)}background:var(--paper)}}@media(prefers-color-scheme:dark){{svg{{{variables(DARK)}}}}}"
    )
    whole = chart.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return whole.replace("<title", f"<style>{themes}{STYLE}</style><title", 1)


def _bar(across: Scale, y: float, name: str, mean: float, deviation: float, style: int, marked: bool) -> str:
    zero, end = across(0), across(mean)
    parts = [
        f"<title>{escape(f'{name}: {figure(mean, deviation)}')}</title>",
        f'<rect class="bar" x="{min(zero, end):.1f}" y="{y:.1f}" width="{abs(end - zero):.1f}" height="12" rx="1"/>',
    ]
    tip = end
    if deviation:
        start, tip = across(mean - deviation), across(mean + deviation)
        parts.append(f'<path class="whisker" d="M{start:.1f} {y + 6:.1f}H{tip:.1f}M{tip:.1f} {y + 3:.1f}v6"/>')
    if marked:
        parts.append(_mark(style, end, y + 6))
        tip = max(tip, end + 4)
    parts.append(svg_text(max(tip, zero) + 5, y + 10, figure(mean, deviation), "value"))
    return _coloured(style, *parts)


def _mark(style: int, x: float, y: float, name: str = "") -> str:
    tooltip = f"<title>{escape(name)}</title>" if name else ""
    place = f'transform="translate({x:.1f} {y:.1f})"'
    return f'<path class="mark" d="{MARKERS[_marker(style)]}" {place}>{tooltip}</path>'


def _legend(names: Iterable[str], styles: Styles, kind: str, labels: Sequence[str] | None = None) -> tuple[str, int]:
    """Samples and names below the title, in rows, and their height."""
    names = list(names)
    parts, x, y = [], 0.0, 32
    for name, label in zip(names, labels or names, strict=True):
        label = cut(label, WIDTH - 28)
        taken = 28 + text_width(label)
        if x and x + taken > WIDTH:
            x, y = 0.0, y + 19
        parts.append(_coloured(styles[name], _sample(styles[name], kind, x, y)))
        parts.append(svg_text(x + 28, y + 4, label))
        x += taken + 14
    return "".join(parts), y - 10


def _sample(style: int, kind: str, x: float, y: float) -> str:
    drawn = {
        "line": f'<path class="line" stroke-dasharray="{_dash(style)}" d="M{x:.1f} {y}h22"/>',
        "bar": f'<rect class="bar" x="{x:.1f}" y="{y - 5}" width="18" height="10" rx="1"/>',
        "dot": "",
    }
    return drawn[kind] + _mark(style, x + {"line": 11, "bar": 18, "dot": 16}[kind], y)


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _coloured(style: int, *parts: str) -> str:
    return f'<g class="{_colour(style)}">{"".join(parts)}</g>'


def _colour(style: int) -> str:
    return f"series-{style % COLOURS + 1}"


def _dash(style: int) -> str:
    return DASHES[style % len(DASHES)] or "none"


def _marker(style: int) -> int:
    return (style + style // COLOURS) % len(MARKERS)


def _say(point: Point) -> str:
    return f"{point.x:g}: {figure(point.mean, point.deviation)}"


def _say_large(point: Point) -> str:
    return f"{point.x:,.0f}: {point.mean:.3g}"


def _svg(title: str, description: str, height: float, parts: Iterable[str]) -> str:
    body = "".join(parts)
    digest = hashlib.sha256(f"{title}{description}{body}".encode()).hexdigest()[:10]
    return (
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH} {height:.0f}" aria-labelledby="t{digest}"'
        f' aria-describedby="d{digest}"><title id="t{digest}">{escape(title)}</title>'
        f'<desc id="d{digest}">{escape(description)}</desc>{body}</svg>'
    )


def _nothing(title: str) -> str:
    texts = [svg_text(0, 14, cut(title, WIDTH * 0.9), "name"), svg_text(0, 36, "nothing to show", "soft")]
    return _svg(title, "Nothing to show.", 48, texts)


def _refuse_unshowable(title: str, values: Iterable[tuple[str, float]], above: float = -math.inf) -> None:
    for name, value in values:
        if not math.isfinite(value) or value <= above:
            raise FewlinkError(f"the chart '{title}' cannot show {value} of {name}")
