"""What a curator does on the page, from a relation to an export, with the mouse alone and with the keyboard alone."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server.browser import ARGUMENTS, CHROMIUM
from tests.server.servers import on_a_port

from fewlink.curation.store import ProjectFile
from fewlink.linker import load
from fewlink.server import ServerSettings
from fewlink.server.app import make_app

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.slow
Page = Any
SECONDS = 60
CITIES = ("Oslo", "Rome", "Bonn", "Lima")
PEOPLE, PLACED = 40, 16  # and how many of them have a city
DECISIONS = 6


def own_file(folder: Path) -> Path:
    """A table with its columns in another order, as spreadsheets write it: colleagues mostly live in one city."""
    rows = [(f"Country {place}", "has city", city, "") for place, city in enumerate(CITIES)]
    for number in range(PEOPLE):
        firm = number % len(CITIES)
        rows.append((f"Firm {firm}", "works at", f"Person {number:02}", "1999"))
        if number < PLACED:
            rows.append((CITIES[firm], "lives in", f"Person {number:02}", "2001"))
    rows += [(city, "seat in", f"Firm {place}", "") for place, city in enumerate(CITIES)]
    path = folder / "people.csv"
    lines = ["target;type;source;since", *(";".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@contextmanager
def window(address: str) -> Iterator[Page]:
    """A window of 1280 × 800; leaving it checks that the page reported no error."""
    with playwright.sync_playwright() as driver:
        arguments = [one for one in ARGUMENTS if not one.startswith("--headless")]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce").new_page()
        page.set_default_timeout(1000 * SECONDS)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        yield page
        browser.close()
    assert errors == []


class Mouse:
    """Acts with the mouse; types only where text is needed."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, selector: str) -> None:
        self.page.locator(selector).first.click()

    def fill(self, selector: str, text: str) -> None:
        self.press(selector)
        self.page.keyboard.type(text)

    def choose(self, name: str, value: str) -> None:
        self.page.locator(f"label:has(input[name={name}][value={value}])").click()

    def pick_offer(self) -> None:
        self.press(".offers:not([hidden]) li")

    def decide(self, accept: bool) -> None:
        self.press(f"#card .verdict.{'yes' if accept else 'no'}")


class Keyboard(Mouse):
    """Acts with keys alone: Tab must reach everything."""

    def reach(self, selector: str) -> None:
        """Press Tab until an element that matches has the focus."""
        for _ in range(300):
            if self.page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not reach {selector}")

    def press(self, selector: str) -> None:
        self.reach(selector)
        self.page.keyboard.press("Enter")

    def fill(self, selector: str, text: str) -> None:
        self.reach(selector)
        self.page.keyboard.type(text)

    def choose(self, name: str, value: str) -> None:
        """Reach the group of radio buttons, then move through it with the arrows."""
        self.reach(f"input[name={name}]")
        for _ in range(5):
            if self.page.evaluate("() => document.activeElement.value") == value:
                return
            self.page.keyboard.press("ArrowRight")
        raise AssertionError(f"the arrows do not reach {value}")

    def pick_offer(self) -> None:
        self.page.keyboard.press("ArrowDown")
        self.page.keyboard.press("Enter")

    def decide(self, accept: bool) -> None:
        self.page.keyboard.press("a" if accept else "r")


@pytest.fixture(scope="module", autouse=True)
def _chromium() -> None:
    if not CHROMIUM:
        pytest.skip("needs chromium")


@pytest.mark.parametrize("hand", [Mouse, Keyboard])
def test_the_four_tasks(hand: type[Mouse], tmp_path: Path) -> None:
    app = make_app(load(own_file(tmp_path)), ServerSettings(), tmp_path / "decisions")
    with on_a_port(app) as (address, _), window(f"{address}/") as page:
        user = hand(page)
        complete_relation(page, user)
        decided = decide_some(page, user)
        exported = export(page, user)
        ask_heads(page, user)
    assert [(row["head"], row["tail"], row["decision"]) for row in exported] == decided
    with ProjectFile(tmp_path / "decisions", write=False) as file:
        (project,) = file.projects()
    assert (project.accepted, project.rejected) == (DECISIONS / 2, DECISIONS / 2)


def above_the_fold(page: Page, selector: str) -> bool:
    box = page.locator(selector).first.bounding_box()
    return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= 800


def complete_relation(page: Page, user: Mouse) -> None:
    """One click looks for all missing pairs of a relation."""
    page.wait_for_selector("#relations-list li")
    lives = page.locator("#relations-list li", has_text="lives in")
    text = lives.inner_text().replace("\u00a0", " ")
    assert f"{PLACED} pairs" in text and f"{100 * PLACED // PEOPLE} % of {PEOPLE}" in text
    button = "button[aria-label='Complete lives in']"
    assert above_the_fold(page, button)
    user.press(button)
    page.wait_for_selector(".row")
    page.wait_for_selector("#progress", state="hidden")
    assert above_the_fold(page, "#rank") and above_the_fold(page, ".row")
    assert page.inner_text("#rank") == "Find pairs"


def decide_some(page: Page, user: Mouse) -> list[tuple[str, str, str]]:
    """One suggestion at a time, in a new project: half of them are right."""
    user.choose("view", "decide")
    user.press("#card .primary")  # a project is needed
    page.wait_for_selector("#new-project[open]")
    assert page.input_value("#new-project-name") == "lives in"
    user.press("#new-project-form .primary")
    decided = []
    for number in range(DECISIONS):
        page.wait_for_function("before => document.querySelector('#card h3')?.innerText !== before", arg=shown(decided))
        page.wait_for_selector("#card h3")
        assert above_the_fold(page, "#card .verdict.yes")
        head, tail = page.locator("#card h3 .entity").all_inner_texts()
        accept = number % 2 == 0
        user.decide(accept)
        decided.append((head, tail, "accepted" if accept else "rejected"))
        count = page.locator(f"#counts .number:has-text('{decided[-1][2]}') dd", has_text=str(number // 2 + 1))
        count.wait_for()
    assert "50\u00a0%" in page.inner_text("#counts")  # right so far
    assert "Accepted tails:" in page.inner_text("#spread")
    return decided


def shown(decided: list[tuple[str, str, str]]) -> str:
    """The text of the card that was decided last."""
    return f"{decided[-1][0]} lives in {decided[-1][1]}" if decided else ""


def export(page: Page, user: Mouse) -> list[dict[str, str]]:
    """The decisions as a file for spreadsheets."""
    user.press("#export-open")
    page.wait_for_selector("#export[open]")
    page.wait_for_selector("#export-format option", state="attached")
    assert page.input_value("#export-format") == "csv"
    with page.expect_download() as download:
        user.press("#export-form .primary")
    with download.value.path().open(encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def ask_heads(page: Page, user: Mouse) -> None:
    """Who lives in Rome? The list has people, and says that they are heads."""
    page.wait_for_selector("#export", state="hidden")
    user.choose("view", "list")
    user.choose("mode", "tails")
    assert page.inner_text("#rank") == "Rank heads"
    user.fill("#head", "rome")
    page.wait_for_selector(".offers:not([hidden]) li")
    user.pick_offer()
    assert page.inner_text("#heads").startswith("Rome")
    user.press("#rank")
    page.wait_for_selector(".group h3:has-text('Rome')")
    names = page.locator(".row .name b").all_inner_texts()
    assert names and all(name.startswith("Person") for name in names)
    assert "heads, by" in page.inner_text("#status") and above_the_fold(page, ".row")
