"""Answers all errors with the body `{"error": {"code", "message"}}`: rayhier's, the web framework's, and defects."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from rayhier.serve.errors import ApiError, invalid, without_folders
from rayhier.serve.http.bodies import NAME_SHOWN
from rayhier.spec import InputError


def respond(error: ApiError) -> JSONResponse:
    message = error.message.encode(errors="backslashreplace").decode()  # a lone surrogate cannot be sent
    if error.code in ("not_restored", "log_damaged"):
        message = without_folders(message)
    body = {"error": {"code": error.code, "message": message}}
    return JSONResponse(body, error.status, dict(error.headers or {}))


def install(app: FastAPI) -> None:
    for kind in (ApiError, InputError, HTTPException, RequestValidationError, Exception):
        app.exception_handler(kind)(_answer)


async def _answer(request: Request, error: Exception) -> JSONResponse:
    match error:
        case ApiError():
            return respond(error)
        case InputError():
            return respond(invalid(str(error)))
        case HTTPException():
            return respond(_http(request, error))
        case RequestValidationError():
            return respond(invalid("; ".join(_line(problem) for problem in error.errors()[:3])))
    return respond(ApiError(500, "internal", HTTPStatus.INTERNAL_SERVER_ERROR.description))


PLACES = ("body", "query", "path")
"""First words of an error's location in FastAPI: the part of the request."""
_KINDS: dict[type, str] = {list: "a list", dict: "an object"}
ALLOWED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "list_type": "a list",
    "dict_type": "an object",
    "bool_type": "true or false",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "int_parsing_size": "a whole number",
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
    "literal_error": "{expected}",
    "too_long": "at most {max_length}",
    "too_short": "at least {min_length}",
}
"""Descriptions of allowed values by pydantic's type of error. Braces name pydantic's limits."""


def _http(request: Request, error: HTTPException) -> ApiError:
    method, path = request.method[:NAME_SHOWN], request.url.path
    if error.status_code == 404:
        return no_path(path)
    if error.status_code == 405:
        routes = [route for route in request.app.routes if isinstance(route, Route)]
        there = [route.methods or () for route in routes if route.matches(request.scope)[0] is not Match.NONE]
        allow = ", ".join(sorted(set().union(*there)))
        message = f"{method} {path[:NAME_SHOWN]}: got {method}; allowed: {allow}"
        return ApiError(405, "method_not_allowed", message, {"Allow": allow})
    return ApiError(error.status_code, "invalid", error.detail, error.headers)


def no_path(path: str) -> ApiError:
    return ApiError(404, "not_found", f"{path[:NAME_SHOWN]}: no such path. /openapi.json lists all paths")


def _line(problem: Mapping[str, Any]) -> str:
    where, *inside = problem["loc"] or ("body",)
    inside = inside if where in PLACES else [where, *inside]
    place = ".".join(map(str, inside))[:NAME_SHOWN] or str(where)
    if problem["type"] == "missing":
        return f"{place}: is missing, but required"
    if (allowed := ALLOWED.get(problem["type"])) is None:
        return f"{place}: {problem['msg'].removeprefix('Value error, ')}"
    return f"{place}: got {shown(problem['input'])}; allowed: {allowed.format(**problem.get('ctx') or {})}"


def shown(value: object) -> str:
    if isinstance(value, int) and abs(value) >= 10**NAME_SHOWN:
        return "a whole number of more than 80 digits"
    text = repr(value) if isinstance(value, str | int | float | bool | None) else _KINDS.get(type(value), "a value")
    return text if len(text) <= NAME_SHOWN else f"{text[:NAME_SHOWN]}…"
