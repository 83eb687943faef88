"""The HTTP interface of a linker. It opens no path from a request, and writes nothing but decisions."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import prometheus_client
from fastapi import Depends, FastAPI, Query, Request, Security
from fastapi.security import HTTPBearer
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import fewlink
from fewlink.linker import Linker
from fewlink.server import lookups
from fewlink.server.errors import as_json, install_error_handlers
from fewlink.server.projects import Projects, install_projects
from fewlink.server.schema import (
    MAX_NAME_LENGTH,
    MAX_NEIGHBOURS,
    MAX_RELATIONS,
    About,
    EntityAnswer,
    EntityOffer,
    ErrorAnswer,
    Example,
    ExplainAnswer,
    ExplainRequest,
    PredictAnswer,
    PredictRequest,
    RelationList,
    ServerSettings,
    TypeOffer,
)
from fewlink.server.security import OPEN_PATHS, PAGE, SecurityMiddleware
from fewlink.server.service import Service

STATIC = Path(__file__).parent / "static"
METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})  # others are counted together
CLIENT_GONE = 499  # status of a request whose client disconnected, as in nginx
Typed = Annotated[str, Query(max_length=MAX_NAME_LENGTH, description="The text typed so far.")]
Name = Annotated[str, Query(max_length=MAX_NAME_LENGTH)]
Limit = Annotated[int, Query(ge=1, le=100)]
Place = Annotated[int, Query(ge=0)]
BEARER = HTTPBearer(auto_error=False, description="The token of `fewlink serve --token`.")  # described, not checked
Extension = Callable[[FastAPI, Linker, ServerSettings], None]
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": description}
    for status, description in {
        400: "The body cannot be read",
        401: "The token is missing or wrong",
        404: "A name is unknown",
        413: "The body is too large",
        421: "The Host header names another server",
        422: "The request is invalid, or asks for too much",
        503: "Too many requests are waiting: Retry-After says when to try again",
        504: "The deadline has passed",
    }.items()
}


def make_app(
    linker: Linker,
    settings: ServerSettings | None = None,
    project: Path | None = None,
    *,
    extensions: Sequence[Extension] = (),
    access_log: logging.Handler | None = None,
) -> FastAPI:
    """An app that answers with this linker and stores decisions in the file `project`.

    Each of `extensions` is called with the app, the linker and the settings, and adds routes. Each request becomes a
    line of JSON in `access_log`.
    """
    settings = settings or ServerSettings()
    service = Service(linker, settings)
    projects = Projects(linker, project)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()
        projects.close()

    async def check_files(request: Request) -> None:
        if request.url.path not in OPEN_PATHS:
            linker.graph.check_files()  # reading a file that was cut off would end the process

    app = FastAPI(
        title="fewlink",
        version=fewlink.__version__,
        summary="Ranked and explained tails from a handful of references of a relation.",
        docs_url=None,  # FastAPI's page loads scripts from another site; static/docs.html does not
        redoc_url=None,
        lifespan=lifespan,
        responses=ERRORS,
        dependencies=[Depends(check_files), *([] if settings.token is None else [Security(BEARER)])],
    )
    app.state.service = service
    app.state.projects = projects
    metrics = Metrics(linker, service)
    app.add_middleware(SecurityMiddleware, settings=settings)
    app.add_middleware(ObservingMiddleware, metrics=metrics, log=access_log)  # outermost
    install_error_handlers(app)
    install_pages(app)
    install_projects(app, projects, service)

    @app.get("/health")
    async def health() -> Response:
        """Check that the server is running. Needs no token."""
        return as_json({"status": "ok", "version": fewlink.__version__})

    @app.get("/metrics", include_in_schema=False)
    async def all_metrics() -> Response:
        return metrics.response()

    @app.get("/about", response_model=About)
    def about() -> Response:
        """The model, its graph, its calibration, and the limits of one request."""
        return as_json(lookups.about(linker, settings))

    @app.get("/entities", response_model=list[EntityOffer])
    def entities(q: Typed = "", limit: Limit = 10) -> Response:
        """Entities that complete the typed text, best first."""
        return as_json(lookups.entities(linker, q, limit))

    @app.get("/entity", response_model=EntityAnswer)
    def entity(
        id: Annotated[Name, Query(description="An id or a name.")],
        q: Annotated[Name, Query(description="Only edges with this text in the relation or neighbour.")] = "",
        first_relation: Annotated[Place, Query(description="The position of the first relation to return.")] = 0,
        relations: Annotated[int, Query(ge=1, le=MAX_RELATIONS)] = 12,
        first: Annotated[Place, Query(description="The position of the first neighbour of each relation.")] = 0,
        count: Annotated[int, Query(ge=1, le=MAX_NEIGHBOURS, description="Neighbours of each relation.")] = 5,
        relation: Annotated[Name | None, Query(description="Only this relation, by its id.")] = None,
        inverse: Annotated[bool, Query(description="With `relation`: the heads of its edges to the entity.")] = False,
    ) -> Response:
        """An entity, its types, and its neighbours by relation, those with the most edges first."""
        return as_json(lookups.entity(linker, id, q, first_relation, relations, first, count, relation, inverse))

    @app.get("/relations", response_model=RelationList)
    def relations(
        q: Typed = "",
        first: Annotated[Place, Query(description="The position of the first relation to return.")] = 0,
        count: Annotated[int, Query(ge=1, le=200)] = 50,
        order: Annotated[
            Literal["pairs", "missing", "name"],
            Query(description="Most pairs first, most heads without a tail first, or by name."),
        ] = "pairs",
    ) -> Response:
        """The relations of the graph, each with the number of its pairs, one of them, and how complete it looks."""
        return as_json(lookups.relations(linker, q, first, count, order))

    @app.get("/types", response_model=list[TypeOffer])
    def types(q: Typed = "", limit: Limit = 20) -> Response:
        """Types whose names contain the typed text, with their sizes. Names that start with the text come first."""
        return as_json([{"name": name, "members": count} for name, count in linker.names.complete_types(q, limit)])

    @app.get("/example", response_model=Example)
    def example(number: Annotated[int, Query(ge=0, le=1_000_000)] = 0) -> Response:
        """A relation to try, with references and heads. Each number gives another relation."""
        return as_json(lookups.example(linker, number))

    @app.post("/predict", response_model=PredictAnswer)
    async def predict(query: PredictRequest) -> Response:
        """The best tails of each head, or the best pairs of all heads of a type."""
        return Response(await projects.predict(query, service), media_type="application/json")

    @app.post("/explain", response_model=ExplainAnswer)
    async def explain(query: ExplainRequest) -> Response:
        """The evidence for the score of one pair."""
        return as_json(await service.explain(query))

    for extend in extensions:
        extend(app, linker, settings)
    return app


def install_pages(app: FastAPI) -> None:
    """Add the page for curators, the page about the HTTP interface, and the files that they load."""
    headers = {"Cache-Control": "no-cache", "Content-Security-Policy": PAGE}

    @app.get("/", include_in_schema=False)
    async def curators() -> Response:
        return FileResponse(STATIC / "page.html", headers=headers)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return FileResponse(STATIC / "docs.html", headers=headers)

    app.mount("/static", RevalidatedFiles(directory=STATIC))


class RevalidatedFiles(StaticFiles):
    """Files that browsers keep, but ask for again, so that a new version of fewlink shows its own page."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = "no-cache"
        return response


