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
import weakref
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Generic, Self, SupportsFloat, SupportsIndex, TypedDict, TypeVar, Unpack

import httpx2
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

Question = str | Sequence[SupportsFloat]
"""A question as text, or as its vector: a list, a tuple or an array of numbers."""
T = TypeVar("T", bound=BaseModel)
Answer = httpx2.Response | httpx2.HTTPError
"""What comes of a request: the server's answer, or why there is none."""
Exchange = Generator[httpx2.Request | float, Answer | None, T]
"""Yields requests to send and seconds to wait, is sent what comes of each request, and returns the answer."""


class SearchOptions(TypedDict, total=False):
    """What searches may ask besides the question, `k`, `beam` and a filter."""

    mode: Mode | None
    """What orders results: `dense`, `bm25` or `hybrid`; default: `mode` of `index()`."""
    rerank: bool | None
    """Whether the cross-encoder re-ranks; default: as the index's spec says."""
    budget: SupportsIndex | None
    """Most documents that the cross-encoder reads."""
    explain: bool
    """Whether answers say how they came about."""
    include: Sequence[Part] | None
    """Parts of the documents that answers show; default: all."""
    strict: bool
    """Whether a partial answer is an ApiError."""


class _Call(Generic[T]):
    """One request to a path, and the type of its answer."""

    def __init__(self, response: type[T], path: str, body: dict[str, Any] | None = None) -> None:
        self.response, self.path = response, path
        self.content = None if body is None else json.dumps(body).encode()


class _Server:
    """A server's address and token, and how often it is asked again."""

    def __init__(self, url: str, token: str | None, retries: int) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url: got {url!r}; allowed: http://… or https://…")
        self.url, self._retries = url.rstrip("/"), retries
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            if not re.fullmatch("[!-~]+", token):
                raise ValueError("token: got what no server takes; allowed: printable ASCII characters, no spaces")
            self._headers["Authorization"] = f"Bearer {token}"

    def exchange(self, call: _Call[T]) -> Exchange[T]:
        """Send a request until it is answered, as often as may be; ApiError where it is not."""
        method = "GET" if call.content is None else "POST"
        for retry in range(self._retries + 1):
            request = httpx2.Request(method, self.url + call.path, content=call.content, headers=self._headers)
            answer = yield request
            try:
                return _read(call, self.url, answer)
            except ApiError as error:
                seconds = _pause(error, answer, retry)
                if seconds is None or retry == self._retries:
                    raise
            yield seconds
        raise AssertionError("the last try returns or raises")

    def search(
        self,
        question: Question,
        k: SupportsIndex | None,
        beam: SupportsIndex | None,
        where: Mapping[str, Any] | None,
        options: SearchOptions,
    ) -> _Call[SearchResponse]:
        body = {_kind(question, "query", "vector"): _plain(question), **_asked(k, beam, where, options)}
        return _Call(SearchResponse, "/v1/search", body)

    def search_batch(
        self,
        questions: Sequence[Question],
        k: SupportsIndex | None,
        beam: SupportsIndex | None,
        where: Mapping[str, Any] | None,
        options: SearchOptions,
    ) -> _Call[BatchResponse]:
        return _Call(BatchResponse, "/v1/search:batch", {**_all(questions), **_asked(k, beam, where, options)})

    def route(self, question: Question, beam: SupportsIndex | None) -> _Call[RouteResponse]:
        body = {_kind(question, "query", "vector"): _plain(question), "beam": _count("beam", beam)}
        return _Call(RouteResponse, "/v1/route", body)

    def index(self) -> _Call[IndexResponse]:
        return _Call(IndexResponse, "/v1/index")


class Client:
    """Asks one server; ApiError (status, code, message) where it refuses, is not reached, or answers what is unknown.

    A request that is answered 503, or that no server answers, is sent again, at most `retries` times, after the pause
    that the server asks for. Connections are kept until `close`.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 30.0, retries: int = 2) -> None:
        self._server = _Server(url, token, retries)
        self.url, self._http = self._server.url, httpx2.Client(timeout=timeout)
        self.close = weakref.finalize(self, self._http.close)
        """Close the connections, which also end with the client."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(
        self,
        question: Question,
        k: SupportsIndex | None = None,
        beam: SupportsIndex | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 the name in every interface
        **options: Unpack[SearchOptions],
    ) -> SearchResponse:
        """Find the best `k` documents in at most `beam` leaves; defaults: `k` and `beam` of `index()`.

        With a filter over the declared fields, in as many leaves as hold enough documents that match. `SearchOptions`
        has the other options.
        """
        return self._send(self._server.search(question, k, beam, filter, options))

    def search_batch(
        self,
        questions: Sequence[Question],
        k: SupportsIndex | None = None,
        beam: SupportsIndex | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        **options: Unpack[SearchOptions],
    ) -> BatchResponse:
        """Find the best documents for several questions, all texts or all vectors."""
        return self._send(self._server.search_batch(questions, k, beam, filter, options))

    def route(self, question: Question, beam: SupportsIndex | None = None) -> RouteResponse:
        """List the leaves that a question would visit, at most `beam`, in the order of visit."""
        return self._send(self._server.route(question, beam))

    def index(self) -> IndexResponse:
        """Describe the index that is served."""
        return self._send(self._server.index())

    def _send(self, call: _Call[T]) -> T:
        exchange = self._server.exchange(call)
        step = next(exchange)
        try:
            while True:
                if isinstance(step, httpx2.Request):
                    step = exchange.send(self._answer(step))
                else:
                    time.sleep(step)
                    step = next(exchange)
        except StopIteration as end:
            answer: T = end.value
            return answer

    def _answer(self, request: httpx2.Request) -> Answer:
        try:
            return self._http.send(request)
        except httpx2.HTTPError as error:
            return error


