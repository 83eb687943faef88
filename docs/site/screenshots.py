"""Take the pictures of the page for curators: docs/pictures/page*.png.

python docs/site/screenshots.py    # needs chromium and chromedriver
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.server.browser import Browser  # noqa: E402
from tests.server.servers import on_a_port  # noqa: E402

import fewlink  # noqa: E402
from fewlink.curation.store import ProjectFile  # noqa: E402
from fewlink.linker import Linker  # noqa: E402
from fewlink.server import ServerSettings  # noqa: E402
from fewlink.server.app import make_app  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
DESKTOP = (1280, 800)
LIGHT = [("prefers-color-scheme", "light"), ("prefers-reduced-motion", "reduce")]
README_REFERENCES = [("APT38", "Windows"), ("TeamTNT", "Containers"), ("Scattered Spider", "IaaS")]
README_HEADS = ["Sandworm Team", "FIN7"]
PROJECT_REFERENCES = [("Scattered Spider", "SaaS"), ("Sandworm Team", "Windows"), ("TeamTNT", "Containers")]
PROJECT_HEADS = ["APT29", "Rocke", "Windshift"]


def ids(linker: Linker, names: tuple[str, ...] | list[str]) -> list[str]:
    return [str(linker.graph.entities[linker.names.find(name)]) for name in names]


def visit(browser: Browser, address: str, **query: object) -> None:
    browser.open("about:blank")
    browser.open(f"{address}/" + (f"#ask&{urlencode(query)}" if query else ""))


def main() -> None:
    linker = fewlink.load("attack")
    references = [ids(linker, pair) for pair in README_REFERENCES]
    heads = json.dumps(ids(linker, PROJECT_HEADS))
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        path = Path(folder) / "attack.decisions"
        with ProjectFile(path) as file:
            pairs = [ids(linker, pair) for pair in PROJECT_REFERENCES]
            file.add_project("attacks platform", [(head, tail) for head, tail in pairs], who="ann")
        app = make_app(linker, ServerSettings(), path)
        with on_a_port(app) as (address, _):
            browser.resize(*DESKTOP, LIGHT)
            browser.devtools("Emulation.setScrollbarsHidden", hidden=True)
            browser.open(f"{address}/health")
            browser.run("localStorage.clear(); localStorage.setItem('fewlink:who', 'ann')")

            visit(browser, address)
            browser.until(lambda: browser.texts("#relations-list li") and browser.texts("#start-projects-list li"), 60)
            browser.run(
                "const order = document.querySelector('#relations-order'); order.value = 'missing';"
                "order.dispatchEvent(new Event('change'))"
            )
            browser.until(lambda: "33 pairs" in browser.text("#relations-list li"))
            browser.look(PICTURES / "page-start.png", *DESKTOP, LIGHT)

            browser.resize(*DESKTOP, LIGHT)
            readme = {"references": json.dumps(references), "heads": json.dumps(ids(linker, README_HEADS))}
            visit(browser, address, relation="attacks", **readme)
            browser.until(lambda: len(browser.texts(".row")) > 15, 60)
            browser.focus(".row")
            browser.press("e")
            browser.until(lambda: browser.texts(".shares dt"), 60)
            browser.run("document.activeElement.blur(); scrollTo(0, 0)")
            browser.look(PICTURES / "page.png", 1240, 1000, LIGHT)

            browser.resize(*DESKTOP, LIGHT)
            visit(browser, address, project=1, heads=heads)
            browser.until(lambda: len(browser.texts(".row")) > 20, 60)
            browser.run("document.querySelector('.row').focus(); scrollTo(0, 0)")
            browser.press("a")
            browser.until(lambda: browser.texts("#accepted-list li"))
            browser.look(PICTURES / "page-list.png", *DESKTOP, LIGHT)

            browser.resize(*DESKTOP, LIGHT)
            visit(browser, address, project=1, heads=heads, view="decide")
            browser.until(lambda: browser.texts("#card .shares dt"), 60)
            browser.look(PICTURES / "page-decide.png", *DESKTOP, LIGHT)
            browser.open("about:blank")


if __name__ == "__main__":
    main()
