"""The HTTP interface of a linker: a FastAPI app that loads nothing, opens no path and keeps nothing of a request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from starlette.responses import Response

import fewlink
from fewlink.prediction import Linker
from fewlink.web import about as facts
from fewlink.web import errors
from fewlink.web.answering import Answer, Answers, Part, Requests
from fewlink.web.batching import Batcher, until_gone
from fewlink.web.errors import as_json
from fewlink.web.middleware import Guard
from fewlink.web.page import page
from fewlink.web.schema import (
    About,
    Entity,
    ErrorAnswer,
    Example,
    ExplainRequest,
    Health,
    PredictAnswer,
    PredictRequest,
    Reasons,
    TypeOffer,
)
from fewlink.web.settings import NAME_LENGTH, Settings

Typed = Annotated[str, Query(max_length=NAME_LENGTH, description="What has been typed so far.")]
Most = Annotated[int, Query(ge=1, le=100)]
MANY = 500  # rows that are written in a thread
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": what}
    for status, what in {
        400: "The body cannot be read",
        401: "The token is missing or wrong",
        404: "A name is not in the graph",
        413: "The body is too large",
        421: "The Host header names another server",
        422: "The request cannot be answered as it is",
        503: "Too many requests are waiting",
    }.items()
}


def make_app(linker: Linker, settings: Settings | None = None) -> FastAPI:
    """An app that answers from this linker."""
    settings = settings or Settings()
    answers, shown = Answers(linker, settings), page()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        batcher: Batcher[Part, Answer] = Batcher(
            answers.turn, waiting=settings.waiting, gather=settings.gather, together=settings.together
        )
        async with batcher:
            app.state.requests = Requests(linker, settings, batcher)
            yield

    app = FastAPI(
        title="fewlink",
        version=fewlink.__version__,
        summary="Ranked and explained tails from a handful of references of a relation.",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        responses=ERRORS,
    )
    app.state.answers = answers
    app.add_middleware(Guard, settings=settings)
    errors.install(app)

    async def answered(request: Request, answer: Coroutine[Any, Any, dict[str, Any]]) -> Response:
        told = await until_gone(asyncio.create_task(answer), asyncio.create_task(_gone(request)))
        if told is None:
            return Response(status_code=499)  # nobody reads it
        return await asyncio.to_thread(as_json, told) if len(told.get("predictions", ())) > MANY else as_json(told)

    @app.get("/", include_in_schema=False)
    async def curators() -> Response:
        headers = {"Content-Security-Policy": shown.policy, "Cache-Control": "no-cache"}
        return Response(shown.html, headers=headers, media_type="text/html")

    @app.get("/health", response_model=Health)
    async def health() -> Response:
        """Whether the server answers; needs no token."""
        return as_json({"status": "ok", "version": fewlink.__version__})

    @app.get("/about", response_model=About)
    def about() -> Response:
        """The model, its graph, its calibration, and what one request may ask."""
        return as_json(facts.about(linker, settings))

    @app.get("/entities", response_model=list[Entity])
    def entities(q: Typed = "", limit: Most = 10) -> Response:
        """Entities to offer for what has been typed so far, best first."""
        return as_json([{"id": match.id, "name": match.name} for match in linker.names.complete(q, limit)])

    @app.get("/types", response_model=list[TypeOffer])
    def types(q: Typed = "", limit: Most = 20) -> Response:
        """Types whose name holds what has been typed so far, with their members; those that begin so first."""
        return as_json(facts.types(linker, q, limit))

    @app.get("/example", response_model=Example)
    def example(number: Annotated[int, Query(ge=0, le=1_000_000)] = 0) -> Response:
        """A relation of the benchmark to try, another one for each number."""
        return as_json(facts.example(linker, number))

    @app.post("/predict", response_model=PredictAnswer)
    async def predict(asked: PredictRequest, request: Request) -> Response:
        """The best tails of each head, or the best pairs of all heads of a type."""
        return await answered(request, app.state.requests.predict(asked))

    @app.post("/explain", response_model=Reasons)
    async def explain(asked: ExplainRequest, request: Request) -> Response:
        """What carried the score of one pair."""
        return await answered(request, app.state.requests.explain(asked))

    return app


async def _gone(request: Request) -> None:
    """Returns when the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
