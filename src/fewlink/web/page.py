"""The page for curators: one document with inline style and script, and the policy that allows only these."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources
from typing import NamedTuple

SCRIPTS = ("elements", "server", "saved", "fields", "reasons", "results", "accepted", "main")


class Page(NamedTuple):
    html: bytes
    policy: str


@functools.cache
def page() -> Page:
    """The page as it is sent, and its Content-Security-Policy."""
    files = resources.files("fewlink.web") / "static"
    style = (files / "page.css").read_text("utf-8")
    parts = [(files / f"{name}.js").read_text("utf-8") for name in SCRIPTS]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"
    html = (files / "page.html").read_text("utf-8").replace("<!-- style -->", f"<style>{style}</style>")
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
