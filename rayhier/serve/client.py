"""Query a served index from Python.

Client("http://127.0.0.1:8000").search("how do I open a zip file", k=5).results[0].title

Every failure to get an answer is an `ApiError`; its status is 0 where no server answered. A question that no server
could answer, text where a list belongs for instance, is a ValueError before anything is sent. An answer that points to
another address is not followed, since a token belongs to one server: it is an ApiError that names the address.
"""

import asyncio
import json
import math
import operator
import random
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPException, IncompleteRead
from typing import Any, Self, SupportsFloat, SupportsIndex, TypeVar

from pydantic import BaseModel, ValidationError

from rayhier.serve.errors import ApiError
from rayhier.serve.http.models import BatchResponse, ErrorBody, IndexResponse, Part, RouteResponse, SearchResponse
from rayhier.spec.search import Mode

ANSWER_SHOWN = 200
"""Characters shown of an answer that cannot be parsed."""
PAUSE_SECONDS = 0.25
"""Least pause before the first retry; every further one is at least twice as long."""
LONGEST_PAUSE_SECONDS = 30.0
"""A server that asks for a longer pause than this is not asked again."""
HANDLERS = (
    urllib.request.ProxyHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPErrorProcessor,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.UnknownHandler,
)
"""Those of urllib but the one that follows an answer elsewhere, which would take the token along."""

Question = str | Sequence[SupportsFloat]
"""A question as text, or as its vector: a list, a tuple or an array of numbers."""
Response = TypeVar("Response", bound=BaseModel)
T = TypeVar("T")


