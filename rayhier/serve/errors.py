"""Answer every error as `{"error": {"code", "message"}}`."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from rayhier.serve.models import NAME_SHOWN
from rayhier.spec import InputError

RETRY = {"Retry-After": "1"}
CODES = {
    400: "not_json",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "not_json",
}


class ApiError(Exception):
    """Ends a request with a status, a code for programs and a message for people."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers

    def response(self) -> JSONResponse:
        """The HTTP response."""
        body = {"error": {"code": self.code, "message": self.message}}
        return JSONResponse(body, self.status, dict(self.headers or {}))


def invalid(message: str) -> ApiError:
    """Error 422: a request asks for what is not allowed."""
    return ApiError(422, "invalid", message)


def overloaded(message: str) -> ApiError:
    """Error 503: too many requests at once; the same request may work a second later."""
    return ApiError(503, "overloaded", message, RETRY)


def install(app: FastAPI) -> None:
    """Give every error of the app, of Starlette and of FastAPI the same form."""
    app.exception_handler(ApiError)(_own)
    app.exception_handler(InputError)(_input)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(RequestValidationError)(_refused)
    app.exception_handler(Exception)(_unexpected)


async def _own(_: Request, error: ApiError) -> JSONResponse:
    return error.response()


async def _input(_: Request, error: InputError) -> JSONResponse:
    return invalid(str(error)).response()


async def _http(request: Request, error: HTTPException) -> JSONResponse:
    said = error.detail
    if error.status_code == 400:
        said = "body: cannot be read as JSON"
    elif error.status_code == 404:
        said = f"{request.url.path[:NAME_SHOWN]}: no such path; /openapi.json lists all paths"
    elif error.status_code == 405:
        said = f"{request.method} {request.url.path}: got {request.method}; allowed: {(error.headers or {})['Allow']}"
    return ApiError(error.status_code, CODES.get(error.status_code, "invalid"), said, error.headers).response()


async def _refused(request: Request, error: RequestValidationError) -> JSONResponse:
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        said = f"content-type: got {given[:NAME_SHOWN] or 'none'}; allowed: application/json"
        return ApiError(415, CODES[415], said).response()
    return invalid("; ".join(_line(problem) for problem in error.errors()[:3])).response()


async def _unexpected(_: Request, __: Exception) -> JSONResponse:
    message = HTTPStatus.INTERNAL_SERVER_ERROR.description
    return ApiError(500, "internal", message).response()


def _line(problem: Mapping[str, Any]) -> str:
    """One line, `where: what`, about a problem; the value given is left out, it may be long."""
    place: Sequence[object] = [part for part in problem["loc"] if part != "body"]
    if problem["type"] == "json_invalid":
        return f"body: not JSON: {problem['ctx']['error']}"
    return f"{_path(place) or 'body'}: {problem['msg'].removeprefix('Value error, ')}"


def _path(place: Sequence[object]) -> str:
    return ".".join(str(part) for part in place)[:NAME_SHOWN]
