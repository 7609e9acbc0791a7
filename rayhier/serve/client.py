"""A client of a served index, for Python programs.

Client("http://127.0.0.1:8000").search("how do I open a zip file", k=5).results[0].title

Every failure to get an answer is an `ApiError`. The error has status 0 if no server answered. A query that no server
could answer is a ValueError before anything is sent, for instance text in place of a list. A redirect is an
ApiError that names the address. Redirects are not followed, because the token must not go to another server.
"""

import asyncio
import contextlib
import itertools
import json
import math
import operator
import random
import re
import time
import uuid
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    SupportsFloat,
    SupportsIndex,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
)
from urllib.parse import quote, urlencode

import httpx2
from pydantic import ValidationError

from rayhier.serve.errors import ApiError
from rayhier.serve.http.bodies import (
    BatchResponse,
    DocumentResponse,
    ErrorBody,
    IndexResponse,
    ListResponse,
    NodesResponse,
    Part,
    RollbackResponse,
    RouteResponse,
    SearchResponse,
    VersionsResponse,
    WrittenResponse,
    pack,
    unpack,
)
from rayhier.serve.http.foreign import EmbeddingsResponse, RerankResponse
from rayhier.spec.search import Mode

ANSWER_SHOWN = 200
"""Largest number of characters that an error shows of an answer that cannot be read."""
PAUSE_SECONDS, DOUBLED_SECONDS = 0.25, 4.0
"""First and longest pause in seconds before a retry. Each retry doubles the pause, which a server may lengthen."""
WRITE_SECONDS = 150.0
"""Least timeout, in seconds, of a request to write, because the server encodes its documents."""
LONGEST_PAUSE_SECONDS = 30.0
"""Longest pause, in seconds, that a server may ask for before a retry. After a longer pause, there is no retry."""

Question = str | Sequence[SupportsFloat]
"""A query as text, or as its vector: a list, a tuple or an array of numbers."""
T = TypeVar("T")
Given = ParamSpec("Given")
Method = TypeVar("Method", bound=Callable[..., Any])
Answer = httpx2.Response | httpx2.HTTPError
"""The outcome of a request: the server's answer, or the error that prevented an answer."""
Answering = Callable[[httpx2.Request], Coroutine[Any, Any, Answer]]
Pausing = Callable[[float], Coroutine[Any, Any, None]]


class SearchOptions(TypedDict, total=False):
    """Options of a search besides the query, `k`, `beam` and a filter."""

    mode: Mode | None
    """Order of results: `dense` (by vectors), `bm25` (by words) or `hybrid` (by both). Default: the server's."""
    rerank: bool | None
    """True: the cross-encoder re-ranks results. Default: as the index's spec says."""
    budget: SupportsIndex | None
    """Largest number of documents that the cross-encoder reads for a query."""
    explain: bool
    """True: answers list the leaves that the router chose, with probabilities, and the number of rows scored."""
    include: Sequence[Part] | None
    """Parts of documents that answers contain, of `title`, `text` and `fields`. Default: all."""
    strict: bool
    """True: raise ApiError instead of returning an answer that lacks a part of the index."""
    min_log: SupportsIndex | None
    """Number of a change that the answer must include: `log` in the answer to `put` or `delete`."""
    model: str | None
    """Fingerprint of the model that made the query's vector. ApiError 409 if another model is served."""


@dataclass(frozen=True)
class _Call(Generic[T]):
    """A request to a path of the server, and the function that reads a value from the answer's body."""

    read: Callable[[bytes], T]
    path: str
    body: dict[str, Any] | None = None
    method: str = "POST"
    key: str | None = None


