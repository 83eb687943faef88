"""Path graphs as SVG and tables as HTML, for notebooks.

Lines and letters use `currentColor` and greys, which show on light and dark pages alike. The markup has no scripts and
no ids and loads nothing, so a page can hold many outputs.
"""

from __future__ import annotations

import html
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fewlink.core import words

BOX = 126
GAP = 100  # pixels: the width of a node, and the shortest edge
LINE = 14  # pixels: the height of a line of text
LETTER = 7.4
WIDE_LETTER = 12.5  # pixels: the width of a letter, and of an East Asian one
MAX_LINES = 3  # of the name of a node, and of a relation
SMALL = 11 / 12
BOLD = 1.1  # relative widths of small letters (relations, captions) and bold ones (both ends)
ACCENT = "#3d85c6"
AGAINST = "#c2703d"
RULE = "rgba(128,128,128,.28)"
STYLE = (
    ".fewlink{font-size:13px;line-height:1.5;max-width:64rem;overflow-x:auto}"
    ".fewlink p{margin:.35em 0}.fewlink ul{margin:.35em 0;padding-left:1.3em}"
    ".fewlink table{border-collapse:collapse;border:0;margin:.4em 0;font-size:inherit}"
    ".fewlink td{font-variant-numeric:tabular-nums}"
    ".fewlink th,.fewlink td{text-align:left!important;vertical-align:top!important;background:none!important;"
    f"border:0;border-bottom:1px solid {RULE};padding:.25em 1em .25em 0;white-space:normal;overflow-wrap:break-word}}"
    ".fewlink tr{background:none!important}.fewlink thead th{opacity:.75;font-weight:600;white-space:nowrap}"
    ".fewlink tbody th{font-weight:600}"
    ".fewlink .fl-number{text-align:right!important;white-space:nowrap}"
    ".fewlink .fl-valued{white-space:nowrap}"
    ".fewlink .fl-soft{opacity:.7}.fewlink .fl-id{opacity:.7;font-size:.88em;white-space:nowrap}"
    f".fewlink .fl-set{{box-shadow:inset 3px 0 {ACCENT};padding-left:.7em}}"
    ".fewlink .fl-why td{border-top:0}.fewlink summary{cursor:pointer}"
    ".fewlink .fl-bar{display:inline-block;position:relative;width:7em;height:.62em;margin-right:.6em;"
    "background:rgba(128,128,128,.22);border-radius:2px}"
    f".fewlink .fl-bar i{{position:absolute;top:0;bottom:0;border-radius:2px;background:{ACCENT}}}"
    f".fewlink .fl-bar .fl-against{{background:{AGAINST}}}"
    ".fewlink svg{display:block;max-width:100%;min-width:36rem;height:auto;margin:.5em 0}"
)


def lines_of(text: str, width: float, max_lines: int) -> list[str]:
    """Break a text into lines of about `width` pixels; what does not fit into `max_lines` is cut."""
    return textwrap.wrap(text, _letters(text, width), max_lines=max_lines, placeholder="…") or [""]


