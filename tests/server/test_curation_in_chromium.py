"""Curating in a browser: projects, single suggestions, filters, bulk decisions, two curators, a killed server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.linker.linkers import umls
from tests.server.browser import Browser
from tests.server.servers import PAIRS, on_a_port

from fewlink.curation.store import ProjectFile
from fewlink.linker import Linker
from fewlink.server.app import make_app

pytestmark = pytest.mark.slow


@contextmanager
def served(file: Path) -> Iterator[str]:
    with on_a_port(make_app(Linker.shipped(umls()), project=file)) as (address, _):
        yield address


@pytest.fixture()
def project(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a server with one project, and its file."""
    path = tmp_path / "umls.decisions"
    with ProjectFile(path) as file:
        file.add_project("interacts", [(head, tail) for head, tail in PAIRS], who="ann")
    with served(path) as address:
        yield address, path


def visit(browser: Browser, address: str, who: str, **query: Any) -> None:
    """Open project 1 as this curator, by a link."""
    browser.open(f"{address}/health")
    browser.run("localStorage.clear(); localStorage.setItem('fewlink:who', arguments[0])", who)
    browser.open(f"{address}/#ask&{urlencode({'project': 1, **query})}")
    browser.until(lambda: browser.texts("#counts dd"))


def deciding(browser: Browser, address: str, who: str) -> None:
    visit(browser, address, who, heads='["alga", "bacterium", "animal"]', view="decide")
    browser.until(lambda: card(browser))


def card(browser: Browser) -> list[str]:
    return browser.texts("#card h3 .entity")


def counts(browser: Browser) -> list[str]:
    return browser.texts("#counts dd")[:3]


def decided(path: Path) -> dict[str, list[tuple[str, str, str]]]:
    with ProjectFile(path, write=False) as file:
        states = file.decisions(1)
    kinds = ("accepted", "rejected")
    return {kind: [(s.head, s.tail, s.who) for s in states if s.kind == kind] for kind in kinds}


def test_one_suggestion_at_a_time_by_keys_alone(browser: Browser, project: tuple[str, Path]) -> None:
    address, path = project
    deciding(browser, address, "ann")
    browser.until(lambda: browser.texts("#card .shares dt"))  # its reasons
    seen = []
    for key in ("a", "r", "s"):
        seen.append(card(browser))
        browser.press(key)
        browser.until(lambda: card(browser) != seen[-1])
    assert counts(browser) == ["2", "1", "1"] and card(browser) not in seen
    assert browser.run("return document.activeElement.id") == "card"
    stored = decided(path)
    ids = [tuple(name.replace(" ", "_") for name in pair) for pair in seen]
    assert [pairs[0][:2] for pairs in stored.values()] == ids[:2]
    browser.press("e")
    assert not browser.texts("#card .reasons")
    browser.press("Control+z")  # takes the rejection back, and shows the pair again
    browser.until(lambda: counts(browser) == ["2", "1", "0"])
    browser.until(lambda: card(browser) == seen[1])
    browser.run("document.querySelector('[name=order][value=teach]').click()")
    browser.until(lambda: not browser.run("return document.querySelector('#decide-view').ariaBusy"))
    assert card(browser) and decided(path)["rejected"] == []


def test_filters_and_accepting_many_with_one_undo(browser: Browser, project: tuple[str, Path]) -> None:
    address, path = project
    visit(browser, address, "ann", heads='["alga", "bacterium"]')
    browser.until(lambda: len(browser.texts(".row")) == 20)
    visible = "return [...document.querySelectorAll('.row')].filter(r => !r.hidden).length"
    fill(browser, "#filter-text", "cell")
    assert 0 < browser.run(visible) < 20 and "shown" in browser.text("#filter-count")
    fill(browser, "#filter-text", "no such name")
    assert browser.run(visible) == 0 and not browser.run("return document.querySelector('#filter-none').hidden")
    browser.click("#filters-clear")
    assert browser.run(visible) == 20
    browser.click("#bulk-open")
    assert len(browser.texts("#bulk-list li")) >= 5
    ranked = Linker.shipped(umls()).predict([(head, tail) for head, tail in PAIRS], ["alga", "bacterium"])
    merits = sorted((row.score if row.probability is None else 100 * row.probability for row in ranked), reverse=True)
    assert merits[0] > 1, "the rows have percentages"
    for merit in merits[:6]:  # a threshold is compared with what is shown
        fill(browser, "#bulk-minimum", str(round(merit)))
        assert len(browser.texts("#bulk-list li")) == sum(round(other) >= round(merit) for other in merits)
    fill(browser, "#bulk-minimum", str((merits[2] + merits[3]) / 2))
    assert len(browser.texts("#bulk-list li")) == 3
    browser.click("#bulk-accept")
    browser.until(lambda: counts(browser) == ["2", "3", "0"])
    assert len(decided(path)["accepted"]) == 3
    fill(browser, "#filter-decision", "accepted")
    assert browser.run(visible) == 3
    fill(browser, "#filter-decision", "undecided")
    assert browser.run(visible) == 17
    browser.click("#accepted-list .remove")  # one of them alone
    browser.until(lambda: counts(browser) == ["2", "2", "0"])
    browser.focus("#undo")
    browser.press("u")  # the others
    browser.until(lambda: counts(browser) == ["2", "0", "0"])
    assert decided(path)["accepted"] == []