class _Server:
    """A server's address and token, the number of retries, and a request for each method of the clients."""

    def __init__(self, url: str, token: str | None, retries: int, timeout: float) -> None:
        self._write_timeout = httpx2.Timeout(max(timeout, WRITE_SECONDS)).as_dict()
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url: got {url!r}; allowed: http://… or https://…")
        self.url, self._retries = url.rstrip("/"), retries
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            if not re.fullmatch("[!-~]+", token):
                raise ValueError("token: got what no server takes; allowed: printable ASCII characters, no spaces")
            self._headers["Authorization"] = f"Bearer {token}"

    async def send(self, call: _Call[T], answering: Answering, pausing: Pausing) -> T:
        """Send a request, with retries, and return its answer. ApiError if no answer comes or it cannot be read."""
        content = None if call.body is None else json.dumps(call.body).encode()
        method = "GET" if call.body is None else call.method
        headers = self._headers | ({} if call.key is None else {"Idempotency-Key": call.key})
        for retry in itertools.count():
            request = httpx2.Request(method, self.url + call.path, content=content, headers=headers)
            if call.key is not None:
                request.extensions = {"timeout": self._write_timeout}
            answer = await answering(request)
            try:
                return _read(call, self.url, answer)
            except ApiError as error:
                seconds = _pause(error, answer, retry)
                if seconds is None or retry == self._retries:
                    raise
            await pausing(seconds)
        raise AssertionError("the last try returns or raises")

    def search(
        self,
        question: Question,
        k: SupportsIndex | None = None,
        beam: SupportsIndex | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 the name in every interface
        **options: Unpack[SearchOptions],
    ) -> _Call[SearchResponse]:
        """Search the best `k` documents for a query in at most `beam` leaves. None means the server's default.

        `filter` limits results by declared fields. The search then visits as many leaves as it needs to fill `k`.
        `SearchOptions` has the other options. ApiError or ValueError if there is no answer.
        """
        body = {**_one(question), **_asked(k, beam, filter, options)}
        return _Call(SearchResponse.model_validate_json, "/v1/search", body)

    def search_batch(
        self,
        questions: Sequence[Question],
        k: SupportsIndex | None = None,
        beam: SupportsIndex | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        **options: Unpack[SearchOptions],
    ) -> _Call[BatchResponse]:
        """Search for several queries, all texts or all vectors: one answer per query. All queries share the options."""
        body = {**_all(questions), **_asked(k, beam, filter, options)}
        return _Call(BatchResponse.model_validate_json, "/v1/search:batch", body)

    def route(self, question: Question, beam: SupportsIndex | None = None) -> _Call[RouteResponse]:
        """List the leaves that a query would visit, at most `beam`, in order. ApiError if no answer comes."""
        body = {**_one(question), "beam": _count("beam", beam)}
        return _Call(RouteResponse.model_validate_json, "/v1/route", body)

    def index(self) -> _Call[IndexResponse]:
        return _Call(IndexResponse.model_validate_json, "/v1/index")

    def encode(self, texts: str | Sequence[str]) -> _Call[list[list[float]]]:
        """Encode texts by the trained encoder. Returns one vector per text, as searches and `put` accept them."""
        several = [texts] if isinstance(texts, str) else texts
        body = {"input": [_text("texts", text) for text in several], "encoding_format": "base64"}
        return _Call(_vectors, "/v1/embeddings", body)

    def rerank(self, query: str, texts: Sequence[str]) -> _Call[list[tuple[int, float]]]:
        """Score texts for a query: positions and scores (0 to 1), best first. ApiError 404 without a cross-encoder."""
        body = {"query": _text("query", query), "documents": _texts("texts", texts)}
        return _Call(_ranked, "/v1/rerank", body)

    def put(
        self,
        documents: Sequence[Mapping[str, Any]],
        key: str | None = None,
        model: str | None = None,
        *,
        upsert: bool = True,
    ) -> _Call[WrittenResponse]:
        """Write documents (`id`, `title`, `text`, `fields`, `vector`), in place of documents with the same ids.

        Returns once the change is durable and searches see the change. The idempotency key, by default random,
        ensures that a repeated request changes nothing twice. `model` is the fingerprint of the model that made the
        vectors. ApiError 409 if another model is served, or if `upsert` is false and an id is in the index. ApiError
        also if a document is refused. An error changes nothing.
        """
        packed = [_packed(document, f"documents[{place}]") for place, document in enumerate(documents)]
        body = {"documents": _json(packed, "documents"), **({} if model is None else {"model": model})}
        body |= {} if upsert else {"upsert": False}
        return _Call(WrittenResponse.model_validate_json, "/v1/documents", body, "PUT", key or uuid.uuid4().hex)

    def delete(self, ids: Sequence[str], key: str | None = None) -> _Call[WrittenResponse]:
        """Delete documents by ids. A request with a used `key` changes nothing. ApiError 404 for unknown ids."""
        body = {"ids": _texts("ids", ids)}
        return _Call(WrittenResponse.model_validate_json, "/v1/documents", body, "DELETE", key or uuid.uuid4().hex)

    def document(self, id: str, min_log: SupportsIndex | None = None) -> _Call[DocumentResponse]:  # noqa: A002
        """Read the document with an id, including change `min_log` if given. ApiError 404 for an unknown id."""
        if _text("id", id) in ("", ".", ".."):  # a path with dots would name another place
            raise ValueError(f"id: got {id!r}; allowed: the id of a document, except '.' and '..'")
        page = _page(min_log=_count("min_log", min_log))
        return _Call(DocumentResponse.model_validate_json, f"/v1/documents/{quote(id, safe='')}{page}")

    def documents(
        self, after: str | None = None, limit: SupportsIndex = 100, min_log: SupportsIndex | None = None
    ) -> _Call[ListResponse]:
        """List at most `limit` documents (up to 1,000) by id, after the id `after` if given.

        `next` of the answer is `after` for the next page, and None on the last page.
        """
        begins = _text("after", "" if after is None else after)
        page = _page(after=begins, limit=_count("limit", limit), min_log=_count("min_log", min_log))
        return _Call(ListResponse.model_validate_json, f"/v1/documents{page}")

    def nodes(
        self, leaves: Sequence[SupportsIndex] | None = None, below: str = "0:0", limit: SupportsIndex = 100
    ) -> _Call[NodesResponse]:
        """Describe leaves by their numbers, at most 1,000: sizes, keywords, most probable documents.

        Without `leaves`, list the `limit` largest children of the node `below` (LEVEL:NUMBER). The root is 0:0.
        """
        if leaves is None:
            page = _page(below=_text("below", below), limit=_count("limit", limit))
        else:
            page = _page(leaf=[_count("leaves", leaf) for leaf in leaves])
            if not page:
                raise ValueError("leaves: got none; allowed: at least one")
        return _Call(NodesResponse.model_validate_json, f"/v1/nodes{page}")

    def versions(self, before: SupportsIndex | None = None, limit: SupportsIndex = 20) -> _Call[VersionsResponse]:
        """List at most `limit` versions of the index (up to 100), the newest first, before number `before` if given.

        `next` of the answer is `before` for the next page, and None on the last page.
        """
        page = _page(before=_count("before", before), limit=_count("limit", limit))
        return _Call(VersionsResponse.model_validate_json, f"/v1/versions{page}")

    def rollback(self, version: SupportsIndex, key: str | None = None) -> _Call[RollbackResponse]:
        """Publish the content of an older version as the newest version, which searches then read.

        Changes that are not in that version's files are lost. A request with a used `key` changes nothing.
        ApiError 404 if there is no such version.
        """
        body, key = {"version": _count("version", version)}, key or uuid.uuid4().hex
        return _Call(RollbackResponse.model_validate_json, "/v1/versions/rollback", body, key=key)


