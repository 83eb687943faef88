"""The page in a browser, from the first typed letter to the downloaded file."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.browser import Browser
from tests.server.servers import on_a_port, trail

from fewlink.curation.exports import COLUMNS, FORMATS
from fewlink.server import ServerSettings
from fewlink.server.app import make_app

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("projects") / "umls.decisions"
    with on_a_port(make_app(trail(), project=file)) as (found, _):
        yield found


@pytest.fixture()
def window(browser: Browser, address: str) -> Iterator[Browser]:
    """The page as a first-time visitor sees it."""
    browser.open(f"{address}/health")
    browser.run("localStorage.clear(); sessionStorage.clear()")
    browser.open(f"{address}/#ask")
    browser.until(lambda: "123 entities" in browser.text("#about"))
    yield browser
    assert [line for line in browser.console_errors() if "404" not in line] == []


def pick(window: Browser, typed: str, name: str) -> None:
    """Type into the focused field and pick the first suggestion by key."""
    window.type(typed)
    window.until(lambda: window.texts(".offers:not([hidden]) li")[:1] == [name])
    window.press("Down", "Enter")


def names(window: Browser) -> list[str]:
    return window.texts(".row .name b")


def rank(window: Browser) -> Browser:
    """Enter references and a head, and rank, by keys alone."""
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
    assert f"alga → {expected[0].tail_name}" in window.text("#status")

    window.press("e")
    window.until(lambda: window.texts(".shares dt"))
    window.until(lambda: window.run("return document.querySelector('.reasons .lanes canvas') !== null"))
    assert window.texts(".shares dt")
    window.press("e")
    assert not window.texts(".reasons")

    window.press("a")  # a decision needs a project, which takes the references of the form
    window.until(lambda: window.run("return document.querySelector('#new-project').open"))
    assert "virus → cell; fungus → plant" in window.text("#new-project-references")
    window.type("grows in <b>")
    window.press("Enter")
    window.until(lambda: window.texts("#counts dd")[:3] == ["2", "1", "0"])
    assert window.texts("#project-references li span") == ["virus → cell", "fungus → plant"]
    window.focus(".row")
    window.press("j", "r", "a", "u")
    window.until(lambda: "Undone" in window.text("#status"))
    assert window.texts("#counts dd")[:3] == ["2", "1", "1"]
    seen = window.run("return [...document.querySelectorAll('.row')].slice(0, 4).map(r => [r.className, r.hidden])")
    assert seen == [["row yes", False], ["row no", True], ["row", False], ["row", False]]  # rejected ones vanish
    assert window.texts("#accepted-list li span") == [f"alga → {expected[0].tail_name}"]

    save_as(window, "csv")
    offered = window.run("return [...document.querySelectorAll('#export-format option')].map(o => o.value)")
    assert offered == list(FORMATS)
    header, *lines = csv.reader(downloaded(window, "csv").read_text("utf-8-sig").splitlines())
    assert tuple(header) == COLUMNS
    row = ["alga", "alga", "grows in <b>", expected[0].tail, expected[0].tail_name, "accepted"]
    assert row in [line[:6] for line in lines]
    window.until(lambda: not window.run("return document.querySelector('#export').open"))
    save_as(window, "nt")
    assert "grows%20in%20%3Cb%3E" in downloaded(window, "nt").read_text()
    save_as(window, "quickstatements")
    window.until(lambda: "items of Wikidata" in window.text("#export-format-error"))
    assert any("422" in line for line in window.console_errors())
    window.press("Escape")
    window.click("#rank-again")
    window.until(lambda: window.run("return document.querySelector('#stale').hidden"))
    ranked = window.until(lambda: names(window))
    assert not {expected[0].tail_name, expected[1].tail_name} & set(ranked)  # a reference, and a rejected pair


def test_a_relation_of_the_graph_needs_no_references(window: Browser) -> None:
    window.focus("#relation")
    window.type("affects")
    window.focus("#head")
    pick(window, "alg", "alga")
    assert "All its pairs are references" in window.text("#relation-hint")
    window.press("Control+Enter")
    window.until(lambda: names(window))
    assert names(window) == [row.tail_name for row in trail().predict(heads="alga", relation="affects")]
    window.press("e")
    window.until(lambda: window.texts(".shares dt"))


def save_as(window: Browser, format: str) -> None:
    """Export the open project in a format."""
    window.click("#export-open")
    window.until(lambda: window.run("return document.querySelector('#export').open"))
    window.run(
        "const menu = document.querySelector('#export-format');"
        "menu.value = arguments[0]; menu.dispatchEvent(new Event('change'))",
        format,
    )
    window.click("#export-form .primary")


def downloaded(window: Browser, ending: str) -> Path:
    found: Path = window.until(lambda: next(window.downloads.glob(f"*.{ending}"), None))
    return found


def test_the_query_and_ranking_survive_a_reload(window: Browser, address: str) -> None:
    rank(window)
    ranked = names(window)
    window.reload()
    assert window.until(lambda: names(window)) == ranked
    assert value(window, "#references input")[:4] == ["virus", "cell", "fungus", "plant"]
    window.focus(".row")
    window.press("e")
    assert window.until(lambda: window.texts(".shares dt"))


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
    beside = "return document.querySelector('#problem').parentElement.querySelector('h2').id"
    assert window.run(beside) == "references-title"
    window.click("#problem button")
    window.until(lambda: "algaa" in window.text("#problem"))
    assert window.run(beside) == "heads-title"
    window.click("#problem button")
    assert window.until(lambda: names(window)) and window.texts("#heads li") == ["alga×"]
    assert window.run("return document.querySelector('#problem').hidden")


MANY = "document.querySelector('[name=mode][value=many]').click();"


def test_heads_are_found_for_a_tail(window: Browser) -> None:
    window.focus("#references input")
    for typed, name in (("viru", "virus"), ("Cell", "cell"), ("fung", "fungus"), ("plan", "plant")):
        pick(window, typed, name)
    window.run("document.querySelector('[name=mode][value=tails]').click()")
    assert window.text("#rank") == "Rank heads"
    window.focus("#head")
    pick(window, "plan", "plant")
    window.press("Control+Enter")
    window.until(lambda: names(window))
    expected = trail().heads("plant", [("virus", "cell"), ("fungus", "plant")])
    assert names(window) == [row.head_name for row in expected]
    assert window.texts(".group h3") == ["plant"] and "10 heads" in window.text("#status")
    window.press("e")
    window.until(lambda: window.texts(".shares dt"))
    assert window.console_errors() == []
    window.click("#copy-link")
    window.until(lambda: "tails=" in window.run("return location.href"))
    window.reload()
    window.until(lambda: names(window) == [row.head_name for row in expected])
    window.focus("#relation")
    window.type("grows")
    assert window.text("#stale-text") == "The question has changed since this ranking."


def test_a_ranking_of_many_heads_can_be_stopped_and_continued_after_a_reload(window: Browser, address: str) -> None:
    window.click("#example")
    window.until(lambda: names(window))
    slow = """const real = window.fetch; window.sent = [];
        window.fetch = async (path, options) => {
            const never = (_, stop) => options.signal.addEventListener("abort", () => stop(new DOMException("", "AbortError")));
            if (path === "predict") window.sent.push(JSON.parse(options.body));
            return window.sent.length > 2 ? new Promise(never) : real(path, options); }"""  # noqa: E501
    window.run(slow)
    window.run(MANY)
    window.click("#rank")
    window.until(lambda: window.run("return window.sent.length") == 3)
    assert [part["first"] for part in window.run("return window.sent")] == [0, 16, 48]
    assert window.text("#progress-text").startswith("48 of ") and " left" in window.text("#progress-text")
    window.click("#stop")
    window.until(lambda: window.text("#stop") == "Continue")
    ranked = window.texts(".row .name")
    window.reload()
    window.until(lambda: names(window))
    assert window.texts(".row .name") == ranked and window.text("#progress-text").startswith("48 of ")
    window.click("#stop")
    window.until(lambda: window.run("return document.querySelector('#progress').hidden"))
    assert "of 48 heads" not in window.text("#status")


def test_the_interface_is_described_and_can_be_tried(browser: Browser, address: str) -> None:
    browser.open(f"{address}/docs")
    browser.until(lambda: browser.texts(".endpoint h2"))
    assert browser.texts(".endpoint h2")[:3] == ["POST /predict", "POST /explain", "GET /projects"]
    assert "GET /projects/{number}/export" in browser.texts(".endpoint h2")
    for path in ("predict", "explain"):
        browser.until(lambda path=path: value(browser, f"#{path} textarea") != [""])
        browser.click(f"#{path} .trial .primary")
    assert '"predictions": [' in browser.until(lambda: browser.text("#predict .answer").strip("…"))
    assert '"lines": [' in browser.until(lambda: browser.text("#explain .answer").strip("…"))
    browser.resize(390, 844)
    assert browser.run("return document.documentElement.scrollWidth") <= 390
    browser.resize(1280, 900)
    assert browser.console_errors() == []


def test_the_page_requires_the_token_of_the_server(browser: Browser) -> None:
    with on_a_port(make_app(trail(), ServerSettings(token="s3cret"))) as (address, _):
        browser.open(f"{address}/")
        for typed in ("wrong", "s3cret"):
            browser.until(lambda: browser.run("return document.querySelector('#locked').open"))
            title = browser.text("#locked-title")
            browser.focus("#token")
            browser.type(typed)
            browser.press("Enter")
            browser.until(
                lambda title=title: browser.text("#locked-title") != title or browser.text("#version") != "fewlink"
            )
        browser.until(lambda: "123 entities" in browser.text("#about"))