class AsyncClient:
    """Asks one server like `Client`, from a coroutine; at most `connections` requests at a time."""

    def __init__(
        self, url: str, token: str | None = None, timeout: float = 30.0, retries: int = 2, connections: int = 16
    ) -> None:
        self._server = _Server(url, token, retries)
        limits = httpx2.Limits(max_connections=connections)
        self.url, self._http = self._server.url, httpx2.AsyncClient(timeout=timeout, limits=limits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def search(
        self,
        question: Question,
        k: SupportsIndex | None = None,
        beam: SupportsIndex | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        **options: Unpack[SearchOptions],
    ) -> SearchResponse:
        """Find the best `k` documents in at most `beam` leaves; defaults: `k` and `beam` of `index()`."""
        return await self._send(self._server.search(question, k, beam, filter, options))

    async def search_batch(
        self,
        questions: Sequence[Question],
        k: SupportsIndex | None = None,
        beam: SupportsIndex | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        **options: Unpack[SearchOptions],
    ) -> BatchResponse:
        """Find the best documents for several questions, all texts or all vectors."""
        return await self._send(self._server.search_batch(questions, k, beam, filter, options))

    async def route(self, question: Question, beam: SupportsIndex | None = None) -> RouteResponse:
        """List the leaves that a question would visit, at most `beam`, in the order of visit."""
        return await self._send(self._server.route(question, beam))

    async def index(self) -> IndexResponse:
        """Describe the index that is served."""
        return await self._send(self._server.index())

    async def _send(self, call: _Call[T]) -> T:
        exchange = self._server.exchange(call)
        step = next(exchange)
        try:
            while True:
                if isinstance(step, httpx2.Request):
                    step = exchange.send(await self._answer(step))
                else:
                    await asyncio.sleep(step)
                    step = next(exchange)
        except StopIteration as end:
            answer: T = end.value
            return answer

    async def _answer(self, request: httpx2.Request) -> Answer:
        try:
            return await self._http.send(request)
        except httpx2.HTTPError as error:
            return error


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
    options: SearchOptions,
) -> dict[str, Any]:
    """What a request has besides its questions; ValueError where a value is none that JSON has."""
    if unknown := set(options) - SearchOptions.__annotations__.keys():
        raise TypeError(
            f"got an unexpected option {min(unknown)!r}; allowed: {', '.join(SearchOptions.__annotations__)}"
        )
    include = options.get("include")
    if isinstance(include, str):
        raise ValueError(f"include: got text {include!r}; allowed: a list of title, text, fields")
    given = {
        "include": None if include is None else list(include),
        "filter": where,
        "mode": options.get("mode"),
        "rerank": options.get("rerank"),
        "budget": _count("budget", options.get("budget")),
        "explain": bool(options.get("explain")) or None,
    }
    parts = {name: _json(value, name) for name, value in given.items() if value is not None}
    return {"k": _count("k", k), "beam": _count("beam", beam), **parts, "strict": bool(options.get("strict"))}


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


def _pause(error: ApiError, answer: Answer | None, retry: int) -> float | None:
    """Seconds to wait before a request is sent again; None where it should not be.

    One that took too long is not: the server may still be at work on it.
    """
    is_cut = isinstance(answer, httpx2.HTTPError) and not isinstance(answer, httpx2.TimeoutException)
    if error.status != 503 and not is_cut:
        return None
    said = (error.headers or {}).get("Retry-After", "0")
    least = float(said) if said.isdecimal() else 0.0  # or a date, which no server of this project sends
    if least > LONGEST_PAUSE_SECONDS:
        return None
    # At random, so that clients who were refused together do not come back together.
    return max(least, PAUSE_SECONDS * (1 << retry)) * random.uniform(1, 1.5)  # noqa: S311


def _read(call: _Call[T], url: str, answer: Answer | None) -> T:
    """The answer to a call; ApiError where there is none, or one that this version cannot read."""
    if isinstance(answer, httpx2.Response):
        if not answer.is_success:
            raise _refusal(answer)
        try:
            return call.response.model_validate_json(answer.content)
        except ValidationError as error:
            raise ApiError(answer.status_code, "misfit", _misfit(call.path, error, answer.content)) from None
    why = f"{answer}" or type(answer).__name__
    raise ApiError(0, "unreachable", f"{url}{call.path}: {why}")


def _refusal(answer: httpx2.Response) -> ApiError:
    again = answer.headers.get("Retry-After")
    headers, status = None if again is None else {"Retry-After": again}, answer.status_code
    if 300 <= status < 400:
        pointed = answer.headers.get("Location", "nowhere")[:ANSWER_SHOWN]
        return ApiError(status, "redirect", f"{answer.request.url}: points to {pointed}; redirects are not followed")
    try:
        detail = ErrorBody.model_validate_json(answer.content).error
    except ValidationError:
        return ApiError(status, "http", answer.content.decode(errors="replace")[:ANSWER_SHOWN], headers)
    return ApiError(status, detail.code, detail.message, headers)


def _misfit(path: str, error: ValidationError, said: bytes) -> str:
    """Message that names the field of an answer that this version cannot read."""
    problem = error.errors(include_url=False)[0]
    if problem["type"] == "json_invalid":
        return f"{path}: the answer is not JSON: {said.decode(errors='replace')[:ANSWER_SHOWN]!r}"
    field, got = ".".join(map(str, problem["loc"])) or "the answer", repr(problem["input"])[:ANSWER_SHOWN]
    if problem["type"] == "missing":
        return f"{path}: {field}: missing from the answer; the server may run another version of rayhier"
    return f"{path}: {field}: got {got}: {problem['msg']}; the server may run another version of rayhier"