def _sent(make: Callable[Concatenate[_Server, Given], _Call[T]]) -> Callable[Concatenate["Client", Given], T]:
    """Make a method of `Client` from a function that makes a request. The method returns the server's answer."""

    def method(client: "Client", /, *args: Given.args, **kwargs: Given.kwargs) -> T:
        return client._send(make(client._server, *args, **kwargs))  # noqa: SLF001

    return _described(method, make)


def _awaited(
    make: Callable[Concatenate[_Server, Given], _Call[T]],
) -> Callable[Concatenate["AsyncClient", Given], Coroutine[Any, Any, T]]:
    """Make a coroutine of `AsyncClient` from a function that makes a request. The coroutine returns the answer."""

    async def method(client: "AsyncClient", /, *args: Given.args, **kwargs: Given.kwargs) -> T:
        return await client._send(make(client._server, *args, **kwargs))  # noqa: SLF001

    return _described(method, make)


def _described(method: Method, make: Callable[..., _Call[Any]]) -> Method:
    """Give `method` the name, docstring and signature of `make`, with the type of the answer as the return type."""
    wraps(make)(method)
    (returned,) = get_args(make.__annotations__["return"])
    method.__annotations__ = {**make.__annotations__, "return": returned}
    method.__dict__["__signature__"] = signature(make).replace(return_annotation=returned)
    return method


