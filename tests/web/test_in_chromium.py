"""The page in a browser, from the first typed letter to the downloaded file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.web.browser import CHROMIUM, DRIVER, Browser
from tests.web.servers import on_a_port, trail

from fewlink.web import ServerSettings
from fewlink.web.server import make_app

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        browser.resize(1280, 900, [("prefers-reduced-motion", "reduce")])
        yield browser


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with on_a_port(make_app(trail())) as (found, _):
        yield found


@pytest.fixture()
def window(browser: Browser, address: str) -> Iterator[Browser]:
    """The page as a first-time visitor sees it."""
    browser.open(f"{address}/health")
    browser.run("localStorage.clear(); sessionStorage.clear()")
    browser.open(f"{address}/")
    browser.until(lambda: "123 entities" in browser.text("#about"))
    yield browser
    assert [line for line in browser.console_errors() if "404" not in line and "401" not in line] == []


def pick(window: Browser, typed: str, name: str) -> None:
    """Type into the focused field and pick the first suggestion by key."""
    window.type(typed)
    window.until(lambda: window.texts(".offers:not([hidden]) li")[:1] == [name])
    window.press("Down", "Enter")


def names(window: Browser) -> list[str]:
    return window.texts(".row .name b")


def rank(window: Browser) -> Browser:
    """References and a head, by keys alone."""
    window.focus("#references input")
    for typed, name in (("viru", "virus"), ("Cell", "cell"), ("fung", "fungus"), ("plan", "plant")):
        pick(window, typed, name)
    window.focus("#head")
    pick(window, "alg", "alga")
    window.press("Control+Enter")
    window.until(lambda: names(window))
    return window


def value(window: Browser, selector: str) -> Any:
    return window.run("return [...document.querySelectorAll(arguments[0])].map(e => e.value)", selector)


def test_references_are_completed_ranked_explained_decided_and_exported(window: Browser) -> None:
    rank(window)
    assert value(window, "#references input")[:4] == ["virus", "cell", "fungus", "plant"]
    assert window.texts("#heads li") == ["alga×"]
    expected = trail().predict([("virus", "cell"), ("fungus", "plant")], ["alga"])
    assert names(window) == [row.tail_name for row in expected]
    assert window.text("#status").startswith("10 tails, by score. Best: alga → ")

    window.press("e")
    told = window.until(lambda: window.texts(".said li"))
    assert told == trail().explain([("virus", "cell"), ("fungus", "plant")], "alga", expected[0].tail).sentences()
    assert window.run("return document.querySelectorAll('.reasons svg .node').length") >= 2
    assert len(window.texts(".shares dt")) >= 3
    window.press("e")
    assert not window.texts(".reasons")

    window.press("a", "x", "j", "a", "u")
    marks = window.run("return [...document.querySelectorAll('.row')].slice(0, 4).map(r => r.className)")
    assert marks == ["row yes", "row no", "row", "row"]
    assert window.text("#status").startswith("Undone: alga → ")
    assert window.texts(".triples li span") == [f"alga → {expected[0].tail_name}"]

    window.click("#export-tsv")
    assert window.run("return document.activeElement.id") == "relation"  # a triple needs a relation
    window.type("grows in <b>")
    window.click("#export-tsv")
    file = downloaded(window, "tsv")
    assert file.read_text() == f"alga\tgrows in <b>\t{expected[0].tail}\n"
    window.click("#export-nt")
    iris = [f"<http://example.org/{name}>" for name in ("alga", "grows%20in%20%3Cb%3E", expected[0].tail)]
    assert downloaded(window, "nt").read_text() == " ".join(iris) + " .\n"


def downloaded(window: Browser, ending: str) -> Path:
    found: Path = window.until(lambda: next(window.downloads.glob(f"*.{ending}"), None))
    return found


def test_the_query_and_decisions_survive_a_reload(window: Browser, address: str) -> None:
    rank(window)
    window.press("a")
    window.open(f"{address}/")
    window.until(lambda: window.texts(".triples li"))
    assert value(window, "#references input")[:4] == ["virus", "cell", "fungus", "plant"]
    window.click("#rank")
    window.until(lambda: names(window))
    assert window.run("return document.querySelector('.row').className") == "row yes"


def test_pasted_columns_become_rows_and_pasted_lines_heads(window: Browser) -> None:
    paste = """const data = new DataTransfer(); data.setData("text", arguments[1]);
        document.querySelector(arguments[0]).dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true}))"""  # noqa: E501
    window.run(paste, "#references input", "virus\tcell\r\nfungus\tplant\r\n\r\nalga\tcell\r\n")
    assert value(window, "#references input") == ["virus", "cell", "fungus", "plant", "alga", "cell", "", ""]
    window.run(paste, "#head", "bacterium\nfungus\n")
    assert window.texts("#heads li") == ["bacterium×", "fungus×"]
    window.click("#rank")
    assert len(window.until(lambda: names(window))) == 20
    assert window.texts(".group h3") == ["bacterium", "fungus"]


def test_an_unknown_name_is_marked_and_corrected_with_one_key(window: Browser) -> None:
    window.focus("#references input")
    window.type("virus")
    window.press("Tab")
    window.type("cel")
    window.press("Escape", "Tab")
    window.focus("#head")
    window.type("algaa")
    window.press("Control+Enter")
    window.until(lambda: "cel" in window.text("#problem"))
    assert window.run("return document.activeElement.getAttribute('aria-invalid')") == "true"
    window.click("#problem button")
    window.until(lambda: "algaa" in window.text("#problem"))
    window.click("#problem button")
    assert window.until(lambda: names(window)) and window.texts("#heads li") == ["alga×"]
    assert window.run("return document.querySelector('#problem').hidden")


def test_the_example_all_heads_and_known_pairs(window: Browser) -> None:
    window.click("#example")
    window.until(lambda: names(window))
    assert value(window, "#relation") == ["associated_with"] and len(window.texts(".group")) == 4
    window.run("document.querySelector('#more').open = true")
    window.click("#with-known")
    window.run("document.querySelector('[name=mode][value=type]').click()")
    window.click("#rank")
    window.until(lambda: window.texts(".group h3") == ["Best pairs"])
    assert len(names(window)) == 10 and all("→" in text for text in window.texts(".row .name"))


def test_it_fits_a_phone_and_shows_its_keys(window: Browser) -> None:
    rank(window)
    window.resize(390, 844)
    window.press("e")
    window.until(lambda: window.texts(".said li"))
    assert window.run("return document.documentElement.scrollWidth") <= 390
    window.press("?")
    assert window.run("return document.querySelector('#help').open")
    window.press("Escape")
    window.resize(1280, 900)


def test_the_page_asks_for_the_token(browser: Browser) -> None:
    with on_a_port(make_app(trail(), ServerSettings(token="s3cret"))) as (address, _):
        browser.open(f"{address}/")
        for typed, then in (("wrong", "Wrong"), ("s3cret", "")):
            browser.until(lambda: browser.run("return document.querySelector('#locked').open"))
            browser.focus("#token")
            browser.type(typed)
            browser.press("Enter")
            if then:
                browser.until(lambda: "Wrong" in browser.text("#locked-title"))
        browser.until(lambda: "123 entities" in browser.text("#about"))
