"""The routes of the Reconciliation Service API at /reconcile, for OpenRefine and other clients of the protocol."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs

from fastapi import FastAPI, Query, Request
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response

from fewlink.bridges.reconciliation import (
    LIMIT,
    MAX_BATCH,
    PROBABILITY,
    MatchQuery,
    Property,
    Reconciler,
    Text,
)
from fewlink.linker import Linker
from fewlink.linker.predictions import percent
from fewlink.server.errors import ApiError, as_json, validation_error
from fewlink.server.projects import Projects
from fewlink.server.schema import MAX_NAME_LENGTH, MAX_REJECTED, PredictRequest, ServerSettings
from fewlink.server.security import SHARED_PATH
from fewlink.server.service import Service

STYLE = "body{font:14px/1.4 sans-serif;margin:8px}h1{font-size:16px;margin:0}ul{padding-left:18px}p{margin:4px 0}"
MAX_FIELDS = 10  # of a form
MAX_CELLS = 20_000  # ids times properties of one request
MAX_EXTENDED_VALUES = 100_000  # in the answer to one request
TURN_IDS = 500  # before other requests get their turn
M = TypeVar("M", bound=BaseModel)
Prefix = Annotated[str, Query(max_length=MAX_NAME_LENGTH)]


class PropertySettings(BaseModel):
    """Settings of a property. Numbers may be sent as strings, as forms do.

    Unless `limit` says how many tails to predict, it is one for a relation described by references, and else none.
    """

    limit: Annotated[int, Field(ge=0, le=100)] | None = None
    least: Annotated[float, Field(ge=0, le=1)] = 0.0


class ExtendProperty(BaseModel):
    id: Text
    settings: PropertySettings = PropertySettings()


class ExtendQuery(BaseModel):
    ids: Annotated[list[Text], Field(max_length=10_000, fail_fast=True)]
    properties: Annotated[list[ExtendProperty], Field(min_length=1, max_length=20, fail_fast=True)]


Rows = dict[str, dict[str, list[dict[str, Any]]]]  # the cells of each entity by property


class Queries:
    """Answers reconciliation queries and data extension queries about the graph of a linker."""

    def __init__(self, app: FastAPI, linker: Linker, reconciler: Reconciler) -> None:
        self.linker = linker
        self.reconciler = reconciler
        self.service: Service = app.state.service
        self.projects: Projects = app.state.projects

    async def answer(self, query: Mapping[str, str], body: bytes = b"") -> Response:
        """Answer `queries`, a batch of names to match, or `extend`, a request for columns."""
        async with self.service.in_time():
            asked = await self.service.run(lambda: read_queries(query, body))
            properties = await self.service.run(self.reconciler.properties)
            if isinstance(asked, ExtendQuery):
                return as_json(await self.extend(asked, properties))
            rows = {}
            async with self.service.large.enter() as lane:
                for key, one in asked.items():  # each compares all names of the graph
                    rows[key] = {"result": await lane.run(functools.partial(self.reconciler.match, one, properties))}
            return as_json(rows)

    async def extend(self, query: ExtendQuery, properties: Mapping[str, Property]) -> dict[str, Any]:
        """The cells of the requested properties for each entity."""
        ids = list(dict.fromkeys(query.ids))
        if len(ids) * len(query.properties) > MAX_CELLS:
            message = f"{len(ids):,} ids with {len(query.properties)} properties are more than {MAX_CELLS:,} cells"
            raise ApiError(413, "limit", f"{message}: send fewer ids at a time", "ids")
        rows: Rows = {id_: {} for id_ in ids}
        meta = []
        values = 0
        for wanted in query.properties:
            of = properties.get(wanted.id)
            if of is None:
                raise ApiError(
                    404,
                    "unknown-name",
                    f"unknown property '{wanted.id}': /reconcile/properties lists them",
                    "properties",
                )
            meta.append({"id": of.id, "name": of.name})
            for begin in range(0, len(ids), TURN_IDS):
                cells = await self.cells_of(of, wanted.settings, ids[begin : begin + TURN_IDS])
                values += sum(map(len, cells.values()))
                if values > MAX_EXTENDED_VALUES:
                    message = f"these ids have more than {MAX_EXTENDED_VALUES:,} values: send fewer ids at a time"
                    raise ApiError(413, "limit", message, "ids")
                for id_, own in cells.items():
                    rows[id_][of.id] = own
        return {"meta": meta, "rows": rows}

    async def cells_of(
        self, of: Property, chosen: PropertySettings, ids: Sequence[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """The cells of a property for each entity; empty for an entity that the graph lacks."""
        limit = int(bool(of.references)) if chosen.limit is None else chosen.limit
        cells = await self.service.run(functools.partial(self.known_cells, of, ids))
        heads = [id_ for id_ in ids if self.linker.graph.entities.find(id_) is not None]
        if not limit or not heads:
            return cells
        for row in await self.predicted(of, limit, heads):
            probability = row["probability"]
            if (probability or 0.0) >= chosen.least:
                confidence = percent(probability) if probability is not None else f"rank {row['rank']}"
                about = f"predicted, {confidence}"
                cells[row["head"]].append(cell(of, row["tail"], row["tail_name"], probability, about))
        return cells

    def known_cells(self, of: Property, ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """The cells of known tails for each entity."""
        graph = self.linker.graph
        cells: dict[str, list[dict[str, Any]]] = {}
        for id_ in ids:
            number = graph.entities.find(id_)
            tails = [] if number is None else of.tails(number)
            cells[id_] = [cell(of, graph.entities[tail], graph.name(tail), 1.0) for tail in tails]
        return cells

    async def predicted(self, of: Property, k: int, heads: list[str]) -> list[dict[str, Any]]:
        """The rows of a request to /predict, under the same limits."""
        names = self.linker.graph.entities

        def request() -> PredictRequest:
            rejected = self.projects.pairs("rejected").get(of.id.removesuffix(PROBABILITY), [])
            wrong = [list(pair) for pair in rejected if all(names.find(end) is not None for end in pair)]
            return validated(
                PredictRequest,
                {
                    "references": [[names[head], names[tail]] for head, tail in of.references] or None,
                    "relation": None if of.relation is None else of.relation.name,
                    "heads": heads,
                    "k": k,
                    "rejected": wrong[-MAX_REJECTED:],
                },
            )

        answer = await self.service.answer(await self.service.run(request))
        rows: list[dict[str, Any]] = answer["predictions"]
        return rows


def read_queries(query: Mapping[str, str], body: bytes) -> dict[str, MatchQuery] | ExtendQuery:
    """The queries of a request, in the address or in a form; raises if they are invalid."""
    sent = {**query, **form_of(body)}
    if "queries" not in sent:
        if "extend" not in sent:
            message = "send a form (application/x-www-form-urlencoded) with a field 'queries' or 'extend'"
            raise ApiError(422, "refused", message)
        return validated(ExtendQuery, parsed(sent["extend"], "extend"))
    queries = parsed(sent["queries"], "queries")
    if len(queries) > MAX_BATCH:
        message = f"{len(queries):,} queries are more than the limit of {MAX_BATCH} per request: split them"
        raise ApiError(413, "limit", message, "queries")
    checked = {key: validated(MatchQuery, query) for key, query in queries.items()}
    for key, one in checked.items():
        if not one.query.strip():
            raise ApiError(422, "refused", f"query '{key}' has no name: add 'query'", "queries")
    return checked


def install(app: FastAPI, linker: Linker, settings: ServerSettings) -> None:
    """Add the routes to an app.

    Relations that the graph lacks are properties too, if they are projects of the server.
    """
    projects: Projects = app.state.projects
    reconciler = Reconciler(linker, lambda: projects.pairs("reference", "accepted"))
    queries = Queries(app, linker, reconciler)

    @app.get(SHARED_PATH, include_in_schema=False)
    async def get(request: Request) -> Response:
        sent = dict(request.query_params)
        if "queries" in sent or "extend" in sent:
            return await queries.answer(sent)
        with_token = settings.token is not None
        authorized = request.scope["authorized"]  # by `SecurityMiddleware`
        manifest = functools.partial(reconciler.manifest, address(request), sent.get("token"), with_token, authorized)
        return as_json(await queries.service.run(manifest))

    @app.post(SHARED_PATH, include_in_schema=False)
    async def post(request: Request) -> Response:
        return await queries.answer(dict(request.query_params), await request.body())

    suggesters: dict[str, Callable[[str, int], list[dict[str, Any]]]] = {
        "entity": reconciler.suggest_entities,
        "type": reconciler.suggest_types,
        "property": reconciler.suggest_properties,
    }

    @app.get(f"{SHARED_PATH}/suggest/{{kind}}", include_in_schema=False)
    def suggest(kind: Literal["entity", "type", "property"], prefix: Prefix = "") -> Response:
        return as_json({"result": suggesters[kind](prefix, LIMIT)})

    @app.get(f"{SHARED_PATH}/properties", include_in_schema=False)
    def propose(type: Prefix = "", limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> Response:
        return as_json({"type": type, "limit": limit, "properties": reconciler.propose(type, limit)})

    @app.get(f"{SHARED_PATH}/preview", include_in_schema=False)
    def preview(id: Prefix = "") -> Response:
        number = linker.graph.entities.find(id)
        if number is None:
            raise ApiError(404, "unknown-name", f"unknown entity '{id}': give an id of the graph", "id")
        digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
        frames = "*"
        if settings.hosts is not None:
            frames = " ".join(f"http://{host}:* https://{host}:*" for host in sorted(settings.hosts))
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; frame-ancestors {frames}"
        page = f"<!doctype html><meta charset=utf-8><title>fewlink</title><style>{STYLE}</style>"
        content = page + reconciler.preview(number)
        return Response(content, headers={"Content-Security-Policy": policy}, media_type="text/html")


def cell(of: Property, id_: str, name: str, probability: float | None, about: str = "") -> dict[str, Any]:
    """The cell of a tail, or of its probability if that is the property; empty without a reliable probability."""
    if of.probability:
        return {} if probability is None else {"float": round(probability, 4)}
    return {"id": id_, "name": name, **({"description": about} if about else {})}


def address(request: Request) -> str:
    return str(request.base_url).rstrip("/") + SHARED_PATH


def form_of(body: bytes) -> dict[str, str]:
    """The first value of each field of a form."""
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=MAX_FIELDS)
    except ValueError:
        raise ApiError(
            413, "limit", f"the form has more than {MAX_FIELDS} fields: send 'queries' or 'extend'"
        ) from None
    return {name: values[0] for name, values in fields.items()}


def parsed(text: str, field: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "invalid-json", f"{field} is not JSON: {error}", field) from None
    if not isinstance(value, dict):
        raise ApiError(422, "invalid", f"{field} must be a JSON object", field)
    return value


def validated(model: type[M], value: Any) -> M:
    """Validate a value; raise an error that names the field at fault."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise validation_error([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from None
