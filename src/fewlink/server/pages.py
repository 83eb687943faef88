"""The page for curators, the page about the HTTP interface, and the style sheets and ES modules that they load."""

from __future__ import annotations

import functools
import hashlib
from importlib import resources
from typing import NamedTuple

from fastapi import FastAPI, HTTPException, Request
from starlette.responses import Response

TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "txt": "text/plain"}
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)


class StaticFile(NamedTuple):
    """A file of a page, as sent to browsers."""

    content: bytes
    media_type: str
    etag: str

    def response(self, request: Request) -> Response:
        """The file, or status 304 if the browser already has this version."""
        headers = {"Cache-Control": "no-cache", "ETag": self.etag}
        if self.media_type == "text/html":
            headers["Content-Security-Policy"] = POLICY
        if request.headers.get("if-none-match") == self.etag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)


@functools.cache
def static_files() -> dict[str, StaticFile]:
    """The files of the folder `static` by name, read once."""
    files = {}
    for path in (resources.files("fewlink.server") / "static").iterdir():
        content = path.read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        files[path.name] = StaticFile(content, TYPES[path.name.rpartition(".")[2]], etag)
    return files


def install_pages(app: FastAPI) -> None:
    """Add the routes of both pages and of the files they load."""

    @app.get("/", include_in_schema=False)
    async def curators(request: Request) -> Response:
        return static_files()["page.html"].response(request)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return static_files()["docs.html"].response(request)

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str, request: Request) -> Response:
        file = static_files().get(name)
        if file is None:
            raise HTTPException(404)
        return file.response(request)
