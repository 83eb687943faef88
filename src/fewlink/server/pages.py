"""The page for curators at / and the description of the interface at /docs: one document each, without other files."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources
from typing import NamedTuple

from starlette.responses import Response

SCRIPTS = {
    "page": (
        "elements",
        "server",
        "saved",
        "fields",
        "entity",
        "reasons",
        "results",
        "filters",
        "project",
        "decide",
        "share",
        "main",
    ),
    "docs": ("elements", "server", "docs"),
}


class Page(NamedTuple):
    """A document with inline style and script, and the policy that allows only these."""

    html: bytes
    policy: str

    def response(self) -> Response:
        headers = {"Content-Security-Policy": self.policy, "Cache-Control": "no-cache"}
        return Response(self.html, headers=headers, media_type="text/html")


@functools.cache
def page(name: str) -> Page:
    """The page for curators (`page`) or the one about the interface (`docs`), with its Content-Security-Policy."""
    files = resources.files("fewlink.server") / "static"
    style = (files / "page.css").read_text("utf-8")
    parts = [(files / f"{script}.js").read_text("utf-8") for script in SCRIPTS[name]]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"
    html = (files / f"{name}.html").read_text("utf-8").replace("<!-- style -->", f"<style>{style}</style>")
    html = html.replace("<!-- script -->", f"<script>{script}</script>")
    policy = [
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(style)}'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return Page(html.encode(), "; ".join(policy))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
