"""The files of the page: nothing from other servers, no text as markup, labelled fields, sufficient contrasts."""

from __future__ import annotations

import hashlib
import re
from html.parser import HTMLParser

import pytest
from tests.server.servers import asking, small

from fewlink.server.app import STATIC

FILES = {file.name: file.read_bytes() for file in STATIC.iterdir()}
SCRIPTS = {name: content.decode() for name, content in FILES.items() if name.endswith(".js")}
STYLES = {name: content.decode() for name, content in FILES.items() if name.endswith(".css")}
CYTOSCAPE = "cytoscape-3.34.4.min.js"
CYTOSCAPE_SHA256 = "0d7e373a706f0f01d6fb7a6ccf04988c01307cee1c2f9bcc7b068e9f6b431e3f"  # dist/cytoscape.esm.min.mjs
both = pytest.mark.parametrize("name", ["page.html", "docs.html"])


class Document(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(FILES[name].decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.tags if "id" in attributes]


def modules(name: str) -> dict[str, str]:
    """The modules that a module imports, with itself."""
    found = {}
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = SCRIPTS[name]
            waiting += re.findall(r'(?:from |import |import\()"\./([\w.-]+\.js)"', SCRIPTS[name])
    return found


def loaded(name: str) -> dict[str, str]:
    (script,) = [attributes["src"] for tag, attributes in Document(name).tags if tag == "script"]
    return modules((script or "").removeprefix("static/"))


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_may_load_only_files_of_this_server(path: str) -> None:
    with asking(small(), token="t") as client:
        answer = client.get(path)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_static_files_need_no_token_and_are_sent_again_only_if_they_changed() -> None:
    with asking(small(), token="t") as client:
        answer = client.get("/static/main.js")
        again = client.get("/static/main.js", headers={"If-None-Match": answer.headers["etag"]})
        assert client.get("/static/page.css").headers["content-type"] == "text/css; charset=utf-8"
        for name in ("nothing.js", "../app.py", "..%2Fapp.py"):
            assert client.get(f"/static/{name}").status_code in (401, 404)
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")


@both
def test_nothing_is_loaded_from_other_servers(name: str) -> None:
    for tag, attributes in Document(name).tags:
        assert "style" not in attributes and not any(name.startswith("on") for name in attributes), tag
        address = attributes.get("href") or attributes.get("src") or "#"
        if address.startswith("static/"):
            assert address.removeprefix("static/") in FILES
        else:
            assert address.startswith(("#", "data:")) or (
                tag == "a" and address in ("docs", "openapi.json", "./", "../../")
            )
    own = [text for name, text in loaded(name).items() if name != CYTOSCAPE]  # whose comments name licences
    for text in (*STYLES.values(), *own):
        assert set(re.findall(r"\w+://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}
        assert "@import" not in text and ("url(" not in text or "url(#" in text)


def test_no_text_becomes_markup() -> None:
    words = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function")
    assert not [(name, word) for name, text in SCRIPTS.items() for word in words if word in text]


def test_every_file_is_used() -> None:
    assert {*loaded("page.html"), *loaded("docs.html")} == set(SCRIPTS)


def test_cytoscape_is_the_published_file_with_its_licence() -> None:
    assert hashlib.sha256(FILES[CYTOSCAPE]).hexdigest() == CYTOSCAPE_SHA256
    licence = FILES["LICENSE-cytoscape.txt"].decode()
    assert "The Cytoscape Consortium" in licence and "without restriction" in licence


@both
def test_fields_are_labelled_and_ids_are_unique(name: str) -> None:
    page = Document(name)
    ids = page.ids()
    assert len(ids) == len(set(ids))
    labelled = {attributes["for"] for tag, attributes in page.tags if tag == "label" and "for" in attributes}
    for tag, attributes in page.tags:
        if tag in ("input", "select") and attributes.get("type") not in ("radio", "checkbox"):
            assert "aria-label" in attributes or attributes.get("id") in labelled, attributes
        for reference in ("aria-labelledby", "aria-describedby"):
            assert set((attributes.get(reference) or ids[0]).split()) <= set(ids)


def test_scripts_know_the_ids_of_the_page() -> None:
    used = {name for text in loaded("page.html").values() for name in re.findall(r"\$\(\"([\w-]+)\"\)", text)}
    assert used - {"card-why"} <= set(Document("page.html").ids())


def luminance(colour: str) -> float:
    digits = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    channels = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contrasts_are_sufficient_in_light_and_dark() -> None:
    light, dark = re.findall(r":root \{(.*?)\}", STYLES["page.css"], re.DOTALL)
    for theme in (light, dark):
        colours = dict(re.findall(r"--([\w-]+): #([0-9a-f]{3,6})", theme))

        def contrast(one: str, other: str, colours: dict[str, str] = colours) -> float:
            high, low = sorted((luminance(colours[one]), luminance(colours[other])), reverse=True)
            return (high + 0.05) / (low + 0.05)

        for ground in ("paper", "raised", "wash"):
            for text in ("ink", "soft", "accent"):
                assert contrast(text, ground) >= 4.5, (text, ground)
        for text, ground in (("bad", "raised"), ("bad", "paper"), ("on-accent", "accent"), ("raised", "good")):
            assert contrast(text, ground) >= 4.5, (text, ground)
        for ground in ("paper", "raised"):
            assert contrast("edge", ground) >= 3, ground


def test_the_colours_of_kinds_stand_out_in_light_and_dark() -> None:
    grounds = re.findall(r"--paper: #([0-9a-f]{3,6})", STYLES["page.css"])
    themes = re.findall(r":root \{(.*?)\}", STYLES["neighbourhood.css"], re.DOTALL)
    for ground, theme in zip(grounds, themes, strict=True):
        kinds = re.findall(r"--kind-\d: #([0-9a-f]{6})", theme)
        assert len(kinds) == len(set(kinds)) == 9
        for colour in kinds:
            high, low = sorted((luminance(colour), luminance(ground)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 3, colour
