"""The page as a document: nothing from other servers, only its own style and script, and no text as markup."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from importlib import resources

import pytest
from tests.server.servers import asking, small

from fewlink.server.pages import SCRIPTS, page


class Document(HTMLParser):
    """Tags with their attributes, and the text of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, str] = {}
        self.now = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.now = tag

    def handle_endtag(self, tag: str) -> None:
        self.now = ""

    def handle_data(self, data: str) -> None:
        if self.now in ("style", "script"):
            self.inside[self.now] = self.inside.get(self.now, "") + data


def document(name: str = "page") -> Document:
    return Document(page(name).html.decode())


both = pytest.mark.parametrize("name", ["page", "docs"])


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_policy_allows_only_the_style_and_script_of_the_page(path: str) -> None:
    with asking(small(), token="t") as client:
        answer = client.get(path)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    found = Document(answer.text)
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        digest = base64.b64encode(hashlib.sha256(found.inside[tag].encode()).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'"
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]


@both
def test_nothing_is_loaded_from_other_servers(name: str) -> None:
    found = document(name)
    for tag, attributes in found.tags:
        assert "src" not in attributes and "style" not in attributes, tag
        assert not any(name.startswith("on") for name in attributes), tag
        href = attributes.get("href") or "#"
        assert href.startswith(("#", "data:")) or (tag == "a" and href in ("docs", "openapi.json", "./")), tag
    text = found.inside["style"] + found.inside["script"]
    assert set(re.findall(r"\w+://[\w./]+", text)) <= {"http://www.w3.org/2000/svg", "http://example.org/"}
    assert "url(" not in found.inside["style"] and "@import" not in found.inside["style"]


@both
def test_no_text_becomes_markup(name: str) -> None:
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "</script"):
        assert word not in document(name).inside["script"], word


def test_fields_are_labelled_and_ids_are_unique() -> None:
    found = document()
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    labelled = {attributes["for"] for tag, attributes in found.tags if tag == "label" and "for" in attributes}
    for tag, attributes in found.tags:
        if tag in ("input", "select") and attributes.get("type") not in ("radio", "checkbox"):
            assert "aria-label" in attributes or attributes.get("id") in labelled, attributes
        for name in ("aria-labelledby", "aria-describedby"):
            assert set((attributes.get(name) or ids[0]).split()) <= set(ids)
    assert set(re.findall(r"\$\(\"([\w-]+)\"\)", found.inside["script"])) <= set(ids)


def test_every_script_is_part_of_the_page() -> None:
    files = {file.name for file in (resources.files("fewlink.server") / "static").iterdir()}
    scripts = {f"{script}.js" for of in SCRIPTS.values() for script in of}
    assert files == {"page.html", "docs.html", "page.css", *scripts}


def luminance(colour: str) -> float:
    digits = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contrasts_are_sufficient_in_light_and_dark() -> None:
    light, dark = re.findall(r":root\{(.*?)\}", document().inside["style"], re.DOTALL)
    for theme in (light, dark):
        colours = dict(re.findall(r"--([\w-]+):#([0-9a-f]{3,6})", theme))

        def contrast(one: str, other: str, colours: dict[str, str] = colours) -> float:
            high, low = sorted((luminance(colours[one]), luminance(colours[other])), reverse=True)
            return (high + 0.05) / (low + 0.05)

        for ground in ("paper", "raised", "wash"):
            for text in ("ink", "soft", "accent"):
                assert contrast(text, ground) >= 4.5, (text, ground)
        for text, ground in (("bad", "raised"), ("bad", "paper"), ("on-accent", "accent"), ("raised", "good")):
            assert contrast(text, ground) >= 4.5, (text, ground)
        for edge in ("paper", "raised"):
            assert contrast("edge", edge) >= 3, edge
