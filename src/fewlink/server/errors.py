"""Errors of the API. All have one form: a status, a code, a message and the field at fault."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fewlink.core.errors import FewlinkError, ScoreError, UnknownName

HTTP_CODES = {400: "bad-request", 404: "not-found", 405: "method-not-allowed"}


class ApiError(Exception):
    """An error to send as the response."""

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
        self.status = status
        self.headers = headers
        content = {"code": code, "message": message, "field": field, "suggestions": list(suggestions) or None}
        self.content = {"error": {key: value for key, value in content.items() if value is not None}}

    def response(self) -> Response:
        return as_json(self.content, self.status, self.headers)


def as_json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response in ASCII, which can represent every name, lone surrogates included."""
    return Response(json.dumps(content, allow_nan=False), status, headers, media_type="application/json")


def install_error_handlers(app: FastAPI) -> None:
    """Make the app send all errors in the same form."""

    async def send(request: Request, error: Exception) -> Response:
        return as_api_error(error).response()

    for kind in (ApiError, FewlinkError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, send)


def as_api_error(error: Exception) -> ApiError:
    """404 for an unknown name, 422 for a request that the user can correct, 500 for a failure of the server."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ScoreError):
        return ApiError(500, "score", str(error))
    if isinstance(error, UnknownName):
        return ApiError(404, "unknown-name", str(error), error.field or None)
    if isinstance(error, FewlinkError):
        return ApiError(422, "refused", str(error))
    if isinstance(error, RequestValidationError):
        return validation_error(error.errors())
    if isinstance(error, HTTPException):
        code = HTTP_CODES.get(error.status_code, "error")
        headers = dict(error.headers) if error.headers else None
        return ApiError(error.status_code, code, str(error.detail), headers=headers)
    return ApiError(500, "internal", "the server failed to answer this request: see its log")


def validation_error(errors: Sequence[Any]) -> ApiError:
    """The first violation of the schema."""
    first = errors[0]
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", first["msg"])
        return ApiError(422, "invalid-json", f"the body is not valid JSON: {reason}")
    field = field_of(first["loc"])
    if first["type"] == "model_attributes_type" and not field:
        message = "the body must be a JSON object, sent with the header 'Content-Type: application/json'"
        return ApiError(422, "invalid", message)
    reason = "there is no such field" if first["type"] == "extra_forbidden" else first["msg"]
    return ApiError(422, "invalid", f"{field or 'the body'}: {reason}", field or None)


def field_of(location: Sequence[str | int]) -> str:
    """`heads.3` for a location in the request, without pydantic's names for the members of a union."""
    steps = [str(step) for step in location[1:] if isinstance(step, int) or step.isidentifier()]
    return ".".join(step for step in steps if step not in ("str", "list"))
