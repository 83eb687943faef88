"""The HTTP interface of a linker and its page for curators, and the process that serves them on a listening socket.

The interface opens no paths; of requests it stores only decisions, in the project file.
"""

from __future__ import annotations

import asyncio
import json
import os
import pkgutil
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio.to_thread
import uvicorn
from fastapi import FastAPI, Query
from starlette.responses import Response

import fewlink
from fewlink.core.errors import FewlinkError
from fewlink.linker import Linker, load
from fewlink.linker.constraints import KINDS
from fewlink.scorers import capabilities
from fewlink.server import metrics, middleware, pages, projects
from fewlink.server import service as facts
from fewlink.server.batching import Answer, Answers, Batcher, Part
from fewlink.server.connections import Connections, within_open_files
from fewlink.server.logs import AccessLog
from fewlink.server.middleware import ObservingMiddleware, SecurityMiddleware, as_json, own_hosts
from fewlink.server.process import LIMITS, OPTIONS, Server, end_soon, listen, prepare
from fewlink.server.protocol import ON_STOP, STATE
from fewlink.server.schema import (
    MOST_REFERENCES,
    NAME_LENGTH,
    About,
    EntityAnswer,
    EntityOffer,
    ErrorAnswer,
    Example,
    ExplainAnswer,
    ExplainRequest,
    Health,
    PredictAnswer,
    PredictRequest,
    ServerSettings,
    TypeOffer,
)
from fewlink.server.service import MANY, Service

Typed = Annotated[str, Query(max_length=NAME_LENGTH, description="The text typed so far.")]
Most = Annotated[int, Query(ge=1, le=100)]
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": what}
    for status, what in {
        400: "The body cannot be read",
        401: "The token is missing or wrong",
        404: "A name is unknown",
        413: "The body is too large",
        421: "The Host header names another server",
        422: "The request is invalid",
        503: "Too many requests are waiting: Retry-After says when to try again",
        504: "The deadline has passed",
    }.items()
}
LISTED = 2_000  # relations that are listed at most
SHORT = 0.1  # of the longest request that is allowed: shorter ones are answered beside longer ones
THREADS = 16  # for answers that need no model; more would hold up the event loop
TOKEN, GIVEN = "FEWLINK_TOKEN", "FEWLINK_SERVE"  # environment variables: of the user, and for the workers


