"""Middleware that checks the host, token, origin and body size of every request and adds headers to every response."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fewlink.server.errors import ApiError
from fewlink.server.schema import ServerSettings

OPEN_PATHS = frozenset({"/", "/docs", "/health"})  # need no token
OPEN_FOLDER = "/static/"  # its files need no token
SHARED_PATH = "/reconcile"  # pages of other origins may read it (CORS), as the reconciliation protocol requires
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PAGE = f"{NOTHING}; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:"
HEADERS = {
    "Content-Security-Policy": NOTHING,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class SecurityMiddleware:
    """Checks the host, the token, the origin and the body size of a request, and adds security headers to the response.

    Cancels the app if the client disconnects.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app = app
        self.settings = settings
        self.token = None if settings.token is None else settings.token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Headers(scope=scope)
        shared = is_shared(scope["path"])

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if shared:
                    headers.update(self.cors_headers(request.get("origin", "")))
                    del headers["X-Frame-Options"]  # the policy's frame-ancestors names the pages that may embed it
            await send(message)

        try:
            if shared and scope["method"] == "OPTIONS":  # a CORS preflight
                await Response(status_code=204)(scope, receive, with_headers)
                return
            self.check_host(request)
            self.check_origin(scope["method"], request, shared)
            scope["authorized"] = self.is_authorized(scope, request)
            body = await read_body(request, receive, self.settings.body)
        except ApiError as error:
            refusal = error.response()
            refusal.headers["Connection"] = "close"  # the rest of the body is not read
            await refusal(scope, receive, with_headers)
            return
        if body is not None:
            await run_until_disconnected(self.app, scope, body, receive, with_headers)

    def check_host(self, headers: Headers) -> None:
        """Raise for a foreign Host header, which would be a sign of DNS rebinding."""
        hosts = self.settings.hosts
        if hosts is not None and host_of(headers.get("host", "")) not in hosts:
            message = "the Host header names another server: add this name with --public-name when you start the server"
            raise ApiError(421, "wrong-host", message)

    def check_origin(self, method: str, headers: Headers, shared: bool) -> None:
        """Raise if a page of another site sent a request that may change something or take long."""
        if method in SAFE_METHODS:
            return
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site")
        authority = (origin or "").partition("://")[2]
        if shared:
            hosts = self.settings.hosts
            foreign = origin is not None and hosts is not None and host_of(authority) not in hosts
        elif site is not None:
            foreign = site not in ("same-origin", "none")
        else:
            foreign = origin is not None and authority.lower() != headers.get("host", "").lower()
        if foreign:
            raise ApiError(403, "cross-site", "a page of another site sent this request: open the server's own page")

    def is_authorized(self, scope: Scope, headers: Headers) -> bool:
        """Whether the token is right, or none is needed; raise if it is needed and wrong."""
        if self.token is None:
            return True
        path = scope["path"]
        if path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
            return False
        given = headers.get("authorization", "")
        if is_shared(path) and not given:
            text = scope["query_string"].decode("latin-1")
            query = parse_qs(text, keep_blank_values=True, encoding="latin-1")  # the bytes, as in a header
            if path == SHARED_PATH and scope["method"] == "GET" and not query:
                return False  # the manifest of the reconciliation service tells strangers nothing
            given = f"Bearer {query.get('token', [''])[0]}"
        scheme, _, sent = given.partition(" ")
        valid = hmac.compare_digest(sent.strip().encode("latin-1", "replace"), self.token)
        if scheme.lower() != "bearer" or not valid:
            message = "this server requires a token: send the header 'Authorization: Bearer TOKEN'"
            raise ApiError(401, "token", message, headers={"WWW-Authenticate": "Bearer"})
        return True

    def cors_headers(self, origin: str) -> dict[str, str]:
        """Let other origins read a shared response: any origin, or local ones if the server is local."""
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


async def read_body(headers: Headers, receive: Receive, limit: int) -> bytes | None:
    """The whole body; None if the client disconnects before the end. Raises if it is too large."""
    too_large = ApiError(413, "too-large", f"the body is larger than {limit:,} bytes: split it into several requests")
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > limit:
        raise too_large
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_large
        if not message.get("more_body", False):
            return bytes(body)


async def run_until_disconnected(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Run the app on a request whose body has arrived, and cancel it if the client disconnects."""
    messages: asyncio.Queue[Message] = asyncio.Queue()
    messages.put_nowait({"type": "http.request", "body": body, "more_body": False})

    async def disconnection() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    running = asyncio.ensure_future(app(scope, messages.get, send))
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


def is_shared(path: str) -> bool:
    """Whether pages of other origins may read responses of this path."""
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
    if name not in ("localhost", "::1") and not name.startswith("127."):
        return None
    return frozenset({"localhost", "127.0.0.1", "[::1]", f"[{name}]" if ":" in name else name})
