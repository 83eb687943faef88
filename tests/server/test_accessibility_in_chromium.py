"""The states of the page, checked with axe-core, light on a desktop and dark on a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.linker.linkers import umls
from tests.server.browser import Browser
from tests.server.servers import PAIRS, on_a_port

from fewlink.curation.store import ProjectFile
from fewlink.linker import Linker
from fewlink.server import ServerSettings
from fewlink.server.app import make_app

pytest.importorskip("axe_playwright_python", reason="carries axe.min.js")
pytestmark = pytest.mark.slow
WINDOWS = {"light": (1280, 900), "dark": (390, 844)}  # a desktop and a phone
MAIN_STATES = ("the start page", "an entity", "a list with reasons", "a project with conflicts", "one at a time")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("projects") / "umls.decisions"
    with ProjectFile(path) as file:
        file.add_project("interacts", [(head, tail) for head, tail in PAIRS], description="Which acts on which?")
        file.decide(1, [("accepted", "alga", "cell"), ("rejected", "animal", "cell")], "ann")
        file.decide(1, [("rejected", "alga", "cell"), ("accepted", "animal", "plant")], "bob")
        pairs = [("gene_or_genome", "hormone"), ("cell", "immunologic_factor"), ("mental_process", "enzyme")]
        file.add_project("makes", [*pairs, ("moon", "cheese")])
        heads = ("tissue", "organ", "cell_function")
        file.decide(2, [("rejected", head, "organism", 0.3) for head in heads], "ann")
        file.decide(2, [("accepted", "animal", "hormone", 0.6), ("accepted", "moon", "light")], "bob")
    app = make_app(Linker.shipped(umls()), ServerSettings(), path)
    with on_a_port(app) as (found, _):
        yield found


def axe() -> str:
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")


def findings(browser: Browser) -> list[Any]:
    """Violations of any impact: the rule, and the elements that violate it."""
    if browser.run("return typeof axe === 'undefined'"):
        browser.run(axe())
    script = "return axe.run(document, {resultTypes: ['violations']}).then(result => result.violations)"
    return [
        (rule["id"], rule["impact"], [node["target"] for node in rule["nodes"]][:5]) for rule in browser.run(script)
    ]


def visit(browser: Browser, address: str, **query: Any) -> None:
    browser.open(f"{address}/health")
    browser.run("localStorage.clear(); localStorage.setItem('fewlink:who', 'ann')")
    browser.open(f"{address}/" + (f"#ask&{urlencode(query)}" if query else ""))
    browser.until(lambda: "entities" in browser.text("#about"))


def states(browser: Browser, address: str, size: tuple[int, int], theme: str) -> Iterator[str]:
    """Bring the page into one state after another."""
    browser.resize(*size, [("prefers-color-scheme", theme), ("prefers-reduced-motion", "reduce")])
    visit(browser, address)
    browser.until(lambda: browser.texts("#relations-list li"))
    yield "the start page"
    browser.focus("#find")
    browser.type("alg")
    browser.until(lambda: browser.texts(".offers:not([hidden]) li"))
    browser.press("Down", "Enter")
    browser.until(lambda: browser.texts("#entity-edges li"))
    yield "an entity"
    browser.press("Escape")
    browser.click("#to-work")
    yield "empty"
    browser.click("#rank")
    browser.until(lambda: browser.text("#problem"))
    yield "an incomplete form"
    visit(browser, address, references=json.dumps(PAIRS), heads='["alga", "virus"]')
    browser.until(lambda: browser.texts(".row"))
    browser.press("e")
    browser.until(lambda: browser.texts(".shares dt"))
    yield "a list with reasons"
    browser.focus(".row")
    browser.press("a")
    browser.until(lambda: browser.run("return document.querySelector('#new-project').open"))
    browser.press("Enter")
    yield "a new project without a name"
    browser.press("Escape")
    visit(browser, address, project=1, heads='["alga", "bacterium"]')
    browser.until(lambda: browser.texts(".row"))
    browser.run("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    yield "a project with conflicts"
    for button, dialog in (
        ("#bulk-open", "bulk"),
        ("#history-open", "history"),
        (".row:not([hidden]) .entity", "entity"),
        ("#export-open", "export"),
    ):
        browser.click(button)
        browser.until(lambda dialog=dialog: browser.texts(f"#{dialog} li, #{dialog} option"))
        yield dialog
        browser.press("Escape")
    browser.press("?")
    yield "shortcuts"
    browser.press("Escape")
    browser.run("document.querySelector('#filter-text').value = 'no such name'")
    browser.run("document.querySelector('#filter-text').dispatchEvent(new Event('input', {bubbles: true}))")
    yield "no suggestion matches the filters"
    visit(browser, address, project=1, view="decide")
    browser.until(lambda: browser.texts("#card .shares dt"))
    yield "one at a time"
    visit(browser, address, references=json.dumps(PAIRS), tails='["plant"]')
    browser.until(lambda: browser.texts(".row"))
    yield "heads for a tail"
    visit(browser, address, references=json.dumps(PAIRS), many="open")
    browser.until(lambda: browser.text("#page-text"))
    yield "missing pairs"
    visit(browser, address, project=2, heads='["pathologic_function"]')
    browser.until(lambda: browser.text("#adjusted") and browser.text("#project-notes"))
    yield "adjusted probabilities, and pairs that are not in the graph"
    visit(browser, address, project=2, view="decide", heads='["pathologic_function"]')
    browser.until(lambda: browser.texts("#decide-notes li") and browser.texts("#card .shares dt"))
    yield "adjusted probabilities, one at a time"
    visit(browser, address, project=99)
    browser.until(lambda: browser.text("#problem"))
    yield "a link to a project that is gone"
    browser.run("document.querySelector('#offline').hidden = false; document.querySelector('#locked').showModal()")
    yield "a token is needed"
    browser.open(f"{address}/docs")
    browser.until(lambda: browser.texts(".endpoint h2"))
    yield "the HTTP interface"


@pytest.mark.long
@pytest.mark.parametrize("theme", WINDOWS)
def test_axe_finds_nothing_in_any_state(browser: Browser, address: str, theme: str) -> None:
    problems = {state: findings(browser) for state in states(browser, address, WINDOWS[theme], theme)}
    assert {state: found for state, found in problems.items() if found} == {}


def test_the_page_fits_a_phone_and_axe_finds_nothing_in_its_main_states(browser: Browser, address: str) -> None:
    for state in states(browser, address, WINDOWS["dark"], "dark"):
        assert browser.run("return document.documentElement.scrollWidth") <= WINDOWS["dark"][0], state
        if state in MAIN_STATES:
            assert findings(browser) == [], state


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (900, 800), (390, 844)])
def test_what_matters_is_in_view_without_scrolling(browser: Browser, address: str, width: int, height: int) -> None:
    browser.resize(width, height, [("prefers-reduced-motion", "reduce")])
    inside = """const [selector] = arguments, box = document.querySelector(selector).getBoundingClientRect();
        return box.height > 0 && box.top >= 0 && box.bottom <= innerHeight"""
    visit(browser, address)
    browser.until(lambda: browser.texts("#relations-list li"))
    for important in ("#find", "#new-question", "#start-example", "#relations-list .complete"):
        assert browser.run(inside, important), important
    browser.click("#to-work")
    assert browser.run(inside, "#rank")
    visit(browser, address, project=1)
    browser.until(lambda: browser.texts("#project-references li"))
    assert browser.run(inside, "#rank")
    browser.focus("#head")
    browser.type("al")
    browser.until(lambda: browser.texts(".offers:not([hidden]) li"))
    assert browser.run(inside, ".offers:not([hidden])")
    browser.press("Down", "Enter", "Control+Enter")
    browser.until(lambda: browser.texts(".row"))
    assert browser.run(inside, ".row .decide")
    browser.run("document.querySelector('[name=view][value=decide]').click()")
    browser.until(lambda: browser.texts("#card h3"))
    assert browser.run(inside, "#card h3")