def fill(browser: Browser, selector: str, text: str) -> None:
    browser.run(
        """const field = document.querySelector(arguments[0]); field.value = arguments[1];
        field.dispatchEvent(new Event('input', {bubbles: true}))""",
        selector,
        text,
    )


def test_the_panel_of_an_entity(browser: Browser, project: tuple[str, Path]) -> None:
    visit(browser, project[0], "ann", heads='["animal"]')
    browser.until(lambda: browser.texts(".row"))
    browser.click(".group h3 .entity")
    browser.until(lambda: browser.texts("#entity-edges li"))
    assert browser.text("#entity-title") == "animal" and "facts" in browser.text("#entity-facts")
    listed = "return [...document.querySelectorAll('#entity-edges section')].map(s => s.querySelectorAll('li').length)"
    assert max(browser.run(listed)) == 6
    counts = [int(text.replace(",", "")) for text in browser.texts("#entity-edges h3 .count")]
    assert browser.text("#entity-facts").endswith(f"{sum(counts)} facts")
    place = next(place for place, count in enumerate(counts) if count > 6)
    more = f"#entity-edges section:nth-of-type({place + 1}) > .quiet"
    assert browser.text(more) == f"and {counts[place] - 6} more"
    browser.click(more)
    browser.until(lambda: browser.run(listed)[place] == min(counts[place], 56))
    fill(browser, "#entity-search", "mental")
    browser.until(lambda: browser.text("#entity-count"))
    assert all("mental" in text for text in browser.texts("#entity-edges li"))
    found = browser.text("#entity-edges .entity")
    browser.click("#entity-edges .entity")
    browser.until(lambda: browser.text("#entity-title") == found)
    browser.click("#entity-back")
    browser.until(lambda: browser.text("#entity-title") == "animal")


def test_a_link_repeats_its_query(browser: Browser, project: tuple[str, Path]) -> None:
    address, _ = project
    visit(browser, address, "ann", heads='["alga"]')
    browser.until(lambda: browser.texts(".row"))
    ranked = browser.texts(".row .name b")
    browser.click("#copy-link")
    browser.until(lambda: "link" in browser.text("#status").lower())
    link = browser.run("return location.href")
    assert "project=1" in link
    browser.open("about:blank")
    browser.open(link)
    assert browser.until(lambda: browser.texts(".row .name b")) == ranked
    browser.open("about:blank")
    query = {"references": json.dumps(PAIRS), "heads": '["alga"]', "relation": "interacts"}
    browser.open(f"{address}/#ask&{urlencode(query)}")
    assert browser.until(lambda: browser.texts(".row .name b")) == ranked
    assert browser.run("return document.querySelector('#project-choice').value") == ""
    browser.open("about:blank")
    browser.open(f"{address}/#ask&project=99")
    browser.until(lambda: "99" in browser.text("#problem"))


def test_the_project_says_what_was_right_and_warns_of_one_tail(browser: Browser, project: tuple[str, Path]) -> None:
    address, path = project
    heads = ("alga", "bacterium", "animal", "plant", "fish", "bird", "mammal", "reptile")
    with ProjectFile(path) as file:
        file.decide(1, [("accepted", head, "cell") for head in heads[:7]], "bob")
        file.decide(1, [("rejected", "alga", "plant"), ("accepted", "alga", "tissue")], "bob")
    visit(browser, address, "ann", heads='["alga"]')
    counted = "return [...document.querySelectorAll('#counts > *')].map(e => [...e.children].map(c => c.textContent))"
    facts = dict(browser.until(lambda: (rows := browser.run(counted))[3:] and rows))
    assert facts["right so far"] == "89\u00a0%" and facts["accepted"] == "8" and facts["rejected"] == "1"
    assert browser.text("#spread") == "Accepted tails: cell 7 · tissue 1"
    assert browser.text("#crowded").startswith("7 of 8 accepted pairs have the tail cell")
    browser.until(lambda: browser.texts(".row"))
    browser.focus(".row")
    for _ in range(3):
        browser.press("a")
    browser.until(lambda: browser.run("return document.querySelector('#crowded').hidden"))  # 7 of 11
    assert "3 others" in browser.text("#spread") or "·" in browser.text("#spread")


