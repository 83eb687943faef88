"""Middleware that checks the host, token and body size of every request and adds headers to every response."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fewlink.server.errors import ApiError, busy
from fewlink.server.schema import ServerSettings

OPEN_PATHS = frozenset({"/", "/docs", "/health"})  # need no token
OPEN_FOLDER = "/static/"  # its files need no token
FILE_PATHS = frozenset({"/graphs", "/graphs/preview"})  # take files, which may be larger than other bodies
SHARED_PATH = "/reconcile"  # pages of other origins may read it (CORS), as the reconciliation protocol requires
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_BUFFERED_BYTES = 32 << 20  # of all bodies that are still arriving
UNCOUNTED_BYTES = 16 << 10  # of each body: small requests always get through
RETRY_SECONDS = 5  # after too many large bodies
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Disconnected(Exception):
    """The client disconnected before it had sent the whole request."""


class SecurityMiddleware:
    """Checks the host, the token and the body size of a request, and adds security headers to the response.

    Cancels the app if the client disconnects. While the server is `closing`, each response ends its connection.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, closing: Callable[[], bool] = lambda: False) -> None:
        self.app = app
        self.settings = settings
        self.closing = closing
        self.token = None if settings.token is None else settings.token.encode()
        self.buffered = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self.cors_headers(scope))
                if self.closing():
                    headers["Connection"] = "close"  # the client's next request goes to another process
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if is_shared(scope):  # the policy's frame-ancestors names the pages that may embed the response
                    del headers["X-Frame-Options"]
            await send(message)

        try:
            if is_shared(scope) and scope["method"] == "OPTIONS":  # a CORS preflight
                await Response(status_code=204)(scope, receive, with_headers)
                return
            self.check(scope)
            receive_body = await self.read_body(scope, receive)
        except ApiError as error:
            scope["error_code"] = error.code
            refusal = error.response()
            if not self.has_arrived(scope):
                refusal.headers["Connection"] = "close"  # the rest of the body is not read
            await refusal(scope, receive, with_headers)
            return
        except Disconnected:
            return
        await run_until_disconnected(self.app, scope, receive_body, receive, with_headers)

    def has_arrived(self, scope: MutableMapping[str, Any]) -> bool:
        """Whether a refused request has no body."""
        headers = Headers(scope=scope)
        return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers

    def check(self, scope: MutableMapping[str, Any]) -> None:
        """Raise for a wrong token, and for a foreign Host header, which would be a sign of DNS rebinding."""
        headers = Headers(scope=scope)
        if self.settings.hosts is not None and host_of(headers.get("host", "")) not in self.settings.hosts:
            message = "the Host header names another server: add this name with --public-name when you start the server"
            raise ApiError(421, "wrong-host", message)
        self.check_origin(scope["method"], headers, is_shared(scope))
        scope["authorized"] = self.token is None
        path = path_in_graph(scope["path"])
        is_open = path in OPEN_PATHS or path.startswith(OPEN_FOLDER)
        if self.token is not None and not is_open:
            given = headers.get("authorization", "")
            if is_shared(scope) and not given:
                text = scope["query_string"].decode("latin-1")
                query = parse_qs(text, keep_blank_values=True, encoding="latin-1")  # the bytes, as in a header
                if scope["path"] == SHARED_PATH and scope["method"] == "GET" and not query:
                    return  # the manifest of the reconciliation service
                given = f"Bearer {query.get('token', [''])[0]}"
            scheme, _, sent = given.partition(" ")
            valid = hmac.compare_digest(sent.strip().encode("latin-1", "replace"), self.token)
            if scheme.lower() != "bearer" or not valid:
                message = "this server requires a token: send the header 'Authorization: Bearer TOKEN'"
                raise ApiError(401, "token", message, headers={"WWW-Authenticate": "Bearer"})
            scope["authorized"] = True

    def check_origin(self, method: str, headers: Headers, shared: bool) -> None:
        """Raise if a page of another site sent a request that may change something or take long."""
        if method in SAFE_METHODS:
            return
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site")
        authority = (origin or "").partition("://")[2]
        if shared:
            foreign = origin is not None and self.settings.hosts is not None
            foreign = foreign and host_of(authority) not in (self.settings.hosts or ())
        elif site is not None:
            foreign = site not in ("same-origin", "none")
        else:
            foreign = origin is not None and authority.lower() != headers.get("host", "").lower()
        if foreign:
            raise ApiError(403, "cross-site", "a page of another site sent this request: open the server's own page")

    def cors_headers(self, scope: MutableMapping[str, Any]) -> dict[str, str]:
        """Let other origins read a shared response: any origin, or local ones if the server is local."""
        if not is_shared(scope):
            return {}
        origin = Headers(scope=scope).get("origin", "")
        hosts = self.settings.hosts
        headers = {"Vary": "Origin", "Cross-Origin-Resource-Policy": "cross-origin"}
        if hosts is not None and host_of(origin.partition("://")[2]) not in hosts:
            return headers
        return {
            **headers,
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Allow-Headers": "Authorization, Content-Type",
            "Access-Control-Allow-Origin": origin or "*",
        }

    async def read_body(self, scope: MutableMapping[str, Any], receive: Receive) -> Receive:
        """Read the whole body and return a `receive` for it; raise if the body is too large."""
        limit = self.settings.body
        what = "body"
        advice = "split it into several requests"
        if self.settings.upload and scope["path"] in FILE_PATHS:
            limit = self.settings.upload
            what = "file"
            advice = "start a server for it with fewlink serve FILE"
        length = Headers(scope=scope).get("content-length", "0")
        too_large = ApiError(413, "too-large", f"the {what} is larger than {limit:,} bytes: {advice}")
        if length.isdecimal() and int(length[:20]) > limit:
            raise too_large
        body = bytearray()
        counted = 0
        more = True
        try:
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise Disconnected
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > limit:
                    raise too_large
                further = len(body) - UNCOUNTED_BYTES - counted
                if more and further > 0:
                    if self.buffered + further > MAX_BUFFERED_BYTES:
                        raise busy("too many large requests are arriving", RETRY_SECONDS)
                    counted += further
                    self.buffered += further
        finally:
            self.buffered -= counted
        messages = iter([{"type": "http.request", "body": bytes(body), "more_body": False}])
        never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def receive_body() -> Message:
            for message in messages:
                return message
            return await never  # `run_until_disconnected` notices the disconnection

        return receive_body