class Client:
    """Asks one server; ApiError (status, code, message) where it refuses, is not reached, or answers what is unknown.

    A request that is answered 503 is sent again, at most `retries` times, after the pause that the server asks for.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 30.0, retries: int = 2) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url: got {url!r}; allowed: http://… or https://…")
        self.url, self.timeout, self.retries = url.rstrip("/"), timeout, retries
        self._headers = {"Content-Type": "application/json"}
        self._opener = urllib.request.OpenerDirector()
        for handler in HANDLERS:
            self._opener.add_handler(handler())
        if token is not None:
            if not re.fullmatch("[!-~]+", token):
                raise ValueError("token: got what no server takes; allowed: printable ASCII characters, no spaces")
            self._headers["Authorization"] = f"Bearer {token}"

    def search(
        self,
        question: Question,
        k: SupportsIndex | None = None,
        beam: SupportsIndex | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 the name in every interface
        *,
        mode: Mode | None = None,
        rerank: bool | None = None,
        budget: SupportsIndex | None = None,
        explain: bool = False,
        include: Sequence[Part] | None = None,
        strict: bool = False,
    ) -> SearchResponse:
        """Find the best `k` documents in at most `beam` leaves; defaults: `k` and `beam` of `index()`.

        With a filter over the declared fields, in as many leaves as hold enough documents that match. Re-ranked by a
        cross-encoder as the index's spec says, unless `rerank` or `budget` say otherwise. By `mode`, what orders
        results: `dense`, `bm25` or `hybrid`; default: `mode` of `index()`.
        """
        own = _how(mode, rerank, budget, explain=explain)
        asked = _asked(k, beam, filter, include, strict=strict)
        body = {_kind(question, "query", "vector"): _plain(question), **asked, **own}
        return self._ask(SearchResponse, "/v1/search", body)

    def search_batch(
        self,
        questions: Sequence[Question],
        k: SupportsIndex | None = None,
        beam: SupportsIndex | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        mode: Mode | None = None,
        rerank: bool | None = None,
        budget: SupportsIndex | None = None,
        explain: bool = False,
        include: Sequence[Part] | None = None,
        strict: bool = False,
    ) -> BatchResponse:
        """Find the best documents for several questions, all texts or all vectors."""
        own = _how(mode, rerank, budget, explain=explain)
        body = {**_all(questions), **_asked(k, beam, filter, include, strict=strict), **own}
        return self._ask(BatchResponse, "/v1/search:batch", body)

    def route(self, question: Question, beam: SupportsIndex | None = None) -> RouteResponse:
        """List the leaves that a question would visit, at most `beam`, in the order of visit."""
        body = {_kind(question, "query", "vector"): _plain(question), "beam": _count("beam", beam)}
        return self._ask(RouteResponse, "/v1/route", body)

    def index(self) -> IndexResponse:
        """Describe the index that is served."""
        return self._ask(IndexResponse, "/v1/index")

    def _ask(self, response: type[Response], path: str, body: dict[str, Any] | None = None) -> Response:
        data = None if body is None else json.dumps(body).encode()
        for retry in range(self.retries):
            try:
                return self._once(response, path, data)
            except ApiError as error:
                seconds = _pause(error, retry)
                if seconds is None:
                    raise
                time.sleep(seconds)
        return self._once(response, path, data)

    def _once(self, response: type[Response], path: str, data: bytes | None) -> Response:
        request = urllib.request.Request(self.url + path, data, self._headers)  # noqa: S310 checked in __init__
        status, said = 0, b""
        try:
            with self._opener.open(request, timeout=self.timeout) as answer:
                status = answer.status
                said = answer.read()
            return response.model_validate_json(said)
        except ValidationError as error:
            raise ApiError(status, "misfit", _misfit(path, error, said)) from None
        except IncompleteRead as error:
            raise ApiError(status, "misfit", f"{path}: the answer ended after {len(error.partial)} bytes") from None
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", error)
            raise ApiError(0, "unreachable", f"{self.url}{path}: {why or type(error).__name__}") from None


class AsyncClient:
    """Asks one server like `Client`, from a coroutine; `connections` requests at a time, each in a thread."""

    def __init__(
        self, url: str, token: str | None = None, timeout: float = 30.0, retries: int = 2, connections: int = 16
    ) -> None:
        self._client = Client(url, token, timeout, retries)
        self._threads = ThreadPoolExecutor(connections, "rayhier-client")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads that have nothing to do; the others end with their answers."""
        self._threads.shutdown(wait=False)

    async def search(
        self,
        question: Question,
        k: SupportsIndex | None = None,
        beam: SupportsIndex | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        mode: Mode | None = None,
        rerank: bool | None = None,
        budget: SupportsIndex | None = None,
        explain: bool = False,
        include: Sequence[Part] | None = None,
        strict: bool = False,
    ) -> SearchResponse:
        """Find the best `k` documents in at most `beam` leaves; defaults: `k` and `beam` of `index()`."""
        ask = partial(
            self._client.search,
            mode=mode,
            rerank=rerank,
            budget=budget,
            explain=explain,
            include=include,
            strict=strict,
        )
        return await self._run(partial(ask, question, k, beam, filter))

    async def search_batch(
        self,
        questions: Sequence[Question],
        k: SupportsIndex | None = None,
        beam: SupportsIndex | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        mode: Mode | None = None,
        rerank: bool | None = None,
        budget: SupportsIndex | None = None,
        explain: bool = False,
        include: Sequence[Part] | None = None,
        strict: bool = False,
    ) -> BatchResponse:
        """Find the best documents for several questions, all texts or all vectors."""
        ask = partial(
            self._client.search_batch,
            mode=mode,
            rerank=rerank,
            budget=budget,
            explain=explain,
            include=include,
            strict=strict,
        )
        return await self._run(partial(ask, questions, k, beam, filter))

    async def route(self, question: Question, beam: SupportsIndex | None = None) -> RouteResponse:
        """List the leaves that a question would visit, at most `beam`, in the order of visit."""
        return await self._run(partial(self._client.route, question, beam))

    async def index(self) -> IndexResponse:
        """Describe the index that is served."""
        return await self._run(self._client.index)

    async def _run(self, ask: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)


def _all(questions: Sequence[Question]) -> dict[str, Any]:
    """Questions as a request has them; ValueError where they are no list of texts or of vectors."""
    if isinstance(questions, str | bytes):
        raise ValueError("questions: got text; allowed: a list of texts or of vectors")
    each = list(questions)
    if not each:
        raise ValueError("questions: got none; allowed: at least one")
    kinds = {_kind(question, "queries", "vectors") for question in each}
    if len(kinds) > 1:
        raise ValueError("questions: got texts and vectors; allowed: all texts, or all vectors")
    return {kinds.pop(): [_plain(question) for question in each]}


def _asked(
    k: SupportsIndex | None,
    beam: SupportsIndex | None,
    where: Mapping[str, Any] | None,
    include: Sequence[Part] | None,
    *,
    strict: bool,
) -> dict[str, Any]:
    """What a request has besides its questions."""
    if isinstance(include, str):
        raise ValueError(f"include: got text {include!r}; allowed: a list of title, text, fields")
    parts: dict[str, Any] = {} if include is None else {"include": list(include)}
    parts |= {} if where is None else {"filter": _json(where, "filter")}
    return {"k": _count("k", k), "beam": _count("beam", beam), **parts, "strict": bool(strict)}


