"""Reads HTML as strictly as a browser is lenient: balanced, without scripts, and with nothing that is fetched."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

ALLOWED = {
    *("div", "style", "p", "ul", "li", "span", "i", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td", "svg", "g", "title", "rect", "path", "text"),
}


class Markup(HTMLParser):
    """The tags and texts of HTML, which must be balanced and passive."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"not closed: {self.open}"
        assert all(c.isprintable() for text in self.texts for c in text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        for name, value in attrs:
            assert not name.startswith("on") and name not in ("href", "src", "id", "xlink:href"), name
            assert "url(" not in (value or "")
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            assert "url(" not in data and "@import" not in data
            assert all(rule.startswith(".fewlink") for rule in data.split("}") if rule)
        else:
            self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def read_svg(svg: str) -> ElementTree.Element:
    """A drawing as XML; its texts stay inside it."""
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(text.attrib["x"]) <= width and 8 <= float(text.attrib["y"]) <= height
    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, wide, tall = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + wide <= width and y + tall <= height
    return root
