"""Errors of the API: a status, a code, one line, and the field they are about."""

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
        self.status, self.headers = status, headers
        content = {"code": code, "message": message, "field": field, "suggestions": list(suggestions) or None}
        self.content = {"error": {key: value for key, value in content.items() if value is not None}}

    def response(self) -> Response:
        return as_json(self.content, self.status, self.headers)


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in ASCII, in which any character of a name can be written."""
    return Response(json.dumps(content, allow_nan=False), status, headers, media_type="application/json")


def install(app: FastAPI) -> None:
    """Make an app send all errors in one form."""

    async def send(_: Request, error: Exception) -> Response:
        return as_api_error(error).response()

    for kind in (ApiError, FewlinkError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, send)


def as_api_error(error: Exception) -> ApiError:
    """404 for an unknown name, 500 for a failure of the model or the server, 422 for what a user can correct."""
    if isinstance(error, ApiError):
        return error
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