def make_app(
    linker: Linker,
    settings: ServerSettings | None = None,
    project: Path | None = None,
    *,
    extensions: Sequence[str] = (),
    access_log: AccessLog | None = None,
    connections: Connections | None = None,
    on_stop: Callable[[], None] = lambda: None,
) -> FastAPI:
    """An app that answers from this linker, and keeps decisions in the file `project`.

    `extensions` are functions as `package.module:function`: each is called with app, linker and settings to add routes.
    `on_stop` is called when the server begins to stop.
    """
    settings = settings or ServerSettings()
    answers, registry = Answers(linker, settings), metrics.Registry()
    connections = Connections() if connections is None else connections

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        batcher: Batcher[Part, Answer] = Batcher(
            answers.batch,
            gather=settings.gather,
            together=settings.together,
            turn=settings.turn,
            short=SHORT * settings.seconds if capabilities(linker.scorer).thread_safe else None,
            key_of=lambda part: part.key,
        )
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        app.state.service = service = Service(linker, settings, batcher, answers)
        async with batcher, service.preparing:
            measuring = asyncio.create_task(batcher.measured(answers.to_measure())) if settings.measure else None

            def stop() -> None:
                if not service.admission.closed:
                    app.state.closing = asyncio.ensure_future(service.close())
                    service.admission.closed = True
                    on_stop()

            yield {STATE: connections, ON_STOP: stop}
            service.admission.closed = True
        if measuring is not None:
            measuring.cancel()
        app.state.projects.close()
        if access_log is not None:
            access_log.close()

    app = FastAPI(
        title="fewlink",
        version=fewlink.__version__,
        summary="Ranked and explained tails from a handful of references of a relation.",
        docs_url=None,  # would load scripts from other servers; /docs is a page of our own
        redoc_url=None,
        lifespan=lifespan,
        responses=ERRORS,
    )
    app.state.answers = answers
    app.add_middleware(SecurityMiddleware, settings=settings, connections=connections)
    app.add_middleware(ObservingMiddleware, registry=registry, log=access_log)  # outermost
    middleware.register(registry, app, linker, connections, access_log)
    middleware.install(app)
    pages.install(app)
    app.state.projects = projects.Projects(linker, project)
    projects.install(app, app.state.projects)
    pairs = app.state.projects.pairs
    app.state.described = [lambda: pairs("reference", "accepted")]  # relations that extensions may offer
    app.state.rejected = lambda: pairs("rejected")

    async def answered(answer: Coroutine[Any, Any, dict[str, Any]]) -> Response:
        content = await answer
        many = len(content.get("predictions", ())) > MANY
        return await asyncio.to_thread(as_json, content) if many else as_json(content)

    @app.get("/health", response_model=Health)
    async def health() -> Response:
        """Whether the server is running; needs no token."""
        return as_json({"status": "ok", "version": fewlink.__version__})

    @app.get("/metrics", include_in_schema=False)
    async def all_metrics() -> Response:
        return Response(registry.text(), media_type=metrics.CONTENT_TYPE)

    @app.get("/about", response_model=About)
    def about() -> Response:
        """The model, its graph, its calibration, and the limits of one request."""
        return as_json(about_facts(linker, settings))

    @app.get("/entities", response_model=list[EntityOffer])
    def entities(q: Typed = "", limit: Most = 10) -> Response:
        """Entities that complete the typed text, best first."""
        return as_json(facts.entities(linker, q, limit))

    @app.get("/entity", response_model=EntityAnswer)
    def entity(
        id: Annotated[str, Query(max_length=NAME_LENGTH, description="An id or a name.")],
        q: Annotated[str, Query(max_length=NAME_LENGTH, description="Only edges with this text in a name.")] = "",
        first: Annotated[int, Query(ge=0, description="The first of the edges to give.")] = 0,
        count: Annotated[int, Query(ge=1, le=200)] = 20,
    ) -> Response:
        """One entity: its types and its edges, some at a time."""
        return as_json(facts.entity(linker, id, q, first, count))

    @app.get("/types", response_model=list[TypeOffer])
    def types(q: Typed = "", limit: Most = 20) -> Response:
        """Types whose name contains the typed text, with their number of members; those that start with it first."""
        return as_json([{"name": name, "members": n} for name, n in linker.names.complete_types(q, limit)])

    @app.get("/example", response_model=Example)
    def example(number: Annotated[int, Query(ge=0, le=1_000_000)] = 0) -> Response:
        """A relation of the benchmark to try; each number gives another one."""
        return as_json(facts.example(linker, number))

    @app.post("/predict", response_model=PredictAnswer)
    async def predict(query: PredictRequest) -> Response:
        """The best tails of each head, or the best pairs of all heads of a type."""
        return await answered(app.state.projects.predict(query, app.state.service))

    @app.post("/explain", response_model=ExplainAnswer)
    async def explain(query: ExplainRequest) -> Response:
        """What contributed to the score of one pair."""
        return await answered(app.state.service.explain(query))

    for extension in extensions:
        pkgutil.resolve_name(extension)(app, linker, settings)
    return app


def about_facts(linker: Linker, settings: ServerSettings) -> dict[str, Any]:
    """The model, its graph, its calibration, and the limits of one request."""
    graph, calibration = linker.graph, linker.calibration
    names = [graph.relation_name(number) for number in range(min(len(graph.relations), LISTED))]
    tasks = {split: [task.name for task in of] for split, of in linker.measured.tasks.items()}
    return {
        "version": fewlink.__version__,
        "model": linker.scorer.name,
        "shots": linker.shots,
        "graph": {
            "name": linker.benchmark.name,
            "entities": len(graph.entities),
            "relations": len(graph.relations),
            "triples": graph.triple_count,
            "types": len(graph.types.names) if graph.types is not None else 0,
        },
        "relations": {"graph": names, **tasks},
        "constraints": {**KINDS, "auto": "all of these that the known pairs keep to"},
        "evidence": dict(capabilities(linker.scorer).evidence),
        "calibration": calibration
        and {
            "error": calibration.measured_error,
            **{field: getattr(calibration, field) for field in ("base", "count", "relations", "rough")},
        },
        "limits": {
            "references": MOST_REFERENCES,
            "heads": settings.heads,
            "k": settings.k,
            "rows": settings.rows,
            "explained": settings.explained,
            "seconds": settings.seconds,
        },
    }


