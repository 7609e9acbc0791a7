"""HTTP over a socket, by uvicorn and httptools, with limits that keep clients from filling the server's memory.

A request's head is its first line and headers. A head of more than `HEAD_BYTES` bytes is answered 431, and a head that
takes more than `HEAD_SECONDS` is answered 408. If bytes that are not HTTP follow a request, the connection ends after
the answer. A client that closes its own side of the connection after its request still gets its answer. If a client is
refused while it still sends, its further bytes are read and dropped for `LINGER_SECONDS`. To close a connection with
unread data would reset it, and the client could not read the refusal.

uvicorn's `limit_concurrency` limits the number of connections. A new connection beyond the limit replaces an idle one.
An application's `send` returns once the client has read almost everything that was sent.
"""

import asyncio
import json
import logging
import time
from functools import lru_cache
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from rayhier.serve.http.guard import KNOWN

HEAD_BYTES = 64_000
HEAD_SECONDS = 10.0
LINGER_SECONDS = 2.0


@lru_cache(1_000)
def _tell(server: ServerState, peer: str, minute: int) -> None:  # noqa: ARG001  cached: one line per peer and minute
    logging.getLogger("uvicorn.error").warning("%s sends data that is not HTTP", peer)


class _Transport:
    """A connection's transport, whose `close` lets the protocol linger while the client still sends."""

    def __init__(self, transport: asyncio.Transport, protocol: "LimitedProtocol") -> None:
        self._transport, self._protocol = transport, protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes, unless this side of the connection is closed after a refusal."""
        if not self._protocol.is_lingering:
            self._transport.write(data)

    def close(self) -> None:
        if self._protocol.is_receiving:
            self._protocol.linger(self._transport)
        else:
            self._transport.close()


class LimitedProtocol(HttpToolsProtocol):
    """The protocol of a connection on which heads of requests are limited in bytes and seconds."""

    _head_bytes = 0
    _quiet_bytes = 0
    """Bytes since the last head or part of a body: chunk extensions, trailers, blank lines between requests."""
    _in_head = True
    _is_refused = False
    _deadline: asyncio.TimerHandle | None = None
    _lingers: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    @property
    def is_idle(self) -> bool:
        return (self.cycle is None or self.cycle.response_complete) and not self.flow.write_paused

    @property
    def rank(self) -> tuple[bool, float]:
        """Order in which idle connections end: those whose last request had no token first, then the longest idle."""
        return self.cycle is not None and KNOWN in self.cycle.scope.get("state", {}), self._idle_since

    @property
    def is_receiving(self) -> bool:
        """True if the client may still be sending a request."""
        return self._is_refused or (self.cycle is not None and self.cycle.more_body)

    @property
    def is_lingering(self) -> bool:
        """True once this side of the connection is closed and the client may still send."""
        return self._lingers is not None

    def linger(self, transport: asyncio.Transport) -> None:
        """Close this side of the connection. Drop bytes that arrive until the client closes, or for some seconds."""
        if self._lingers is not None or transport.is_closing():
            return
        self._is_refused = True
        self._lingers = self.loop.call_later(LINGER_SECONDS, transport.abort)
        if transport.can_write_eof():
            transport.write_eof()
        self.flow.resume_reading()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _Transport(transport, self)))
        self._idle_since = time.perf_counter()
        self._await_head()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_room()

    def _make_room(self) -> None:
        """End the idle connection that ranks first, or this connection if all others are at work."""
        others = cast("set[LimitedProtocol]", self.connections) - {self}
        idle = min((each for each in others if each.is_idle), key=lambda each: each.rank, default=None)
        (idle or self).transport.abort()
        self.connections.discard(idle or self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        if self._lingers is not None:
            self._lingers.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return True to keep the connection open, if a complete request still waits for its answer."""
        cycle = self.cycle
        if self._is_refused or cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._in_head:
            self._head_bytes += len(data)
        self._quiet_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self.cycle is not None:
                self.cycle.keep_alive = False  # rayhier upgrades nothing, and answers as usual
        except httptools.HttpParserError:
            _tell(self.server_state, (self.client or ("",))[0], int(self.loop.time() // 60))
            self._refuse(400, "not_http", "Invalid HTTP request received.")
        if (self._in_head and self._head_bytes > HEAD_BYTES) or (
            not self._is_refused and self._quiet_bytes > HEAD_BYTES + len(data)
        ):
            self._refuse_large()
        elif self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            # Bytes outside an unanswered request keep no connection open for long.
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._refuse_late)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header to the request. Headers after a body (trailers) are dropped."""
        if self._in_head:
            super().on_header(name, value)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:
            self._await_head()
            self._head_bytes = 1  # the head has begun, and its bytes so far are not counted

    def on_headers_complete(self) -> None:
        self._in_head, self._quiet_bytes = False, 0
        self._end_deadline()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEAD_BYTES:
            self._refuse_large()
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._quiet_bytes = 0
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._quiet_bytes = 0
        if not self._is_refused:
            super().on_message_complete()

    def _should_upgrade(self) -> bool:
        return False

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._idle_since = time.perf_counter()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        async def run(scope: Any, receive: Any, send: Any) -> None:
            async def send_all(message: Any) -> None:
                await send(message)
                try:
                    await self.flow.drain()
                except asyncio.CancelledError:  # the answer is late
                    self.transport.abort()
                    raise

            await app(scope, receive, send_all)

        super()._start_asgi_task(cycle, run)

    def _await_head(self) -> None:
        self._end_deadline()
        self._in_head, self._head_bytes = True, 0
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._refuse_late)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse_large(self) -> None:
        self._refuse(431, "head_too_large", f"head: got more than {HEAD_BYTES} bytes; allowed: {HEAD_BYTES}")

    def _refuse_late(self) -> None:
        if self._head_bytes:
            self._refuse(408, "timeout", f"head: did not arrive within {HEAD_SECONDS:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Close the connection after a JSON error, or after the answer to a complete request that still waits."""
        self._is_refused = True
        self._end_deadline()
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self.cycle.keep_alive = False
            return
        if self.cycle is not None:
            self.cycle.disconnected = True  # no more of the request's body will come
            self.cycle.message_event.set()
        content = json.dumps({"error": {"code": code, "message": message}}).encode()
        heads = [b"content-type: application/json", b"content-length: %d" % len(content), b"connection: close"]
        self.transport.write(STATUS_LINE[status] + b"\r\n".join([*heads, b"", content]))
        self.transport.close()
