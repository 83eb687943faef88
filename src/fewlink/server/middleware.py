"""Checks of every request before the app (host, token, size of the body), security headers of every answer, metrics and
the access log."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fewlink import __version__
from fewlink.core.errors import FewlinkError, ScoreError, UnknownName
from fewlink.linker import Linker
from fewlink.server.admission import CALLER, Caller, Refused
from fewlink.server.connections import Connections
from fewlink.server.logs import AccessLog
from fewlink.server.metrics import Registry, open_files, resident_bytes
from fewlink.server.schema import ServerSettings

OPEN = frozenset({"/", "/docs", "/health"})  # paths that need no token, beside those under /static/
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
REFUSALS = frozenset({"busy", "closing", "cost", "deadline", "limit"})  # codes of errors that metrics count
GONE = 499  # the status in metrics and logs of a request whose client has disconnected
SHARED = "/reconcile"  # pages of other sites may read the answers under this path (CORS), as its protocol demands
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


PIECE = 200  # items of a list that are written as JSON at once
FREE = 16 << 10  # bytes of a body that do not count as buffered


class ObservingMiddleware:
    """The outermost middleware: says whose request it is, counts it, and writes its line of the access log."""

    def __init__(self, app: ASGIApp, registry: Registry, log: AccessLog | None = None) -> None:
        self.app, self.log, self.open = app, log, 0
        self.requests = registry.counter(
            "fewlink_requests_total", "Requests by path, method and status.", ("path", "method", "status")
        )
        self.seconds = registry.histogram("fewlink_request_seconds", "Seconds until the answer was sent.", ("path",))
        self.waited = registry.histogram("fewlink_queue_seconds", "Seconds that a request waited for its turns.")
        self.refused = registry.counter("fewlink_refused_total", "Requests that were refused, by reason.", ("reason",))
        registry.gauge("fewlink_open_requests", "Requests that are being answered.", lambda: self.open)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        caller, begin, status, size = Caller((scope.get("client") or ("",))[0]), time.perf_counter(), 0, 0

        async def counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                if reason := scope.get("refused"):
                    self.refused.add(reason)
            size += len(message.get("body", b""))
            await send(message)

        self.open += 1
        token = CALLER.set(caller)
        try:
            await self.app(scope, receive, counted)
        finally:
            CALLER.reset(token)
            self.open -= 1
            seconds, status = time.perf_counter() - begin, status or GONE
            path = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.requests.add(path, method, str(status))
            self.seconds.observe(seconds, path)
            if caller.waited:
                self.waited.observe(caller.waited)
            if self.log is not None:
                facts = {"client": caller.client, "method": scope["method"], "path": scope["path"], "status": status}
                self.log.write(**facts, seconds=seconds, size=size, waited=caller.waited)


def register(registry: Registry, app: FastAPI, linker: Linker, connections: Connections, log: AccessLog | None) -> None:
    """The metrics of a server besides those of its requests."""
    state, graph, began = app.state, linker.graph, time.time()
    facts = {"version": __version__, "model": linker.scorer.name, "graph": linker.benchmark.name}
    readings: dict[str, tuple[str, Callable[[], float]]] = {
        "fewlink_graph_entities": ("Entities of the graph.", lambda: len(graph.entities)),
        "fewlink_graph_triples": ("Triples of the graph.", lambda: graph.triple_count),
        "fewlink_waiting_requests": ("Requests that were let in.", lambda: len(state.service.admission)),
        "fewlink_waiting_seconds": ("Their estimated seconds of work.", lambda: state.service.admission.left),
        "fewlink_queue_length": ("Parts of requests in the queue.", lambda: len(state.service.batcher.queue)),
        "fewlink_batches_total": ("Batches that were answered.", lambda: state.service.batcher.batches),
        "fewlink_connections": ("Open connections.", lambda: len(connections)),
        "fewlink_dropped_connections_total": ("Slow or idle ones closed for new ones.", lambda: connections.dropped),
        "fewlink_buffered_bytes": ("Bytes of unfinished requests.", lambda: connections.buffered),
        "fewlink_dropped_log_lines_total": ("Lines of the access log not written.", lambda: log.dropped if log else 0),
        "process_resident_memory_bytes": ("Memory in use.", resident_bytes),
        "process_open_fds": ("Open files and sockets.", open_files),
        "process_start_time_seconds": ("When the server started, in seconds since 1970.", lambda: began),
    }
    registry.gauge("fewlink_info", "Version, model and graph.", lambda: 1, facts)
    for name, (about, read) in readings.items():
        registry.gauge(name, about, read)


class Disconnected(Exception):
    """The client has gone before it sent the whole request."""


class SecurityMiddleware:
    """An ASGI middleware that checks host, token and size of a request and adds security headers to the answer.

    If the client disconnects, the app is cancelled.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, connections: Connections | None = None) -> None:
        self.app, self.settings = app, settings
        self.connections = Connections() if connections is None else connections
        self.token = None if settings.token is None else settings.token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self.sharing(scope))
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if is_shared(scope):  # the policy says which pages may show an answer in a frame
                    del headers["X-Frame-Options"]
            await send(message)

        try:
            if is_shared(scope) and scope["method"] == "OPTIONS":  # a browser asks before it sends
                await Response(status_code=204)(scope, receive, with_headers)
                return
            self.check(scope)
            receive_all = await self.read_body(scope, receive)
        except ApiError as error:
            scope["refused"] = error.code
            await error.response()(scope, receive, with_headers)
            return
        except Disconnected:
            return
        await unless_disconnected(self.app, scope, receive_all, receive, with_headers)

    def check(self, scope: MutableMapping[str, Any]) -> None:
        """Raise for a wrong token or a foreign Host header, which a page of another site would send (DNS rebinding)."""
        headers = Headers(scope=scope)
        if self.settings.hosts is not None and host_of(headers.get("host", "")) not in self.settings.hosts:
            message = "this server is not known by the name in the Host header; --public-name adds one"
            raise ApiError(421, "wrong-host", message)
        if self.token is not None and scope["path"] not in OPEN and not scope["path"].startswith("/static/"):
            given = headers.get("authorization", "")
            if is_shared(scope) and not given:
                query = parse_qs(scope["query_string"].decode("latin-1"))
                if scope["path"] == SHARED and scope["method"] == "GET" and not query:
                    return  # the description of the service
                given = f"Bearer {query.get('token', [''])[0]}"
            scheme, _, sent = given.partition(" ")
            valid = hmac.compare_digest(sent.strip().encode("latin-1", "replace"), self.token)
            if scheme.lower() != "bearer" or not valid:
                message = "a token is needed: send the header 'Authorization: Bearer TOKEN'"
                raise ApiError(401, "token", message, headers={"WWW-Authenticate": "Bearer"})

    def sharing(self, scope: MutableMapping[str, Any]) -> dict[str, str]:
        """Headers that let pages of other origins read an answer: of any, or of this machine if only it is served."""
        if not is_shared(scope):
            return {}
        origin, hosts = Headers(scope=scope).get("origin", ""), self.settings.hosts
        headers = {"Vary": "Origin", "Cross-Origin-Resource-Policy": "cross-origin"}
        if hosts is not None and host_of(origin.partition("://")[2]) not in hosts:
            return headers
        allowed = {"Methods": "GET, POST", "Headers": "Authorization, Content-Type", "Origin": origin or "*"}
        return {**headers, **{f"Access-Control-Allow-{name}": value for name, value in allowed.items()}}

    async def read_body(self, scope: MutableMapping[str, Any], receive: Receive) -> Receive:
        """A `receive` that gives the whole body in one piece; raises if it is larger than allowed."""
        most = self.settings.body
        length = Headers(scope=scope).get("content-length", "0")
        too_large = ApiError(
            413, "too-large", f"the body is larger than {most:,} bytes: split it into several requests"
        )
        if length.isdecimal() and int(length[:20]) > most:
            raise too_large
        parts, size, more, reserved = [], 0, True, 0
        try:
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise Disconnected
                parts.append(message.get("body", b""))
                size, more = size + len(parts[-1]), message.get("more_body", False)
                if size > most:
                    raise too_large
                if more and (further := size - FREE - reserved) > 0:
                    if not self.connections.reserve(further):
                        wait = {"Retry-After": "5"}
                        raise ApiError(503, "busy", "too many unfinished requests: try again in 5 s", headers=wait)
                    reserved += further
        finally:
            self.connections.release(reserved)
        pieces = iter([{"type": "http.request", "body": b"".join(parts), "more_body": False}])
        never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def receive_body() -> Message:
            if (piece := next(pieces, None)) is not None:
                return piece
            return await never  # the middleware waits for the disconnection

        return receive_body


