"""In a browser, a page of another local origin, such as OpenRefine, can use the service; other sites cannot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import quote

import pytest
from tests.server.browser import CHROMIUM, DRIVER, Browser
from tests.server.servers import on_a_port, small

from fewlink.bridges import openrefine
from fewlink.server import ServerSettings
from fewlink.server.app import make_app
from fewlink.server.security import loopback_hosts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver"),
]
FETCH = "return fetch(arguments[0], arguments[1]).then(answer => answer.json(), error => 'refused')"


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>refine</title>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def refine() -> Iterator[str]:
    """The address of a page of another origin."""
    server = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def test_a_page_of_this_machine_reconciles_suggests_and_shows_previews(refine: str) -> None:
    app = make_app(small(), ServerSettings(hosts=loopback_hosts("127.0.0.1")), extensions=[openrefine.install])
    with on_a_port(app) as (address, _), Browser() as browser:
        browser.open(refine)
        manifest = browser.run(FETCH, f"{address}/reconcile")
        entity = manifest["suggest"]["entity"]
        found = browser.run(FETCH, f"{entity['service_url']}{entity['service_path']}?prefix=an")
        assert found["result"][0]["id"] == "ann"
        form = {"method": "POST", "body": "queries=" + quote('{"q": {"query": "ann"}}')}
        form["headers"] = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": "Bearer x"}  # type: ignore[assignment]
        assert browser.run(FETCH, f"{address}/reconcile", form)["q"]["result"][0]["match"]
        assert browser.run(FETCH, f"{address}/about") == "refused"
        preview = manifest["preview"]["url"].replace("{{id}}", "ann")
        browser.run(
            "const f = document.createElement('iframe'); f.src = arguments[0]; document.body.append(f)", preview
        )
        browser.send("/frame", {"id": 0})
        browser.until(lambda: "lives → oslo" in browser.run("return document.body ? document.body.innerText : ''"))
        browser.send("/frame", {"id": None})
        browser.open("data:text/html,<title>another site</title>")
        assert browser.run(FETCH, f"{address}/reconcile") == "refused"
