"""Names and reasons on the page, in a browser."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.conftest import benchmark_of, graph_of
from tests.server.browser import Browser
from tests.server.servers import Known, on_a_port

from fewlink.graph import Vocabulary
from fewlink.linker import Linker
from fewlink.models.contract import Reasons
from fewlink.server.app import make_app

pytestmark = pytest.mark.slow


@contextmanager
def served(browser: Browser, linker: Linker) -> Iterator[str]:
    """Serve a linker and open its page as a first-time visitor; yield the address."""
    with on_a_port(make_app(linker)) as (address, _):
        browser.open(f"{address}/health")
        browser.run("localStorage.clear(); sessionStorage.clear()")
        browser.open(f"{address}/#ask")
        browser.until(lambda: "entit" in browser.text("#about"))
        yield address
        assert [line for line in browser.console_errors() if "404" not in line] == []


def named(*names: str) -> list[dict[str, str]]:
    return [{"id": name.replace(" ", "_"), "name": name} for name in names]


def fill(browser: Browser, references: list[list[dict[str, str]]], heads: list[dict[str, str]]) -> None:
    """Fill the fields with a query, through the browser's storage."""
    about = browser.run("return fetch('about').then(answer => answer.json())")["graph"]
    store = "localStorage.setItem(arguments[0], JSON.stringify({references: arguments[1], heads: arguments[2]}))"
    browser.run(f"{store}; location.reload()", f"fewlink:{about['name']}:{about['entities']}", references, heads)
    browser.until(lambda: values(browser)[:1] == [references[0][0]["name"]])


def values(browser: Browser) -> Any:
    return browser.run("return [...document.querySelectorAll('#references input')].map(e => e.value)")


def explained(browser: Browser, head: str) -> None:
    """Show the reasons for the best tail of a head."""
    fill(browser, [named("one", "two")], named(head))
    browser.click("#rank")
    browser.until(lambda: browser.texts(".row"))
    browser.press("e")
    browser.until(lambda: browser.texts(".shares dt"))


LONG = "attack_pattern_that_can_be_followed_by_or_can_precede_or_can_cause_a_further_more_serious_weakness"
HEAD = "a rather long name of a head"


class Walked(Known):
    """Gives the same reasons for every pair: paths of up to three hops over relations with long names."""

    evidence: ClassVar[dict[str, str]] = {"head": "paths from the head", "references": "paths from the references"}

    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        paths = [((0,), 0.5), ((0, 2), 0.4), ((1, 3, 0), 0.3), ((1, 2, 1), 0.2)]
        entities = [(head, tail), (head, 2, tail), (head, 3, 2, tail), (head, 2, 3, tail)]
        return Reasons(4.0, {"head": 2.5, "references": -0.5}, paths, [0.75], entities=entities, measured=True)


def walked() -> Linker:
    rows = (
        f"{HEAD.replace(' ', '_')} {LONG} another_name_of_a_tail_of_many_words",
        f"third_entity_with_a_long_name {LONG}_exploited fourth_entity_with_a_longer_name",
        f"one {LONG} two",
    )
    return Linker(benchmark_of(graph_of(*rows)), Walked())


def picture(browser: Browser) -> str:
    """What the drawing shows, as screen readers say it."""
    browser.until(lambda: browser.run("return document.querySelector('.reasons .lanes canvas') !== null"))
    return str(browser.run("return document.querySelector('.reasons .lanes').ariaLabel"))


@pytest.mark.parametrize(("width", "lanes"), [(390, 2), (1280, 4)])
def test_the_best_paths_are_drawn_and_all_of_them_are_text(browser: Browser, width: int, lanes: int) -> None:
    with served(browser, walked()):
        browser.resize(width, 900)
        explained(browser, HEAD)
        drawn = picture(browser)
        paths = [text.partition(" · ")[0] for text in browser.texts(".reasons details .lines li")]
        assert 1 <= sum(path in drawn for path in paths) <= lanes and paths[0] in drawn
        assert len(paths) == 4 and all(HEAD in path or "one" in path for path in paths)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        figures = [float(text.replace("−", "-")) for text in browser.texts(".shares dd:not(.share)")]
        assert sum(figures) == pytest.approx(4.0) and browser.texts(".shares dt")[-1] == "the rest"
        assert browser.run("return document.querySelector('.reasons details').open") is False
        browser.resize(1280, 900)


class Attentive(Known):
    """Gives the same neighbours for every pair, with attention."""

    evidence: ClassVar[dict[str, str]] = {}

    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        near = [
            ("head", 0, 1, 0.6),
            ("tail", 2, 0, 0.5),
            ("tail", 1, 3, 0.3),
            ("tail", 1, 2, 0.15),
            ("tail", 1, 5, 0.05),
        ]
        return Reasons(4.0, neighbours=near)


def test_neighbours_are_drawn(browser: Browser) -> None:
    linker = walked()
    with served(browser, Linker(linker.benchmark, Attentive())):
        fill(browser, [named("one", "two")], named(HEAD))
        browser.click("#rank")
        browser.until(lambda: browser.texts(".row"))
        browser.press("e")
        browser.until(lambda: browser.texts(".reasons .lines li"))
        assert "third entity with a long name" in picture(browser)


def twins() -> Linker:
    """Two cities called Paris, and a person of that name."""
    graph = graph_of("paris_fr in france", "paris_tx in texas", "paris_p likes france", "rome in italy")
    readable = ["Paris" if name.startswith("paris") else name for name in graph.entities]
    labels = Vocabulary.of([*readable, *graph.relations])
    return Linker(benchmark_of(dataclasses.replace(graph, labels=labels)), Known())


def pick(browser: Browser, typed: str, offer: str) -> None:
    """Type into the focused field and pick a suggestion by key."""
    browser.type(typed)
    offers = browser.until(lambda: offer in (texts := browser.texts(".offers:not([hidden]) li")) and texts)
    browser.press(*["Down"] * (offers.index(offer) + 1), "Enter")


def test_references_with_equal_names_show_hints(browser: Browser) -> None:
    with served(browser, twins()):
        browser.focus("#references input")
        pick(browser, "Paris", "Parisparis_fr · —in→ france")
        pick(browser, "france", "france")
        assert browser.texts(".full-names:not([hidden])") == []  # nothing to tell apart yet
        pick(browser, "Paris", "Parisparis_tx · —in→ texas")
        pick(browser, "france", "france")
        both = ["Paris (—in→ france) → france", "Paris (—in→ texas) → france"]
        browser.until(lambda: browser.texts(".full-names:not([hidden])") == both)
        browser.focus("#head")
        browser.type("Paris")
        browser.press("Escape", "Control+Enter")
        browser.until(lambda: browser.texts("#problem button"))
        assert "Use Paris (—likes→ france)" in browser.texts("#problem button")


def test_a_cut_reference_is_shown_in_full(browser: Browser) -> None:
    with served(browser, walked()):
        one, other = "laboratory or test result", "laboratory or test procedure"
        fill(browser, [named(one, "one"), named(other, "one")], [])
        assert browser.texts(".full-names:not([hidden])") == [f"{one} → one", f"{other} → one"]