async def unless_disconnected(app: ASGIApp, scope: Scope, receive_all: Receive, receive: Receive, send: Send) -> None:
    """Run the app on a whole request, and cancel it if the client disconnects."""

    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    running, gone = asyncio.ensure_future(app(scope, receive_all, send)), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        for task in (running, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


def is_shared(scope: MutableMapping[str, Any]) -> bool:
    """Whether a request is for a path whose answers other sites may read."""
    path: str = scope["path"]
    return path == SHARED or path.startswith(f"{SHARED}/")


def host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    name = header.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.rpartition(":")[0] if name.rpartition(":")[2].isdecimal() and ":" in name else name


def own_hosts(host: str) -> frozenset[str] | None:
    """The names of a server that listens on the loopback device; None if it listens on another address."""
    name = host.strip("[]").lower()
    if name != "localhost" and name != "::1" and not name.startswith("127."):
        return None
    return frozenset({"localhost", "127.0.0.1", "[::1]", f"[{name}]" if ":" in name else name})


CODES = {400: "bad-request", 404: "not-found", 405: "method-not-allowed"}


class ApiError(Exception):
    """An error that is sent as the answer."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None = None,
        suggestions: Sequence[dict[str, str]] = (),
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers
        content = {"code": code, "message": message, "field": field, "suggestions": list(suggestions) or None}
        self.content = {"error": {key: value for key, value in content.items() if value is not None}}

    def response(self) -> Response:
        return as_json(self.content, self.status, self.headers)


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in ASCII, in which any character of a name can be written."""
    return Response(_text(content), status, headers, media_type="application/json")


def _text(content: Any) -> str:
    """JSON; long lists are written in pieces, as other threads, the event loop too, wait for each piece."""
    if isinstance(content, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_text(value)}" for key, value in content.items()) + "}"
    if isinstance(content, list) and len(content) > PIECE:
        pieces = (content[begin : begin + PIECE] for begin in range(0, len(content), PIECE))
        return "[" + ", ".join(json.dumps(piece, allow_nan=False)[1:-1] for piece in pieces) + "]"
    return json.dumps(content, allow_nan=False)