def _how(mode: Mode | None, rerank: bool | None, budget: SupportsIndex | None, *, explain: bool) -> dict[str, Any]:
    """What a request has where a mode, re-ranking or an explanation is asked for."""
    given = {"mode": mode, "rerank": rerank, "budget": _count("budget", budget), "explain": bool(explain) or None}
    return {name: _json(value, name) for name, value in given.items() if value is not None}


def _kind(question: Question, text: str, vector: str) -> str:
    return text if isinstance(question, str) else vector


def _plain(question: Question) -> str | list[float]:
    """A question as JSON has it; ValueError where it is neither text nor numbers."""
    if isinstance(question, str):
        return question
    try:
        numbers = list(question)
        if not any(isinstance(number, str | bytes) for number in numbers) and not isinstance(question, bytes):
            plain = [float(number) for number in numbers]
            if plain and all(map(math.isfinite, plain)):
                return plain
    except (TypeError, OverflowError):
        pass
    raise ValueError(f"question: got {_shown(question)}; allowed: a text, or a list of finite numbers")


def _json(given: Any, place: str) -> Any:
    """A value as JSON has it, given with numpy's numbers and arrays or without; ValueError that names the place."""
    plain = given.tolist() if hasattr(given, "tolist") else given
    try:
        match plain:
            case None | str() | bool():
                return plain
            case int() | float() if math.isfinite(plain):
                return plain
            case list() | tuple():
                return [_json(one, f"{place}[{number}]") for number, one in enumerate(plain)]
            case Mapping() if all(isinstance(key, str) for key in plain):
                return {key: _json(one, f"{place}.{key}") for key, one in plain.items()}
    except (OverflowError, RecursionError):
        pass  # a whole number beyond every float, lists without end
    allowed = "text, finite numbers, true, false, null, lists, and objects whose keys are text"
    raise ValueError(f"{place[:ANSWER_SHOWN]}: got {_shown(given)}; allowed: {allowed}")


def _shown(given: object) -> str:
    """What was given, in few characters."""
    try:
        return repr(given)[:ANSWER_SHOWN]
    except (ValueError, RecursionError):
        return "what is too large to show"


def _count(name: str, given: SupportsIndex | None) -> int | None:
    """A whole number, whatever its type; ValueError where it is none."""
    if given is None:
        return None
    try:
        if not isinstance(given, bool):
            return operator.index(given)
    except TypeError:
        pass
    raise ValueError(f"{name}: got {given!r}; allowed: a whole number")


def _pause(error: ApiError, retry: int) -> float | None:
    """Seconds to wait before a request is sent again; None where it should not be."""
    if error.status != 503:
        return None
    said = (error.headers or {}).get("Retry-After", "0")
    wanted = float(said) if said.isdecimal() else 0.0  # or a date, which no server of this project sends
    if wanted > LONGEST_PAUSE_SECONDS:
        return None
    # At random, so that clients who were refused together do not come back together.
    return max(wanted, PAUSE_SECONDS * (1 << retry)) * random.uniform(1, 1.5)  # noqa: S311


def _refusal(error: urllib.error.HTTPError) -> ApiError:
    again = error.headers.get("Retry-After")
    headers = None if again is None else {"Retry-After": again}
    if 300 <= error.code < 400:
        pointed = error.headers.get("Location", "nowhere")[:ANSWER_SHOWN]
        return ApiError(error.code, "redirect", f"{error.url}: points to {pointed}; redirects are not followed")
    try:
        said = error.read().decode(errors="replace")
    except (OSError, HTTPException):
        said = "the answer was cut off"
    try:
        detail = ErrorBody.model_validate_json(said).error
    except ValidationError:
        return ApiError(error.code, "http", said[:ANSWER_SHOWN], headers)
    return ApiError(error.code, detail.code, detail.message, headers)


def _misfit(path: str, error: ValidationError, said: bytes) -> str:
    """Message that names the field of an answer that this version cannot read."""
    problem = error.errors(include_url=False)[0]
    if problem["type"] == "json_invalid":
        return f"{path}: the answer is not JSON: {said.decode(errors='replace')[:ANSWER_SHOWN]!r}"
    field, got = ".".join(map(str, problem["loc"])) or "the answer", repr(problem["input"])[:ANSWER_SHOWN]
    if problem["type"] == "missing":
        return f"{path}: {field}: missing from the answer; the server may run another version of rayhier"
    return f"{path}: {field}: got {got}: {problem['msg']}; the server may run another version of rayhier"
