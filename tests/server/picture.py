"""The picture of the page in README.md: a question to ATT&CK, in a real browser.

python -m tests.server.picture docs/pictures/page.png
"""

from __future__ import annotations

import json
import sys
import urllib.parse
from pathlib import Path

from tests.server.browser import Browser
from tests.server.servers import on_a_port

from fewlink.linker import load
from fewlink.server.app import make_app

WIDTH, HEIGHT = 1240, 1230
REFERENCES = [["APT38", "Windows"], ["TeamTNT", "Containers"], ["Scattered Spider", "IaaS"]]
HEADS = ["Sandworm Team", "FIN7"]


def take(path: Path) -> None:
    """Ask which platforms two groups attack, explain the best answer, and store what the window shows."""
    linker = load("attack")
    identify = linker.names.find
    question = {
        "references": json.dumps([[linker.graph.entities[identify(name)] for name in pair] for pair in REFERENCES]),
        "heads": json.dumps([linker.graph.entities[identify(name)] for name in HEADS]),
        "relation": "attacks",
    }
    with on_a_port(make_app(linker)) as (address, _), Browser() as browser:
        browser.resize(WIDTH, HEIGHT, [("prefers-color-scheme", "light"), ("prefers-reduced-motion", "reduce")])
        browser.open(f"{address}/#ask&{urllib.parse.urlencode(question, quote_via=urllib.parse.quote)}")
        browser.until(lambda: browser.texts(".row"))
        browser.focus(".row")
        browser.press("e")
        browser.until(lambda: "Loading" not in (browser.text(".reasons") or "Loading"))
        browser.run(
            "document.activeElement.blur(); scrollTo(0, 0); document.documentElement.style.scrollbarWidth = 'none'"
        )
        browser.look(path, WIDTH, HEIGHT, [("prefers-color-scheme", "light"), ("prefers-reduced-motion", "reduce")])
        browser.open("about:blank")


if __name__ == "__main__":
    take(Path(sys.argv[1]))