def install(app: FastAPI) -> None:
    """Make an app send all errors in one form."""

    async def send(request: Request, error: Exception) -> Response:
        sent = as_api_error(error)
        if sent.code in REFUSALS:
            request.scope["refused"] = sent.code
        return sent.response()

    for kind in (ApiError, FewlinkError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, send)


def as_api_error(error: Exception) -> ApiError:
    """404 for an unknown name, 500 for a failure of the model or the server, 422 for what a user can correct."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Refused):
        headers = None if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        return ApiError(422 if headers is None else 503, error.reason, str(error), headers=headers)
    if isinstance(error, ScoreError):
        return ApiError(500, "score", str(error))
    if isinstance(error, UnknownName):
        return ApiError(404, "unknown-name", str(error))
    if isinstance(error, FewlinkError):
        return ApiError(422, "refused", str(error))
    if isinstance(error, RequestValidationError):
        return of_validation(error.errors())
    if isinstance(error, HTTPException):
        code = CODES.get(error.status_code, "error")
        headers = dict(error.headers) if error.headers else None
        return ApiError(error.status_code, code, str(error.detail), headers=headers)
    return ApiError(500, "internal", "the server failed on this request; see its log")


def of_validation(errors: Sequence[Any]) -> ApiError:
    """The first violation of the schema, and the number of further fields with one."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return ApiError(422, "invalid-json", f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    field = field_of(first["loc"])
    fields = {field_of(error["loc"]) for error in errors}
    more = f" (and {len(fields) - 1} more fields)" if len(fields) > 1 else ""
    return ApiError(422, "invalid", f"{field or 'the body'}: {first['msg']}{more}", field or None)


def field_of(location: Sequence[str | int]) -> str:
    """`heads.3` from a location in the request, without pydantic's names for the members of a union."""
    parts = [str(part) for part in location[1:] if isinstance(part, int) or part.isidentifier()]
    return ".".join(part for part in parts if part not in ("str", "list"))