class Client:
    """A client of a server of an index. Each method returns once the server has answered.

    A request that is answered 503, or that no server answers, is sent again at most `retries` times. Before each retry
    the client makes the pause that the server asks for. `timeout` is in seconds. Connections are kept until `close`.
    Methods raise ApiError (status, code, message) if the server refuses, is not reached or gives an unknown answer.
    Methods raise ValueError for a query or an option that no server could answer.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 30.0, retries: int = 2) -> None:
        self._server = _Server(url, token, retries, timeout)
        self.url, self._http = self._server.url, httpx2.Client(timeout=timeout)
        self.close = weakref.finalize(self, self._http.close)
        """Close the connections. Garbage collection of the client also closes the connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    search = _sent(_Server.search)
    search_batch = _sent(_Server.search_batch)
    route = _sent(_Server.route)
    index = _sent(_Server.index)
    encode = _sent(_Server.encode)
    rerank = _sent(_Server.rerank)
    put = _sent(_Server.put)
    delete = _sent(_Server.delete)
    document = _sent(_Server.document)
    documents = _sent(_Server.documents)
    nodes = _sent(_Server.nodes)
    versions = _sent(_Server.versions)
    rollback = _sent(_Server.rollback)

    def _send(self, call: _Call[T]) -> T:
        try:
            self._server.send(call, self._answer, _sleep).send(None)
        except StopIteration as end:
            answer: T = end.value
            return answer
        raise AssertionError("nothing waits but what returns at once")

    async def _answer(self, request: httpx2.Request) -> Answer:
        """Return the outcome of a request. Nothing is awaited, so no event loop is needed."""
        try:
            return self._http.send(request)
        except httpx2.HTTPError as error:
            return error


async def _sleep(seconds: float) -> None:
    time.sleep(seconds)


