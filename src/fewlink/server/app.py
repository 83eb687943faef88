"""The HTTP interface of a linker. It opens no path from a request. It writes decisions and, if allowed, new graphs."""

from __future__ import annotations

import pkgutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Security
from fastapi.security import HTTPBearer
from starlette.responses import Response

import fewlink
from fewlink.linker import Linker
from fewlink.server import lookups
from fewlink.server.connections import ON_STOP
from fewlink.server.entity import install_entity
from fewlink.server.errors import as_json
from fewlink.server.graphs import GraphFolder, install_graphs
from fewlink.server.handlers import install_error_handlers
from fewlink.server.logs import AccessLog
from fewlink.server.metrics import Metrics, ObservingMiddleware
from fewlink.server.pages import install_pages
from fewlink.server.projects import Projects, install_projects
from fewlink.server.routes import admitted_routes
from fewlink.server.schema import (
    MAX_NAME_LENGTH,
    About,
    EntityOffer,
    ErrorAnswer,
    Example,
    ExplainAnswer,
    ExplainRequest,
    Health,
    PredictAnswer,
    PredictRequest,
    RelationList,
    ServerSettings,
    TypeOffer,
)
from fewlink.server.security import SecurityMiddleware
from fewlink.server.service import Service

Typed = Annotated[str, Query(max_length=MAX_NAME_LENGTH, description="The text typed so far.")]
Limit = Annotated[int, Query(ge=1, le=100)]
BEARER = HTTPBearer(auto_error=False, description="The token of `fewlink serve --token`.")  # described, not checked
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": description}
    for status, description in {
        400: "The body cannot be read",
        401: "The token is missing or wrong",
        404: "A name is unknown",
        413: "The body is too large",
        421: "The Host header names another server",
        422: "The request is invalid, or would take too long",
        503: "Too many requests are waiting: Retry-After says when to try again",
        504: "The deadline has passed",
    }.items()
}


def make_app(
    linker: Linker,
    settings: ServerSettings | None = None,
    project: Path | None = None,
    *,
    extensions: Sequence[str] = (),
    graphs: Path | None = None,
    access_log: AccessLog | None = None,
    on_stop: Callable[[], None] = lambda: None,
) -> FastAPI:
    """An app that answers with this linker and stores decisions in the file `project`.

    If `settings.upload` allows visitors to open files as graphs, these are kept in the folder `graphs`.
    Each of `extensions` names a function, as `package.module:function`, that takes the app, the linker and the settings
    and adds routes. The app calls `on_stop` when the server begins to stop.
    """
    settings = settings or ServerSettings()
    service = Service(linker, settings)
    projects = Projects(linker, project)
    metrics = Metrics(linker, service)

    opened = None
    if graphs is not None and settings.upload:
        of_graph = replace(settings, upload=0)
        opened = GraphFolder(graphs, lambda linker, file: make_app(linker, of_graph, file), linker.device, service)

    def stop() -> None:
        if not service.admission.closing:
            service.admission.close()
            if opened is not None:
                opened.stop()
            on_stop()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        service.start()
        yield {ON_STOP: stop}
        if opened is not None:
            await opened.close()
        service.close()
        projects.close()
        if access_log is not None:
            access_log.close()

    app = FastAPI(
        title="fewlink",
        version=fewlink.__version__,
        summary="Ranked and explained tails from a handful of references of a relation.",
        docs_url=None,  # FastAPI's page loads scripts from another site; pages.py serves one that does not
        redoc_url=None,
        lifespan=lifespan,
        responses=ERRORS,
        dependencies=[Security(BEARER)] if settings.token is not None else [],
    )
    app.router.route_class = admitted_routes(service)
    app.state.service = service
    app.state.projects = projects
    app.state.described = [lambda: projects.pairs("reference", "accepted")]  # relations for extensions to offer
    app.state.rejected = lambda: projects.pairs("rejected")
    app.add_middleware(SecurityMiddleware, settings=settings, closing=lambda: service.admission.closing)
    app.add_middleware(ObservingMiddleware, metrics=metrics, log=access_log)  # outermost
    install_error_handlers(app)
    install_pages(app)
    install_projects(app, projects)
    install_entity(app, linker)
    if opened is not None:
        install_graphs(app, opened)

    @app.get("/health", response_model=Health)
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

    @app.get("/relations", response_model=RelationList)
    def relations(
        q: Typed = "",
        first: Annotated[int, Query(ge=0, description="The position of the first relation to return.")] = 0,
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

    for extension in extensions:
        pkgutil.resolve_name(extension)(app, linker, settings)
    return app
