"""Take the pictures of the page for curators again: docs/pictures/page*.png.

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
from fewlink.server.app import make_app  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
REFERENCES = [("Scattered Spider", "SaaS"), ("Sandworm Team", "Windows"), ("TeamTNT", "Containers")]
HEADS = ["APT29", "Rocke", "Windshift"]
FIRST = {  # the question of README's picture
    "references": [("APT38", "Windows"), ("TeamTNT", "Containers"), ("Scattered Spider", "IaaS")],
    "heads": ["Sandworm Team", "FIN7"],
}
FEATURES = [("prefers-color-scheme", "light"), ("prefers-reduced-motion", "reduce")]


def main() -> None:
    linker = fewlink.load("attack")

    def number(name: str) -> str:
        return str(linker.graph.entities[linker.names.find(name)])

    pairs = [(number(head), number(tail)) for head, tail in REFERENCES]
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        path = Path(folder) / "attack.decisions"
        with ProjectFile(path) as file:
            file.add_project("attacks platform", pairs, who="ann")
        with on_a_port(make_app(linker, project=path)) as (address, _):
            browser.resize(1240, 900, FEATURES)
            browser.devtools("Emulation.setScrollbarsHidden", hidden=True)
            browser.open(f"{address}/health")
            browser.run("localStorage.clear(); localStorage.setItem('fewlink:who', 'ann')")
            pairs = [[number(end) for end in pair] for pair in FIRST["references"]]
            question = {"references": json.dumps(pairs), "heads": json.dumps([number(head) for head in FIRST["heads"]])}
            browser.open(f"{address}/#ask&{urlencode({**question, 'relation': 'attacks'})}")
            browser.until(lambda: len(browser.texts(".row")) > 15, 60)
            browser.run("document.querySelector('.row').focus()")
            browser.press("e")
            browser.until(lambda: browser.texts(".shares dt"), 60)
            browser.run("document.activeElement.blur(); scrollTo(0, 0)")
            browser.look(PICTURES / "page.png", 1240, 1230, FEATURES)
            browser.open("about:blank")
            question = {"project": 1, "heads": json.dumps([number(head) for head in HEADS])}
            browser.open(f"{address}/#ask&{urlencode(question)}")
            browser.until(lambda: len(browser.texts(".row")) > 20, 60)
            browser.run("document.querySelector('.row').focus(); scrollTo(0, 0)")
            browser.press("a")
            browser.until(lambda: browser.texts("#accepted-list li"))
            browser.look(PICTURES / "page-list.png", 1240, 860, FEATURES)
            browser.open("about:blank")
            browser.open(f"{address}/#ask&{urlencode({**question, 'view': 'decide'})}")
            browser.until(lambda: browser.texts("#card .shares dt"), 60)
            browser.look(PICTURES / "page-decide.png", 1240, 1000, FEATURES)


if __name__ == "__main__":
    main()