def _letters(text: str, width: float) -> int:
    """How many letters of a text fit into a width."""
    wide = any(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return max(1, int(width / (WIDE_LETTER if wide else LETTER)))


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out rows of cells as lines of plain text, with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [line.rstrip() for line in lines]


def escape(text: str) -> str:
    """Escape a text for HTML and XML; a space replaces each control character."""
    return html.escape("".join(c if c.isprintable() else " " for c in text))


class Hop(NamedTuple):
    """A step to the entity called `to`, along a relation or, if `inverse`, against it."""

    relation: str
    inverse: bool
    to: str
    dashed: bool = False  # a reference, not an edge of the graph


class DrawnPath(NamedTuple):
    """A path to the tail, from the head unless it has a `start`; a larger `weight` makes its lines thicker."""

    hops: Sequence[Hop]
    caption: str = ""
    weight: float = 0.0
    start: str | None = None


def path_graph(head: str, tail: str, paths: Sequence[DrawnPath]) -> str:
    """Draw paths from left to right, one below the other, between one box for the head and one for the tail."""
    later = [path.start is not None for path in paths]  # another start is drawn beside the head
    steps = max([2, *(len(path.hops) + beside for path, beside in zip(paths, later, strict=True))])
    names = [name for path in paths for name in _inner_names(path)]
    tall = 10 + LINE * max([2, *(len(lines_of(name, BOX - 10, MAX_LINES)) for name in names)])
    over = LINE * max(len(_edge_lines(hop)) for path in paths for hop in path.hops)
    pitch = max(tall, over + tall / 2 + 6) + (LINE + 8 if any(path.caption for path in paths) else 8)
    width = (steps + 1) * BOX + steps * GAP
    first = max(over + 8, tall / 2 + 2)
    heaviest = max([*(path.weight for path in paths), 1e-9])
    parts = []
    for row, (path, beside) in enumerate(zip(paths, later, strict=True)):
        y = first + row * pitch
        columns = len(path.hops) + beside
        middles = [BOX / 2 + (i + beside) / columns * (width - BOX) for i in range(len(path.hops) + 1)]
        for hop, start, end in zip(path.hops, middles, middles[1:], strict=False):
            parts.append(_edge(start + BOX / 2 + 2, end - BOX / 2 - 2, y, hop, 1.2 + max(path.weight, 0) / heaviest))
        inner = _inner_names(path)
        parts += [_node(x, y, tall, name) for x, name in zip(middles[not beside :], inner, strict=False)]
        if path.caption:
            (caption,) = lines_of(path.caption, (width - 2 * BOX - 16) / SMALL, 1)
            parts.append(_centred(width / 2, y + tall / 2 + LINE - 1, caption, 'font-size="11" opacity=".75"'))
    top = first - tall / 2
    bottom = first + (len(paths) - 1) * pitch + tall / 2
    for x, name in ((BOX / 2, head), (width - BOX / 2, tail)):
        parts.append(_node(x, (top + bottom) / 2, bottom - top, name, end=True))
    high = bottom + (LINE + 4 if any(path.caption for path in paths) else 4)
    texts = "; ".join(_path_text(head, path) for path in paths)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{high:.0f}" '
        f'viewBox="0 0 {width} {high:.0f}" font-family="system-ui, sans-serif" font-size="12" fill="currentColor" '
        f'aria-label="{escape(f"Paths from {head} to {tail}: {texts}")}">{"".join(parts)}</svg>'
    )


def _inner_names(path: DrawnPath) -> list[str]:
    """The names of the nodes between the boxes of head and tail."""
    return [*([] if path.start is None else [path.start]), *(hop.to for hop in path.hops[:-1])]


def _edge_lines(hop: Hop) -> list[str]:
    return lines_of(hop.relation, (GAP - 16) / SMALL, MAX_LINES)


def _path_text(head: str, path: DrawnPath) -> str:
    """A path as one line of text, for screen readers."""
    arrows = (f"←{hop.relation}— {hop.to}" if hop.inverse else f"—{hop.relation}→ {hop.to}" for hop in path.hops)
    text = " ".join([head if path.start is None else path.start, *arrows])
    return f"{text} ({path.caption})" if path.caption else text


def _edge(left: float, right: float, y: float, hop: Hop, thick: float) -> str:
    """Draw an arrow with its relation above the line."""
    tip, back = (left, left + 8) if hop.inverse else (right, right - 8)
    line = (back, right) if hop.inverse else (left, back)
    lines = lines_of(hop.relation, (right - left - 12) / SMALL, MAX_LINES)
    dashes = ' stroke-dasharray="4 3"' if hop.dashed else ""
    words = (
        _centred((left + right) / 2, y - 7 - LINE * (len(lines) - 1 - i), text, 'font-size="11"')
        for i, text in enumerate(lines)
    )
    return (
        f'<g><title>{escape(hop.relation)}</title><path d="M{line[0]:.1f} {y:.1f}H{line[1]:.1f}" stroke="currentColor" '
        f'stroke-opacity=".65" stroke-width="{thick:.2f}"{dashes}/><path fill-opacity=".8" '
        f'd="M{tip:.1f} {y:.1f}L{back:.1f} {y - 4:.1f}V{y + 4:.1f}z"/>{"".join(words)}</g>'
    )


