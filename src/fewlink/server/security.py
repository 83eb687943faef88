"""Checks of every request before it reaches the app (host, token, size of the body) and headers of every response."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fewlink.server.errors import ApiError, busy
from fewlink.server.schema import ServerSettings

OPEN_PATHS = frozenset({"/", "/docs", "/health"})  # need no token
OPEN_FOLDER = "/static/"  # nor do the files in it
SHARED_PATH = "/reconcile"  # pages of other origins may read responses under this path (CORS): its protocol demands it
MAX_BUFFERED = 32 << 20  # bytes of all bodies that are still arriving
UNCOUNTED = 16 << 10  # bytes of each body that do not count as buffered, so that small requests always get through
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

    If the client disconnects, the app is cancelled.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app, self.settings = app, settings
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
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if is_shared(scope):  # frame-ancestors of the policy says which pages may embed the response
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
            await error.response()(scope, receive, with_headers)
            return
        except Disconnected:
            return
        await run_until_disconnected(self.app, scope, receive_body, receive, with_headers)

    def check(self, scope: MutableMapping[str, Any]) -> None:
        """Reject a wrong token, and a foreign Host header, which DNS rebinding by another site would send."""
        headers = Headers(scope=scope)
        if self.settings.hosts is not None and host_of(headers.get("host", "")) not in self.settings.hosts:
            message = "the Host header names another server; --public-name adds a name for this one"
            raise ApiError(421, "wrong-host", message)
        is_open = scope["path"] in OPEN_PATHS or scope["path"].startswith(OPEN_FOLDER)
        if self.token is not None and not is_open:
            given = headers.get("authorization", "")
            if is_shared(scope) and not given:
                query = parse_qs(scope["query_string"].decode("latin-1"))
                if scope["path"] == SHARED_PATH and scope["method"] == "GET" and not query:
                    return  # the manifest of the reconciliation service
                given = f"Bearer {query.get('token', [''])[0]}"
            scheme, _, sent = given.partition(" ")
            valid = hmac.compare_digest(sent.strip().encode("latin-1", "replace"), self.token)
            if scheme.lower() != "bearer" or not valid:
                message = "this server requires a token: send the header 'Authorization: Bearer TOKEN'"
                raise ApiError(401, "token", message, headers={"WWW-Authenticate": "Bearer"})

    def cors_headers(self, scope: MutableMapping[str, Any]) -> dict[str, str]:
        """Let pages of other origins read a shared response: any origin, or only this machine if only it is served."""
        if not is_shared(scope):
            return {}
        origin, hosts = Headers(scope=scope).get("origin", ""), self.settings.hosts
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
        """A `receive` that returns the whole body at once; raises if the body is larger than allowed."""
        limit = self.settings.body
        length = Headers(scope=scope).get("content-length", "0")
        too_large = ApiError(
            413, "too-large", f"the body is larger than {limit:,} bytes: split it into several requests"
        )
        if length.isdecimal() and int(length[:20]) > limit:
            raise too_large
        body, more, counted = bytearray(), True, 0
        try:
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise Disconnected
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > limit:
                    raise too_large
                if more and (further := len(body) - UNCOUNTED - counted) > 0:
                    if self.buffered + further > MAX_BUFFERED:
                        raise busy("too many large requests are arriving", 5)
                    counted += further
                    self.buffered += further
        finally:
            self.buffered -= counted
        messages = iter([{"type": "http.request", "body": bytes(body), "more_body": False}])
        never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def receive_body() -> Message:
            if (message := next(messages, None)) is not None:
                return message
            return await never  # `run_until_disconnected` waits for the disconnection

        return receive_body


async def run_until_disconnected(app: ASGIApp, scope: Scope, body: Receive, receive: Receive, send: Send) -> None:
    """Run the app on a request whose body has arrived, and cancel it if the client disconnects."""

    async def disconnection() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    running, disconnected = asyncio.ensure_future(app(scope, body, send)), asyncio.ensure_future(disconnection())
    try:
        await asyncio.wait({running, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        for task in (running, disconnected):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


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
    """The names of a server that listens on the loopback device; None if it listens on another address."""
    name = host.strip("[]").lower()
    if name != "localhost" and name != "::1" and not name.startswith("127."):
        return None
    return frozenset({"localhost", "127.0.0.1", "[::1]", f"[{name}]" if ":" in name else name})
