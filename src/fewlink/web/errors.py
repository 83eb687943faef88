"""How a request is refused: a status, a code, one line, and what field it is about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fewlink.base.errors import FewlinkError, ScoreError, UnknownName

CODES = {400: "bad-request", 404: "not-found", 405: "method-not-allowed"}


class Refusal(Exception):
    """An answer that is an error."""

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
        self.status, self.headers = status, headers
        told = {"code": code, "message": message, "field": field, "suggestions": list(suggestions) or None}
        self.content = {"error": {key: value for key, value in told.items() if value is not None}}

    def response(self) -> Response:
        return as_json(self.content, self.status, self.headers)


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in ASCII, so that no character of a name can fail to be written."""
    return Response(json.dumps(content, allow_nan=False), status, headers, media_type="application/json")


def refusal_of(error: FewlinkError) -> Refusal:
    """A name that is not there is 404, what a model fails at 500, anything else that a user can put right 422."""
    if isinstance(error, ScoreError):
        return Refusal(500, "score", str(error))
    if isinstance(error, UnknownName):
        return Refusal(404, "unknown-name", str(error))
    return Refusal(422, "refused", str(error))


def install(app: FastAPI) -> None:
    """All errors of an app in one form."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        return error.response()

    async def fewlink(_: Request, error: Exception) -> Response:
        assert isinstance(error, FewlinkError)
        return refusal_of(error).response()

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return of_validation(error.errors()).response()

    async def other(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = CODES.get(error.status_code, "error")
        headers = dict(error.headers) if error.headers else None
        return Refusal(error.status_code, code, str(error.detail), headers=headers).response()

    async def failed(_: Request, error: Exception) -> Response:
        return Refusal(500, "internal", "the server failed at this request; its log says why").response()

    for kind, handler in (
        (Refusal, refused),
        (FewlinkError, fewlink),
        (RequestValidationError, invalid),
        (HTTPException, other),
        (Exception, failed),
    ):
        app.add_exception_handler(kind, handler)


def of_validation(errors: Sequence[Any]) -> Refusal:
    """The first thing that does not fit the schema, and how many more there are."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return Refusal(422, "invalid-json", f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    field = field_of(first["loc"])
    fields = {field_of(error["loc"]) for error in errors}
    more = f" (and {len(fields) - 1} more fields)" if len(fields) > 1 else ""
    return Refusal(422, "invalid", f"{field or 'the body'}: {first['msg']}{more}", field or None)


def field_of(place: Sequence[str | int]) -> str:
    """`heads.3` from a place in the request; what pydantic calls the kinds of a choice is left out."""
    parts = [str(part) for part in place[1:] if isinstance(part, int) or part.isidentifier()]
    return ".".join(part for part in parts if part not in ("str", "list"))