async def run_until_disconnected(app: ASGIApp, scope: Scope, body: Receive, receive: Receive, send: Send) -> None:
    """Run the app on a request whose body has arrived, and cancel it if the client disconnects."""

    async def disconnection() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    running = asyncio.ensure_future(app(scope, body, send))
    disconnected = asyncio.ensure_future(disconnection())
    try:
        await asyncio.wait({running, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        for task in (running, disconnected):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


def path_in_graph(path: str) -> str:
    """A path without /graphs/NAME, which leads to the app of an opened graph."""
    match path.split("/", 3):
        case ["", "graphs", _, rest]:
            return f"/{rest}"
    return path


def is_shared(scope: MutableMapping[str, Any]) -> bool:
    """Whether pages of other origins may read the response."""
    path: str = scope["path"]
    return path == SHARED_PATH or path.startswith(f"{SHARED_PATH}/")


def host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    name = header.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    host, colon, port = name.rpartition(":")
    return host if colon and port.isdecimal() else name


def loopback_hosts(host: str) -> frozenset[str] | None:
    """The names of a server that listens on the loopback interface; None for any other address."""
    name = host.strip("[]").lower()
    if name != "localhost" and name != "::1" and not name.startswith("127."):
        return None
    return frozenset({"localhost", "127.0.0.1", "[::1]", f"[{name}]" if ":" in name else name})
