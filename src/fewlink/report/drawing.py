"""Texts, path graphs and tables as SVG and HTML, in the colours of the page that shows them."""

from __future__ import annotations

import html


def text_width(text: str) -> float:
    """About the width of a text in the widest of the usual fonts."""
    return sum(4.2 if c in "fijlrt.,:;'|-()[] " else 11 if c in "mwMW@" else 7.4 for c in text)


def cut(text: str, room: float) -> str:
    """The text, or as much of it as fits."""
    if text_width(text) <= room:
        return text
    while text and text_width(text) > room - 11:
        text = text[:-1]
    return text + "…"


def svg_text(x: float, y: float, text: str, kind: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}>{escape(text)}</text>'


def escape(text: str) -> str:
    """Text for XML, which has no control characters."""
    return html.escape("".join(c if c.isprintable() else " " for c in text))
