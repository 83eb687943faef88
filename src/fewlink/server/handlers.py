"""Every exception of an endpoint becomes an error of the API."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fewlink.core.errors import FewlinkError, ScoreError, UnknownName
from fewlink.server.errors import ApiError, validation_error

HTTP_CODES = {400: "bad-request", 404: "not-found", 405: "method-not-allowed"}


def install_error_handlers(app: FastAPI) -> None:
    """Make the app send all errors in the same form."""

    async def send(request: Request, error: Exception) -> Response:
        sent = as_api_error(error)
        request.scope["error_code"] = sent.code
        return sent.response()

    for kind in (ApiError, FewlinkError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, send)


def as_api_error(error: Exception) -> ApiError:
    """404 for an unknown name, 422 for a request that the user can correct, 500 for a failure of the server."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ScoreError):
        return ApiError(500, "score", str(error))
    if isinstance(error, UnknownName):
        return ApiError(404, "unknown-name", str(error))
    if isinstance(error, FewlinkError):
        return ApiError(422, "refused", str(error))
    if isinstance(error, RequestValidationError):
        return validation_error(error.errors())
    if isinstance(error, HTTPException):
        code = HTTP_CODES.get(error.status_code, "error")
        headers = dict(error.headers) if error.headers else None
        return ApiError(error.status_code, code, str(error.detail), headers=headers)
    return ApiError(500, "internal", "the server failed to answer this request: see its log")