class AsyncClient:
    """A client like `Client` whose methods are coroutines, with at most `connections` requests at a time."""

    def __init__(
        self, url: str, token: str | None = None, timeout: float = 30.0, retries: int = 2, connections: int = 16
    ) -> None:
        self._server = _Server(url, token, retries, timeout)
        self.url, limits = self._server.url, httpx2.Limits(max_connections=connections)
        self._http = httpx2.AsyncClient(timeout=httpx2.Timeout(timeout, pool=None), limits=limits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    search = _awaited(_Server.search)
    search_batch = _awaited(_Server.search_batch)
    route = _awaited(_Server.route)
    index = _awaited(_Server.index)
    encode = _awaited(_Server.encode)
    rerank = _awaited(_Server.rerank)
    put = _awaited(_Server.put)
    delete = _awaited(_Server.delete)
    document = _awaited(_Server.document)
    documents = _awaited(_Server.documents)
    nodes = _awaited(_Server.nodes)
    versions = _awaited(_Server.versions)
    rollback = _awaited(_Server.rollback)

    async def _send(self, call: _Call[T]) -> T:
        return await self._server.send(call, self._answer, asyncio.sleep)

    async def _answer(self, request: httpx2.Request) -> Answer:
        try:
            return await self._http.send(request)
        except httpx2.HTTPError as error:
            return error


def _vectors(content: bytes) -> list[list[float]]:
    vectors = [each.embedding for each in EmbeddingsResponse.model_validate_json(content).data]
    return [unpack(vector).tolist() if isinstance(vector, str) else vector for vector in vectors]


def _ranked(content: bytes) -> list[tuple[int, float]]:
    return [(result.index, result.relevance_score) for result in RerankResponse.model_validate_json(content).results]


def _page(**parameters: Any) -> str:
    """Make the query string of an address. Parameters that are None are left out."""
    given = urlencode({name: value for name, value in parameters.items() if value is not None}, doseq=True)
    return given and f"?{given}"


def _one(question: Question) -> dict[str, Any]:
    return {"query" if isinstance(question, str) else "vector": _plain(question)}


def _all(questions: Sequence[Question]) -> dict[str, Any]:
    """Return the queries of a request's body. ValueError unless all are texts, or all vectors."""
    if isinstance(questions, str | bytes):
        raise ValueError("questions: got text; allowed: a list of texts or of vectors")
    queries = list(questions)
    if not queries:
        raise ValueError("questions: got none; allowed: at least one")
    kinds = {"queries" if isinstance(query, str) else "vectors" for query in queries}
    if len(kinds) > 1:
        raise ValueError("questions: got texts and vectors; allowed: all texts, or all vectors")
    return {kinds.pop(): [_plain(query) for query in queries]}


def _asked(
    k: SupportsIndex | None,
    beam: SupportsIndex | None,
    where: Mapping[str, Any] | None,
    options: SearchOptions,
) -> dict[str, Any]:
    """Return a request's body without its queries. ValueError for a value that JSON cannot hold."""
    if unknown := set(options) - SearchOptions.__annotations__.keys():
        raise TypeError(
            f"got an unexpected option {min(unknown)!r}; allowed: {', '.join(SearchOptions.__annotations__)}"
        )
    include = options.get("include")
    if isinstance(include, str):
        raise ValueError(f"include: got text {include!r}; allowed: a list of title, text, fields")
    optional = {
        "include": None if include is None else list(include),
        "filter": where,
        "mode": options.get("mode"),
        "rerank": options.get("rerank"),
        "budget": _count("budget", options.get("budget")),
        "min_log": _count("min_log", options.get("min_log")),
        "model": options.get("model"),
        "explain": bool(options.get("explain")) or None,
    }
    parts = {name: _json(value, name) for name, value in optional.items() if value is not None}
    return {"k": _count("k", k), "beam": _count("beam", beam), **parts, "strict": bool(options.get("strict"))}


def _text(name: str, value: str) -> str:
    """Return `value` unchanged. ValueError unless `value` is text that can be written as UTF-8."""
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise ValueError(f"{name}: got {_shown(value)}; allowed: text in UTF-8") from None
    return value


def _texts(name: str, values: Sequence[str]) -> list[str]:
    if isinstance(values, str):
        raise ValueError(f"{name}: got text {values!r:.80}; allowed: a list of {name}")
    return [_text(name, value) for value in values]


def _numbers(value: Any) -> list[float] | None:
    """Convert numbers of any type to floats. None if a number is not finite, or `value` holds no numbers."""
    try:
        given = value.tolist() if hasattr(value, "tolist") else list(value)
        if isinstance(value, str | bytes) or any(isinstance(number, str | bytes) for number in given):
            return None
        numbers = [float(number) for number in given]
    except (TypeError, OverflowError):
        return None
    return numbers if numbers and all(map(math.isfinite, numbers)) else None


def _plain(question: Question) -> str | list[float]:
    """Convert a query to a value of JSON. ValueError if the query is neither text nor finite numbers."""
    plain = question if isinstance(question, str) else _numbers(question)
    if plain is None:
        raise ValueError(f"question: got {_shown(question)}; allowed: a text, or a list of finite numbers")
    return plain


def _packed(document: Any, place: str) -> Any:
    """Return a document with its vector, if any, as base64 text. ValueError if the vector is not finite numbers."""
    vector = document.get("vector") if isinstance(document, Mapping) else None
    if vector is None or isinstance(vector, str):
        return document
    numbers = _numbers(vector)
    with contextlib.suppress(OverflowError):  # a number too large for a float32
        if numbers is not None:
            return {**document, "vector": pack(numbers)}
    raise ValueError(f"{place}.vector: got {_shown(vector)}; allowed: a list of finite numbers")


def _json(value: Any, place: str) -> Any:
    """Convert a value to JSON, including numpy's numbers and arrays. ValueError at `place` for other values."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    try:
        match plain:
            case None | str() | bool():
                return plain
            case int() | float() if math.isfinite(plain):
                return plain
            case list() | tuple():
                return [_json(item, f"{place}[{number}]") for number, item in enumerate(plain)]
            case Mapping() if all(isinstance(key, str) for key in plain):
                return {key: _json(item, f"{place}.{key}") for key, item in plain.items()}
    except (OverflowError, RecursionError):
        pass  # a number too large for a float, or a list that contains itself
    allowed = "text, finite numbers, true, false, null, lists, and objects whose keys are text"
    raise ValueError(f"{place[:ANSWER_SHOWN]}: got {_shown(value)}; allowed: {allowed}")


def _shown(value: object) -> str:
    try:
        return repr(value)[:ANSWER_SHOWN]
    except (ValueError, RecursionError):
        return "what is too large to show"


def _count(name: str, number: SupportsIndex | None) -> int | None:
    """Convert a whole number of any type to an int. ValueError if the value is not a whole number."""
    if number is None:
        return None
    try:
        if not isinstance(number, bool):
            return operator.index(number)
    except TypeError:
        pass
    raise ValueError(f"{name}: got {number!r}; allowed: a whole number")


def _pause(error: ApiError, answer: Answer | None, retry: int) -> float | None:
    """Return the seconds to wait before a retry. None for no retry, as after a timeout: the server may still work."""
    is_cut = isinstance(answer, httpx2.HTTPError) and not isinstance(answer, httpx2.TimeoutException)
    if error.status != 503 and not is_cut:
        return None
    header = (error.headers or {}).get("Retry-After", "0")
    least = float(header) if header.isdecimal() else 0.0  # rayhier's server never sends a date here
    if least > LONGEST_PAUSE_SECONDS:
        return None
    # A random pause spreads the retries of clients that were refused at the same time.
    pause = max(least, min(DOUBLED_SECONDS, PAUSE_SECONDS * (1 << min(retry, 16))))
    return pause * random.uniform(1, 1.5)  # noqa: S311


def _read(call: _Call[T], url: str, answer: Answer) -> T:
    """Read the answer to a request. ApiError if no answer came, or this client cannot read the answer."""
    if isinstance(answer, httpx2.Response):
        if not answer.is_success:
            raise _refusal(answer)
        try:
            return call.read(answer.content)
        except ValidationError as error:
            raise ApiError(answer.status_code, "misfit", _misfit(call.path, error, answer.content)) from None
    reason = f"{answer}" or type(answer).__name__
    raise ApiError(0, "unreachable", f"{url}{call.path}: {reason}")


def _refusal(answer: httpx2.Response) -> ApiError:
    again = answer.headers.get("Retry-After")
    headers, status = None if again is None else {"Retry-After": again}, answer.status_code
    if 300 <= status < 400:
        pointed = answer.headers.get("Location", "nowhere")[:ANSWER_SHOWN]
        return ApiError(status, "redirect", f"{answer.request.url}: points to {pointed}. Redirects are not followed")
    try:
        detail = ErrorBody.model_validate_json(answer.content).error
    except ValidationError:
        return ApiError(status, "http", answer.content.decode(errors="replace")[:ANSWER_SHOWN], headers)
    return ApiError(status, detail.code, detail.message, headers)


def _misfit(path: str, error: ValidationError, content: bytes) -> str:
    """Return the message for an answer with a field that this version of the client cannot read."""
    problem = error.errors(include_url=False)[0]
    if problem["type"] == "json_invalid":
        return f"{path}: the answer is not JSON: {content.decode(errors='replace')[:ANSWER_SHOWN]!r}"
    field, got = ".".join(map(str, problem["loc"])) or "the answer", repr(problem["input"])[:ANSWER_SHOWN]
    if problem["type"] == "missing":
        return f"{path}: {field}: missing from the answer. The server may run another version of rayhier"
    return f"{path}: {field}: got {got}: {problem['msg']}. The server may run another version of rayhier"