class Metrics:
    """The metrics of one app, for Prometheus."""

    def __init__(self, linker: Linker, service: Service) -> None:
        self.registry = registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)
        self.requests = prometheus_client.Counter(
            "fewlink_requests", "Requests by path, method and status.", ["path", "method", "status"], registry=registry
        )
        self.seconds = prometheus_client.Histogram(
            "fewlink_request_seconds", "Seconds until the response was sent.", ["path"], registry=registry
        )
        self.open = prometheus_client.Gauge("fewlink_open_requests", "Requests being answered.", registry=registry)
        waiting = prometheus_client.Gauge(
            "fewlink_waiting_requests", "Questions that are computed or wait, by lane.", ["lane"], registry=registry
        )
        waiting.labels("small").set_function(lambda: service.small.requests)
        waiting.labels("large").set_function(lambda: service.large.requests)
        facts = prometheus_client.Info("fewlink", "Version, model and graph.", registry=registry)
        facts.info({"version": fewlink.__version__, "model": linker.scorer.name, "graph": linker.benchmark.name})

    def response(self) -> Response:
        """All metrics in the text format of Prometheus."""
        content = prometheus_client.generate_latest(self.registry)
        return Response(content, media_type=prometheus_client.CONTENT_TYPE_LATEST)


class ObservingMiddleware:
    """The outermost middleware: measures each request, and logs it without query string, headers and body."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log: logging.Handler | None = None) -> None:
        self.app = app
        self.metrics = metrics
        self.log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status = CLIENT_GONE
        size = 0

        async def observed(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            size += len(message.get("body", b""))
            await send(message)

        try:
            with self.metrics.open.track_inprogress():
                await self.app(scope, receive, observed)
        finally:
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.requests.labels(route, method, str(status)).inc()
            self.metrics.seconds.labels(route).observe(seconds)
            if self.log is not None:
                line = {
                    "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    "client": (scope.get("client") or ("",))[0],
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "seconds": round(seconds, 4),
                    "bytes": size,
                }
                self.log.handle(logging.makeLogRecord({"msg": json.dumps(line)}))
