"""Checks every request before it is parsed: its token, its body, the number of requests at work, its time."""

import asyncio
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rayhier.serve.args import RequestLimits
from rayhier.serve.backend.admission import Admission
from rayhier.serve.errors import ApiError, overloaded
from rayhier.serve.http.body import GoneError, Receiver
from rayhier.serve.http.error_handlers import no_path, respond
from rayhier.serve.http.page import PAGE
from rayhier.serve.http.tokens import Tokens
from rayhier.serve.metrics import Metrics

OPEN = ("/healthz", "/readyz")
"""Paths that need no token and are answered even under load."""
DOCUMENT = "/v1/documents/{id}"
"""Path under which metrics count requests for one document."""
ROLLBACK = "/v1/versions/rollback"
READING_POSTS = frozenset(
    ("/v1/search", "/v1/search:batch", "/v1/route", "/v1/embeddings", "/v1/rerank", "/v2/rerank"),
)
"""Paths to which a POST needs no token for writing."""
PATHS = READING_POSTS | {"/v1/index", "/v1/documents", "/v1/nodes", "/v1/versions", ROLLBACK, "/v1/models"}
"""Other paths that metrics count one by one; requests to all further paths are counted together."""
READS = ("GET", "HEAD", "OPTIONS")
"""HTTP methods that need no token for writing. Every other method does, but for POST to `READING_POSTS`."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that no path has. Only ids of documents may contain them."""


class Guard:
    """ASGI middleware that checks requests and limits their number and time.

    A request takes one of the slots for work once its body has arrived, so that a slow sender blocks no other request.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Tokens,
        limits: RequestLimits,
        admission: Admission | None = None,
        metrics: Metrics | None = None,
        write_seconds: float | None = None,
    ) -> None:
        """Check requests before the application `app` gets them.

        A request with a body is refused before the body is parsed where `admission` refuses further requests. Metrics
        record every request, with status 0 where the client left. A request to write may take `write_seconds`, by
        default as long as others.
        """
        self.app, self.limits, self._admission, self._metrics = app, limits, admission, metrics
        self._write_seconds = limits.seconds if write_seconds is None else write_seconds
        self._tokens = tokens
        self._receive = Receiver(limits)
        self._busy = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 401, 403, 408, 413, 503 or 504."""
        if scope["type"] != "http" or _path(scope) in OPEN:
            await self.app(scope, receive, send)
            return
        status, began = 0, time.perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._in_time(scope, receive, noted)
        except GoneError:
            return
        except ApiError as error:
            if not status:  # otherwise an answer has begun, and is cut off
                await respond(error)(scope, receive, noted)
        except Exception:
            status = status or 500  # outer middleware answers the error with 500
            raise
        finally:
            if self._metrics is not None:
                self._metrics.answered(_counted(_path(scope)), status, time.perf_counter() - began)

    async def _in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        writes = _writes(scope)
        most, name = (self._write_seconds, "writes.seconds") if writes else (self.limits.seconds, "limits.seconds")
        try:
            async with asyncio.timeout(most) as deadline:
                _check_path(scope)
                self._check_token(scope)
                await self._work(scope, receive, send, await self._receive(scope, receive))
        except TimeoutError:
            if not deadline.expired():
                raise
            raise ApiError(504, "timeout", f"no answer within {most:g} s, {name}") from None

    async def _work(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        if self._busy >= self.limits.max_requests:
            raise overloaded(f"{self._busy} requests are being answered; allowed: {self.limits.max_requests}")
        if body and self._admission is not None:
            self._admission.check()  # a refusal costs less before the body is parsed
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return messages.pop() if messages else await receive()

        self._busy += 1
        try:
            await self.app(scope, again, send)
        finally:
            self._busy -= 1

    def _check_token(self, scope: Scope) -> None:
        if _path(scope) in PAGE:
            return
        self._tokens.check(authorization(scope), writes=_writes(scope))


def _path(scope: Scope) -> str:
    """Return the path of a request below the application's own."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def authorization(scope: Scope) -> bytes:
    """Return the first header `Authorization` of a request."""
    header: bytes = dict(reversed(scope["headers"])).get(b"authorization", b"")
    return header


def _check_path(scope: Scope) -> None:
    """Raise ApiError 404 if a path has a control character, which the router may ignore at the end of a path."""
    path = _path(scope)
    if CONTROL.search(path) and not (path.startswith("/v1/documents/") and scope.get("method") in READS):
        raise no_path(path)


def _writes(scope: Scope) -> bool:
    """Return True if a request needs the token for writing."""
    method = scope.get("method")
    return method not in READS and not (method == "POST" and _path(scope) in READING_POSTS)


def _counted(path: str) -> str:
    """Return the name under which metrics count requests to a path."""
    if path.startswith("/v1/documents/"):
        return DOCUMENT
    if path in PAGE:
        return "/"
    return path if path in PATHS else "other"