def _node(x: float, y: float, tall: float, name: str, end: bool = False) -> str:
    room, most = ((BOX - 10) / BOLD, max(2, int(tall // LINE) - 1)) if end else (BOX - 10, MAX_LINES)
    lines = lines_of(name, room, most)
    colours = (
        f'fill="{ACCENT}" fill-opacity=".16" stroke="{ACCENT}" stroke-width="1.5"'
        if end
        else 'fill-opacity=".05" stroke="currentColor" stroke-opacity=".4"'
    )
    place = f'x="{x - BOX / 2 + 1:.1f}" y="{y - tall / 2:.1f}" width="{BOX - 2}" height="{tall:.1f}"'
    weight = 'font-weight="600"' if end else ""
    words = (_centred(x, y + 4 + LINE * (i - (len(lines) - 1) / 2), text, weight) for i, text in enumerate(lines))
    return f'<g><title>{escape(name)}</title><rect {place} rx="4" {colours}/>{"".join(words)}</g>'


def _centred(x: float, y: float, text: str, look: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" {look}>{escape(text)}</text>'


class Cell(NamedTuple):
    """A cell of a table: its HTML, its CSS class (`kind`) and spans; a `heading` is a `th` for its rows."""

    content: str
    kind: str = ""
    rows: int = 1
    columns: int = 1
    heading: bool = False


def block(*parts: str) -> str:
    """A self-contained block of HTML with its style."""
    return f'<div class="fewlink"><style>{STYLE}</style>{"".join(parts)}</div>'


def paragraphs(texts: Iterable[str], kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return "".join(f"<p{mark}>{escape(text)}</p>" for text in texts)


def bullets(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>" if texts else ""


def named(name: str, id: str) -> str:
    """The name of an entity and, if different, its id."""
    return escape(name) if name == id else f'{escape(name)} <span class="fl-id">{escape(id)}</span>'


def bar(value: float, text: str, low: float = 0.0, high: float = 1.0) -> str:
    """A bar from zero to a value on a scale from low ≤ 0 to high, followed by the value as text."""
    span = high - low or 1.0
    left, right = ((min(max(edge, low), high) - low) / span for edge in (min(value, 0.0), max(value, 0.0)))
    kind = ' class="fl-against"' if value < 0 else ""
    style = f"left:{left:.1%};width:{right - left:.1%}"
    drawn = f'<span class="fl-bar" aria-hidden="true"><i{kind} style="{style}"></i></span>'
    return f'<span class="fl-valued">{drawn}{escape(text)}</span>'


def percent(probability: float) -> str:
    """A probability as a whole percentage, but never 0 % or 100 %."""
    if probability < 0.01:
        return "< 1 %"
    if probability > 0.99:
        return "> 99 %"
    return words.percent(probability)


def table(columns: Mapping[str, str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table; `columns` maps each title to the CSS class of its heading."""
    titles = "".join(f'<th scope="col"{_marked(kind)}>{escape(title)}</th>' for title, kind in columns.items())
    head = f"<thead><tr>{titles}</tr></thead>" if any(columns) else ""
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def facts(values: Mapping[str, str]) -> str:
    """A table of names and values, one pair per row."""
    return table({}, ([Cell(escape(name), heading=True), Cell(escape(text))] for name, text in values.items()))


def _cell(cell: Cell) -> str:
    spans = "".join(f' {name}="{n}"' for name, n in (("rowspan", cell.rows), ("colspan", cell.columns)) if n > 1)
    if cell.heading:
        return f'<th scope="row{"group" if cell.rows > 1 else ""}"{_marked(cell.kind)}{spans}>{cell.content}</th>'
    return f"<td{_marked(cell.kind)}{spans}>{cell.content}</td>"


def _marked(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
