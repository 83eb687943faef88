"""The neighbourhood as a graph, in a browser: walking by mouse and by keyboard, marks, and an equal list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from tests.conftest import benchmark_of, graph_of
from tests.server.browser import Browser
from tests.server.servers import Known, on_a_port
from tests.server.test_accessibility_in_chromium import findings

from fewlink.graph import Graph, TypeTable
from fewlink.linker import Linker
from fewlink.models.contract import Reasons
from fewlink.server.app import make_app

pytestmark = pytest.mark.slow

NODES = """return document.querySelector('.canvas')._cyreg.cy.nodes().map(
    node => [node.id(), node.data('label'), node.classes()])"""
EDGES = """return document.querySelector('.canvas')._cyreg.cy.edges().map(
    edge => [edge.source().data('label'), edge.data('label'), edge.target().data('label'), edge.classes().join(' ')])"""
PLACE = """const canvas = document.querySelector('.canvas'), box = canvas.getBoundingClientRect();
    const {x, y} = canvas._cyreg.cy.nodes().filter(node => node.data('label') === arguments[0])[0].renderedPosition();
    return [box.left + x, box.top + y]"""


class Walked(Known):
    """Explains every pair by a path over entity 1."""

    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        return Reasons(1.0, {}, [((0, 0), 0.5)], [0.75], entities=[(head, 1, tail)], measured=True)


def hub() -> Linker:
    """A port with eight ships; ship 0 is near ship 1, in which ann sails with fourteen tools of fourteen relations."""
    rows = ["port has ship_0", "ship_0 near ship_1", *(f"port has ship_{i}" for i in range(1, 8)), "ann sails ship_1"]
    rows += [f"ann uses_{i} tool_{i}" for i in range(14)]
    plain = graph_of(*rows)
    kinds = [0 if name.startswith("ship") else 1 if name == "port" else 2 for name in plain.entities]
    types = TypeTable.of([b"ship", b"place", b"other"], np.arange(len(kinds)), np.array(kinds), len(kinds))
    return Linker(benchmark_of(Graph.of(plain.entities, plain.relations, plain.triples(), types=types)), Walked())


@contextmanager
def opened(browser: Browser, entity: str) -> Iterator[None]:
    """The dialog at an entity, reached as a visitor reaches it: from the dialog about the entity."""
    with on_a_port(make_app(hub())) as (address, _):
        browser.open(f"{address}/health")
        browser.run("localStorage.clear()")
        query = {"references": '[["port", "ship_2"]]', "heads": json.dumps([entity])}
        browser.open(f"{address}/#ask&{urlencode(query)}")
        browser.until(lambda: browser.texts(".row"))
        browser.click(".group h3 .entity")
        browser.until(lambda: browser.texts("#entity-edges li"))
        browser.click("#entity-graph")
        browser.until(lambda: shown(browser) == entity.replace("_", " "))
        yield
        origins = browser.run("return performance.getEntriesByType('resource').map(one => new URL(one.name).origin)")
        assert set(origins) == {address}
        assert browser.console_errors() == []


def shown(browser: Browser) -> str:
    return browser.text("#neighbourhood h2") if browser.texts(".neighbours section") else ""


def labels(browser: Browser) -> set[str]:
    return {label for _, label, _ in browser.run(NODES)}


def listed(browser: Browser) -> list[str]:
    return browser.texts(".neighbours .entity")


def walk_to(browser: Browser, label: str) -> None:
    """Click a node of the drawing."""
    browser.click_at(*browser.run(PLACE, label))


def test_clicking_a_node_walks_to_it_and_back_returns(browser: Browser) -> None:
    with opened(browser, "port"):
        assert "and 3 more" in labels(browser) and len(labels(browser)) == 1 + 5 + 1
        assert ["port", "has", "ship 0", ""] in browser.run(EDGES)
        assert ["port", "reference · has", "ship 2", "reference"] in browser.run(EDGES)  # of the form
        walk_to(browser, "ship 1")
        browser.until(lambda: shown(browser) == "ship 1")
        assert labels(browser) == {"ship 1", "port", "ship 0", "ann"}
        walk_to(browser, "ann")
        browser.until(lambda: shown(browser) == "ann")
        assert {"port", "ship 1"} <= labels(browser)  # where the walk came from
        assert ["ship 1", "has", "port", "walked"] in browser.run(EDGES)
        marks = {label: classes for _, label, classes in browser.run(NODES)}
        assert marks["ann"] == ["center"] and "visited" in marks["ship 1"]
        browser.click("#neighbourhood .actions button")
        browser.until(lambda: shown(browser) == "ship 1")
        browser.click("#neighbourhood .actions button")
        browser.until(lambda: shown(browser) == "port")
        assert browser.run("return document.querySelector('#neighbourhood .actions button').hidden")


def test_nodes_that_stand_for_more_load_them(browser: Browser) -> None:
    with opened(browser, "port"):
        walk_to(browser, "and 3 more")
        browser.until(lambda: len({*listed(browser)}) == 8)
        assert labels(browser) == {"port", *(f"ship {i}" for i in range(8))}
        walk_to(browser, "ship 1")
        browser.until(lambda: shown(browser) == "ship 1")
        walk_to(browser, "ann")
        browser.until(lambda: shown(browser) == "ann")
        assert "and 3 more relations" in labels(browser)  # of fifteen
        walk_to(browser, "and 3 more relations")
        browser.until(lambda: {f"tool {i}" for i in range(14)} <= labels(browser))
        assert not [label for label in labels(browser) if label.startswith("and ")]


def test_the_list_is_equal_to_the_drawing_and_walks_by_keyboard(browser: Browser) -> None:
    with opened(browser, "port"):
        assert {*listed(browser), "port", "and 3 more"} == labels(browser)
        assert browser.run("return document.activeElement.textContent") == "port"
        browser.focus(".neighbours section:last-of-type li:last-child button")
        browser.press("Enter")
        browser.until(lambda: len({*listed(browser)}) == 8)
        ships = browser.texts(".neighbours section:last-of-type .entity")
        assert browser.run("return document.activeElement.textContent") == ships[5]  # the first new one
        browser.focus(".neighbours section:last-of-type .entity")
        (highlighted,) = [label for _, label, classes in browser.run(NODES) if "highlight" in classes]
        assert highlighted == ships[0]
        browser.press("Enter")
        browser.until(lambda: shown(browser) == highlighted)
        assert browser.run("return document.activeElement.textContent") == highlighted
        assert {*listed(browser), highlighted} == labels(browser)
        assert listed(browser)[0] == "port" and "visited" in browser.texts(".neighbours .badge")
        browser.press("Escape")
        assert not browser.run("return document.querySelector('#neighbourhood').open")


def test_the_pair_its_references_and_the_path_of_an_explanation_are_marked(browser: Browser) -> None:
    with opened(browser, "port"):
        browser.press("Escape", "Escape")
        browser.focus(".row")
        browser.press("e")
        browser.until(lambda: browser.texts(".reasons .explore"))
        tail = browser.text(".row .name b")
        browser.click(".reasons .explore")
        browser.until(lambda: tail in labels(browser))
        marks: dict[str, Any] = {label: classes for _, label, classes in browser.run(NODES)}
        assert {"asked", "path", "center", "reference"} <= {*marks["port"]}
        assert {"asked", "path"} <= {*marks[tail]} and "reference" in marks["ship 2"]
        path = {(edge[0], edge[2]) for edge in browser.run(EDGES) if "path" in edge[3]}
        assert {("port", "ship 0"), ("ship 0", tail)} <= path
        assert {"asked", "in a reference", "on a path"} <= {*browser.texts(".legend li")}
        assert browser.texts(".neighbours h3")[:2] == ["Paths of the explanation", "References"]


@pytest.mark.parametrize(("theme", "size"), [("light", (1280, 800)), ("dark", (390, 844))])
def test_it_is_accessible_and_fits_desktops_and_phones(browser: Browser, theme: str, size: tuple[int, int]) -> None:
    with opened(browser, "port"):
        browser.resize(*size, [("prefers-color-scheme", theme), ("prefers-reduced-motion", "reduce")])
        assert findings(browser) == []
        dialog = "document.querySelector('#neighbourhood')"
        assert browser.run(f"return {dialog}.scrollWidth - {dialog}.clientWidth") == 0
        assert browser.run("return document.documentElement.scrollWidth") <= size[0]
        x, _ = browser.run(PLACE, "port")
        assert 0 < x < size[0]
        kinds = browser.texts(".legend li")
        assert kinds == ["place", "ship", "asked", "in a reference"]
        shapes = browser.run("return document.querySelectorAll('.legend circle, .legend polygon').length")
        assert shapes == 2  # a kind has a shape of its own as well as a colour