@dataclass(frozen=True)
class ServeOptions:
    """What to serve, as `fewlink.load` takes it, and the address to serve it at."""

    source: str
    device: str = "cpu"
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    bench: str | None = None
    types: str | None = None
    names: str | Literal[False] | None = None
    project: str | None = None
    extensions: tuple[str, ...] = ()
    access_log: str | None = None
    allow_anyone: bool = False  # on an address that other machines reach, without a token
    public_name: str | None = None  # a name that a proxy passes on in the Host header
    proxy: str | None = None  # the address of a proxy whose X-Forwarded-For header names the client

    @property
    def place(self) -> dict[str, Any]:
        """The arguments of `fewlink.load`."""
        return {name: getattr(self, name) for name in ("source", "bench", "types", "names", "device")}

    @property
    def project_file(self) -> Path:
        """The file that decisions are kept in: by default beside the graph or run, else in the working folder."""
        if self.project is not None:
            return Path(self.project)
        source = Path(self.source)
        return (source.parent if source.exists() else Path()) / f"{source.name.replace(':', '-')}.decisions"


def process_parts() -> dict[str, Any]:
    """What an app gets that has its process for itself: connections as the process may open files, and a sure end."""
    return {"connections": Connections(within_open_files(LIMITS)), "on_stop": end_soon}


def serve(options: ServeOptions, settings: ServerSettings) -> None:
    """Answer requests until the process is stopped; pending ones are finished if they are short."""
    hosts = own_hosts(options.host)
    if hosts is None and settings.token is None and not options.allow_anyone:
        raise FewlinkError(
            f"other machines may reach {options.host}: set a token with --token or FEWLINK_TOKEN, or give "
            "--allow-anyone to answer whoever asks"
        )
    if hosts is not None and options.public_name:
        hosts |= {options.public_name.lower()}
    settings = replace(settings, hosts=hosts, measure=True)
    listener = listen(options.host, options.port)
    log = None if options.access_log is None else AccessLog(options.access_log)
    linker = load(**options.place)
    host = f"[{options.host}]" if ":" in options.host else options.host
    title = f"{linker.scorer.name} on {linker.benchmark.name}: http://{host}:{listener.getsockname()[1]}/"
    trusted = {"proxy_headers": options.proxy is not None, "forwarded_allow_ips": options.proxy}
    config = {**OPTIONS, **trusted}
    if options.workers == 1:
        linker.names.complete("a", 1)  # builds the search index before the first request
        more: dict[str, Any] = {"extensions": options.extensions, "access_log": log}
        app = make_app(linker, settings, options.project_file, **more, **process_parts())
        server = Server(uvicorn.Config(app, **config))
        prepare()
        print(f"{title} (Ctrl-C stops)", file=sys.stderr, flush=True)
        server.run(sockets=[listener])
        return
    print(f"{title} (Ctrl-C stops; {options.workers} processes)", file=sys.stderr, flush=True)
    if log is not None:
        log.close()  # each worker opens its own
    del linker
    kept = {field: getattr(settings, field) for field in ("heads", "k", "references", "seconds", "queued", "deadline")}
    limits = {**kept, "hosts": settings.hosts and sorted(settings.hosts)}
    given = {"place": options.place, "limits": limits, "project": str(options.project_file)}
    os.environ[GIVEN] = json.dumps({**given, "extensions": options.extensions, "access_log": options.access_log})
    if settings.token is not None:
        os.environ[TOKEN] = settings.token
    port = listener.getsockname()[1]
    listener.close()  # uvicorn opens it again for the workers
    factory = "fewlink.server.server:from_environment"
    uvicorn.run(factory, host=options.host, port=port, factory=True, workers=options.workers, **config)


def from_environment(environment: Mapping[str, str] = os.environ) -> Any:
    """The app of a worker process, from the environment that `serve` has set."""
    given = json.loads(environment[GIVEN])
    limits = given["limits"]
    hosts, references = limits.pop("hosts"), tuple(map(tuple, limits.pop("references", ())))
    settings = ServerSettings(
        **limits,
        token=environment.get(TOKEN),
        hosts=hosts and frozenset(hosts),
        references=references,
        measure=environment is os.environ,
    )
    log = AccessLog(given["access_log"]) if given.get("access_log") else None
    more: dict[str, Any] = {"extensions": given.get("extensions", ()), "access_log": log}
    if environment is os.environ:  # a process of its own
        more |= process_parts()
    linker = load(**given["place"])
    linker.names.complete("a", 1)  # builds the search index before the first request
    app = make_app(linker, settings, Path(given["project"]), **more)
    if environment is os.environ:
        prepare()
    return app
