"""Checks every request before it is parsed: its token, its body, its time, and the number of requests at work."""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rayhier.serve.args import RequestLimits
from rayhier.serve.backend.queues import Admission, Shares
from rayhier.serve.errors import ApiError
from rayhier.serve.http.bodies import NAME_SHOWN
from rayhier.serve.http.error_handlers import no_path, respond
from rayhier.serve.http.page import PAGE
from rayhier.serve.http.receive import GoneError, Receiver, peer_of
from rayhier.serve.http.tokens import Tokens
from rayhier.serve.metrics import Metrics

OPEN = ("/healthz", "/readyz")
"""Paths that need no token and are answered even under load."""
DOCUMENT = "/v1/documents/{id}"
"""Path under which metrics count requests for one document."""
ROLLBACK = "/v1/versions/rollback"
READING_POSTS = {"/v1/search", "/v1/search:batch", "/v1/route", "/v1/embeddings", "/v1/rerank", "/v2/rerank"}
"""Paths to which a POST needs no write token."""
PATHS = READING_POSTS | {"/v1/index", "/v1/documents", "/v1/nodes", "/v1/versions", ROLLBACK, "/v1/models"}
"""Paths that metrics count one by one. Requests to all other paths are counted together."""
READS = ("GET", "HEAD", "OPTIONS")
"""HTTP methods that need no write token. All other methods need the token, except POST to `READING_POSTS`."""
SMALL = 64_000
"""Largest number of bytes of a small answer. Only larger answers count for `max_unsent_bytes`."""
KNOWN = "known"
"""Key in a request's ASGI state, set if the request had the token, or if no token is needed."""
Block = Callable[[], AbstractContextManager[None]]
WITHOUT_SLOT: ContextVar[Block] = ContextVar("slot", default=contextlib.nullcontext)
"""Makes a block in which the current request only waits, and gives up its slot for work (of `max_requests`)."""
PORT = re.compile(rb":[0-9]*$")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters, which a path may have only in the id of a document."""


class Guard:
    """ASGI middleware that checks requests and limits their number and time.

    A request takes a slot for work once its body has arrived, so a slow sender blocks no other request. The request
    keeps the slot until its answer is sent. Work for a client that has left is cancelled.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Tokens,
        limits: RequestLimits,
        admission: Admission | None = None,
        metrics: Metrics | None = None,
        write_seconds: float | None = None,
        hosts: Sequence[str] = (),
    ) -> None:
        """Check requests before the application `app` gets them.

        If `admission` refuses further requests, a body is refused before it is parsed. `metrics` records every request,
        with status 0 if the client left. A request to write may take `write_seconds`, by default as long as other
        requests. If there are `hosts`, the header Host must name one of them.
        """
        self._hosts = [host.lower().encode() for host in hosts]
        self.app, self.limits, self._admission, self._metrics = app, limits, admission, metrics
        self._write_seconds = limits.seconds if write_seconds is None else write_seconds
        self._tokens = tokens
        self._receive = Receiver(limits)
        self._working, self._waiting = (
            Shares(f"requests {what}", limits.max_requests, limits.peer_share) for what in ("at work", "that wait")
        )
        self._unsent = Shares("unread bytes of answers", limits.max_unsent_bytes, limits.peer_share)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 401, 403, 404, 408, 413, 415, 421, 503 or 504."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, answer = time.perf_counter(), _Answer(scope, send)
        try:
            await self._in_time(scope, receive, answer)
        except GoneError:
            return
        except ApiError as error:
            if not answer.status:  # otherwise an answer has begun, and ends early
                answer.refusal = None
                await respond(error)(scope, receive, answer)
        except Exception:
            answer.status = answer.status or 500  # outer middleware answers the error with 500
            raise
        finally:
            if self._metrics is not None and _path(scope) not in OPEN:
                self._metrics.answered(_counted(_path(scope)), answer.status, time.perf_counter() - began)

    async def _in_time(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        writes = _writes(scope)
        most, name = (self._write_seconds, "writes.seconds") if writes else (self.limits.seconds, "limits.seconds")
        try:
            async with asyncio.timeout(most) as deadline:
                _check_head(scope)
                if (path := _path(scope)) not in OPEN:
                    self._check_host(scope)
                if path in OPEN or path in PAGE:
                    return await self.app(scope, receive, answer)  # no body is received, and no slot is held
                self._tokens.check(authorization(scope), writes=writes)
                scope.setdefault("state", {})[KNOWN] = True
                body, answer.has_body = await self._receive(scope, receive), True
                await self._work(scope, receive, answer, body)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise ApiError(504, "timeout", f"no answer within {most:g} s, {name}") from None

    def _check_host(self, scope: Scope) -> None:
        """Raise ApiError 421 unless Host names this server. A web page's own name may resolve to our address."""
        named = [value for name, value in scope["headers"] if name == b"host"] or [b""]
        for host in named if self._hosts else ():
            if PORT.sub(b"", host.lower()).strip(b"[]") not in self._hosts:
                allowed = b", ".join(self._hosts).decode()
                message = f"host: got {host.decode('latin-1')[:NAME_SHOWN]!r}; allowed: {allowed} (allowed_hosts)"
                raise ApiError(421, "other_host", message)

    async def _work(self, scope: Scope, receive: Receive, answer: "_Answer", body: bytes) -> None:
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        peer, task, has_left = peer_of(scope), asyncio.current_task(), False

        async def again() -> Message:
            return messages.pop() if messages else await receive()

        async def leave_with_client() -> None:
            nonlocal has_left
            has_left = (await receive())["type"] == "http.disconnect" and not answer.has_ended
            if has_left and task is not None:
                task.cancel()

        @contextlib.contextmanager
        def outside() -> Iterator[None]:
            held.close()
            with self._waiting.holding(peer):
                yield
            held.enter_context(self._working.holding(peer))

        def hold(size: int) -> None:
            if size > SMALL:
                held.enter_context(self._unsent.holding(peer, size))

        with contextlib.ExitStack() as held:
            answer.hold = hold
            held.enter_context(self._working.holding(peer))
            if body and self._admission is not None:
                self._admission.check()  # a refusal costs less before the body is parsed
            WITHOUT_SLOT.set(outside)
            leaving = asyncio.create_task(leave_with_client())
            try:
                await self.app(scope, again, answer)
                if answer.refusal is not None:
                    raise answer.refusal
            except asyncio.CancelledError:
                if task is None or not has_left:
                    raise
                task.uncancel()
                raise GoneError from None
            finally:
                leaving.cancel()


class _Answer:
    """Sends an answer with rayhier's usual headers, unless `hold` refuses its size."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send, heads = send, dict(scope["headers"])
        self.has_body = heads.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in heads
        """True once the request's body has arrived. Otherwise the connection is closed after the answer."""
        self.status, self.has_ended = 0, False
        self.hold: Callable[[int], object] = int
        self.refusal: ApiError | None = None

    async def __call__(self, message: Message) -> None:
        """Send a part of an answer. Returns once the client has read almost the whole part."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message["headers"]))
            headers.setdefault("X-Content-Type-Options", "nosniff")
            headers.setdefault("Cache-Control", "no-store")
            if not self.has_body:
                headers["Connection"] = "close"
            try:
                self.hold(int(headers.get("content-length", 0)))
            except ApiError as error:
                self.refusal = error
            else:
                message, self.status = {**message, "headers": headers.raw}, message["status"]
        if self.refusal is None:
            self.has_ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await self._send(message)


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def authorization(scope: Scope) -> bytes:
    header: bytes = dict(reversed(scope["headers"])).get(b"authorization", b"")
    return header


def _check_head(scope: Scope) -> None:
    """Raise ApiError 404 for a control character in a path, or 415 for a transfer coding other than chunked."""
    path = _path(scope)
    if CONTROL.search(path) and not (path.startswith("/v1/documents/") and scope.get("method") in READS):
        raise no_path(path)
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            message = f"transfer-encoding: got {value.decode('latin-1')[:NAME_SHOWN]}; allowed: chunked"
            raise ApiError(415, "not_json", message)


def _writes(scope: Scope) -> bool:
    method = scope.get("method")
    return method not in READS and not (method == "POST" and _path(scope) in READING_POSTS)


def _counted(path: str) -> str:
    if path.startswith("/v1/documents/"):
        return DOCUMENT
    if path in PAGE:
        return "/"
    return path if path in PATHS else "other"


class Cors(CORSMiddleware):
    """Middleware that answers browsers' preflight requests. A refusal has the JSON body of all errors."""

    def preflight_response(self, request_headers: Headers) -> Response:
        answer = super().preflight_response(request_headers)
        if answer.status_code < 400:
            return answer
        origin = request_headers["origin"][:NAME_SHOWN]
        message = f"origin: got {origin!r}; allowed: the config's cors_origins, with GET or POST"
        return respond(ApiError(answer.status_code, "origin", message))


def cross_origin(origins: Sequence[str]) -> list[Middleware]:
    """Return the middleware that lets pages of some origins send requests. Empty if no origin is named."""
    if not origins:
        return []
    return [
        Middleware(
            Cors,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    ]