def test_two_curators_see_each_others_decisions_and_conflicts(
    browser: Browser, other: Browser, project: tuple[str, Path]
) -> None:
    address, _ = project
    for one, who in ((browser, "ann"), (other, "bob")):
        visit(one, address, who, heads='["alga"]')
        one.until(lambda one=one: one.texts(".row"))
    browser.focus(".row")
    pair = browser.text(".row .name b")
    browser.press("a")
    browser.until(lambda: counts(browser) == ["2", "1", "0"])
    other.until(lambda: counts(other) == ["2", "1", "0"])  # without a reload
    assert "ann" in other.text("#status") and f"alga → {pair}" in other.text("#status")
    assert "ann" in other.text(".row .others")
    other.focus(".row")
    other.press("r")
    (conflict,) = browser.until(lambda: browser.texts("#conflicts-list li"))
    assert f"alga → {pair}" in conflict and "bob" in conflict
    assert browser.run("return document.querySelector('.row').hidden")  # rejected pairs vanish
    browser.click("#history-open")
    browser.until(lambda: len(browser.texts("#history-list li")) == 4)
    assert browser.texts("#history-list b")[:2] == ["bob", "You"]
    browser.press("Escape")
    other.press("u")
    browser.until(lambda: not browser.run("return document.querySelector('.row').hidden"))


def test_an_export_is_imported_into_another_project(
    browser: Browser, project: tuple[str, Path], tmp_path: Path
) -> None:
    address, path = project
    file = tmp_path / "more.tsv"
    file.write_text("head\ttail\tdecision\nalga\tcell\taccepted\n")
    visit(browser, address, "ann")
    element = browser.send("/element", {"using": "css selector", "value": "#import-file"})
    browser.send(f"/element/{next(iter(element.values()))}/value", {"text": str(file)})
    browser.until(lambda: counts(browser) == ["2", "1", "0"] or browser.text("#project-problem"))
    assert decided(path)["accepted"] == [("alga", "cell", "ann")]


def start(path: Path, port: int = 0) -> tuple[subprocess.Popen[str], str]:
    """Start a server in a new process; return the process and its address."""
    command = [sys.executable, "-m", "fewlink", "serve", "umls", "--port", str(port), "--project", str(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    address = re.search(r"http://[0-9.:]+", process.stderr.readline())
    assert address
    return process, address[0]


PREDICT = """const [references, rejected] = arguments;
    const heads = ["pathologic_function"], pairs = rejected.map(decision => decision.slice(0, 2));
    const body = JSON.stringify({references, rejected: pairs, heads, project: 1});
    const headers = {"Content-Type": "application/json"};
    return fetch("predict", {method: "POST", headers, body}).then(answer => answer.json())"""


def test_decisions_adjust_what_the_page_shows(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "umls.decisions"
    with ProjectFile(path) as file:
        pairs = [("gene_or_genome", "hormone"), ("cell", "immunologic_factor"), ("mental_process", "enzyme")]
        file.add_project("makes", pairs)
    with served(path) as address:
        visit(browser, address, "ann", heads='["pathologic_function"]')
        browser.until(lambda: browser.texts(".row"))
        assert not browser.text("#adjusted")
        browser.focus(".row")
        for _ in range(2):
            browser.press("r")
        browser.until(lambda: counts(browser) == ["3", "0", "2"])
        browser.click("#rank-again")
        browser.until(lambda: browser.text("#adjusted"))
        with ProjectFile(path) as file:
            given = [state.probability for state in file.decisions("makes", "rejected")]
        assert all(chance is not None and 0 < chance < 1 for chance in given)
        ranked = browser.run(PREDICT, pairs, decided(path)["rejected"])
        browser.focus(".row")
        browser.press("r")  # a row that was adjusted is stored with the model's own probability
        browser.until(lambda: counts(browser) == ["3", "0", "3"])
        with ProjectFile(path) as file:
            last = file.decisions("makes", "rejected")[-1]
        (own,) = [row for row in ranked["predictions"] if row["tail"] == last.tail]
        assert last.probability == own["base_probability"] > own["probability"]
        browser.run("document.querySelector('[name=view][value=decide]').click()")
        browser.until(lambda: card(browser))
        assert browser.texts("#decide-notes li") and "%" in browser.texts("#card .hint")[1]
        browser.press("a")
        browser.until(lambda: counts(browser) == ["3", "1", "3"])
        with ProjectFile(path) as file:
            assert file.decisions("makes", "accepted")[0].probability is not None
