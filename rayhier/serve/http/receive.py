"""Receives bodies of requests within limits of size and time, and parses them as JSON without duplicate keys.

A body within the limit of bytes may hold a million values, which take seconds to parse and validate. So rayhier first
counts the values in the bytes, which takes milliseconds. Shapes: N bytes.
"""

import asyncio
import contextlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from rayhier.serve.args import RequestLimits
from rayhier.serve.backend.queues import Shares
from rayhier.serve.errors import ApiError, invalid
from rayhier.serve.http.bodies import NAME_SHOWN
from rayhier.serve.threads import run_in

CHUNKS = 1_000
"""Chunks of a body after which other requests get their turn."""
LARGE = 32_000
"""Bytes from which on a body is parsed in a thread, off the event loop."""
CHARSET = re.compile(r'charset\s*=\s*"?([^\s;"]+)', re.IGNORECASE)
OTHER_VALUES, FIELDS = 20_000, 32
"""JSON values that a body may hold in addition to its queries and vectors, and keys that a document may have."""


class GoneError(Exception):
    """The client closed the connection before its request was complete."""


class Receiver:
    """Receives the bodies of requests, and limits the total bytes of bodies that are arriving."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self.arriving = Shares("bytes of arriving bodies", limits.max_arriving_bytes, limits.peer_share)

    async def __call__(self, scope: Scope, receive: Receive) -> bytes:
        """Receive a body. ApiError 413, 408 or 503 if the body exceeds a limit, GoneError if the client leaves."""
        length, most = dict(scope["headers"]).get(b"content-length", b"0"), self._limits.max_body_bytes
        if length.isdigit() and int(length[:20]) > most:
            raise _too_large(most)
        body, peer = bytearray(), peer_of(scope)
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                await self._receive(receive, body, peer)
        except TimeoutError:
            late = f"did not arrive within {self._limits.body_seconds:g} s, limits.body_seconds"
            raise ApiError(408, "timeout", f"body: {late}", {"Connection": "close"}) from None
        finally:
            self.arriving.give(peer, len(body))
        return bytes(body)

    async def _receive(self, receive: Receive, body: bytearray, peer: str) -> None:
        for number in itertools.count(1):
            message = await receive()
            if message["type"] != "http.request":
                raise GoneError
            chunk = message.get("body", b"")
            if len(body) + len(chunk) > self._limits.max_body_bytes:
                raise _too_large(self._limits.max_body_bytes)
            self.arriving.take(peer, len(chunk))
            body += chunk
            if not message.get("more_body", False):
                return
            if number % CHUNKS == 0:
                await asyncio.sleep(0)


def peer_of(scope: Scope) -> str:
    """Return the address that a request comes from, or "" if the address is not known."""
    host: str = (scope.get("client") or ("",))[0]
    return host


def most_values(vectors: int, dimension: int) -> tuple[int, int]:
    """Return the most JSON values, and the most keys, of a body with `vectors` vectors or documents."""
    return vectors * (dimension + 1) + OTHER_VALUES, vectors * FIELDS + OTHER_VALUES


def json_route(
    most: tuple[int, int], most_written: tuple[int, int], check: Callable[[Scope, str], None]
) -> type[APIRoute]:
    """Make the class of routes with JSON bodies. FastAPI would answer errors in such bodies in another form.

    A body has at most `most` values and keys, or `most_written` for PUT and DELETE. Large bodies are parsed in a
    thread. A route calls `check` with its own path, in case the guard saw another path.
    """
    thread = ThreadPoolExecutor(1, "parse")

    class JsonRequest(Request):
        parsed: Any

        async def json(self) -> Any:
            return self.parsed

    class JsonRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            plain = super().get_route_handler()
            if self.body_field is None:
                return plain

            async def handle(request: Request) -> Response:
                check(request.scope, self.path)
                _check_type(request.headers)
                given = JsonRequest(request.scope, request.receive)
                limits = most if request.method == "POST" else most_written
                if not (body := await given.body()):
                    raise invalid("body: got none; allowed: a JSON object")
                if len(body) < LARGE:
                    given.parsed = parse(body, *limits)
                else:
                    given.parsed = await run_in(thread, parse, body, *limits)
                return await plain(given)

            return handle

    return JsonRoute


def _check_type(headers: Headers) -> None:
    """Raise ApiError 415 unless a body is application/json in UTF-8, and not compressed."""
    content_type, encoding = headers.get("content-type", ""), ", ".join(headers.getlist("content-encoding"))
    if {each.strip().lower() for each in encoding.split(",")} - {"", "identity"}:
        message = f"content-encoding: got {encoding[:NAME_SHOWN]}; allowed: none, or identity"
        raise ApiError(415, "not_json", message)
    kind, _, rest = content_type.partition(";")
    charset = CHARSET.search(rest)
    if kind.strip().lower() != "application/json" or (charset and charset[1].lower() not in ("utf-8", "utf8")):
        message = f"content-type: got {content_type[:NAME_SHOWN] or 'none'}; allowed: application/json, in UTF-8"
        raise ApiError(415, "not_json", message)


def _too_large(most: int) -> ApiError:
    return ApiError(413, "too_large", f"body: got more than {most} bytes; allowed: {most}", {"Connection": "close"})


DEEPEST = 64
"""Deepest nesting of objects and lists."""


def parse(body: bytes, most: int, most_keys: int = OTHER_VALUES) -> Any:
    """Parse a body in UTF-8. ApiError if `body` is not JSON, or holds more than `most` values or `most_keys` keys.

    >>> parse(b'{"vector": [1, 0.5]}', most=10)
    {'vector': [1, 0.5]}
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise ApiError(400, "not_json", f"body: byte {error.start} is not UTF-8; allowed: JSON in UTF-8") from None
    _check_size(body, most, most_keys)
    if body.count(b"{") == 1:  # for one object, as for a vector, from_json is several times as fast
        with contextlib.suppress(ValueError):
            value = from_json(body)
            if isinstance(value, dict) and len(value) == body.count(b":"):  # no key is repeated
                return value
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise invalid(f"body: not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:  # Python's own limit, because longer numbers take quadratic time
        raise invalid("body: got a whole number of more than 4300 digits; allowed: fewer") from None


def _check_size(body: bytes, most: int, most_keys: int) -> None:
    begun, keys = body.count(b"[") + body.count(b"{"), body.count(b":")
    if begun + body.count(b",") < most and begun <= DEEPEST and keys <= most_keys:  # an upper bound: counts texts too
        return
    byte_N = _outside_texts(body)
    begins_N = (byte_N == ord("[")) | (byte_N == ord("{"))
    values = 1 + int(np.count_nonzero(begins_N)) + int(np.count_nonzero(byte_N == ord(",")))
    for count, limit, what in ((values, most, "values"), (np.count_nonzero(byte_N == ord(":")), most_keys, "keys")):
        if count > limit:
            raise ApiError(413, "too_large", f"body: got about {count} {what}; allowed: {limit}")
    ends_N = (byte_N == ord("]")) | (byte_N == ord("}"))
    deepest = int(np.cumsum(begins_N.astype(np.int32) - ends_N).max(initial=0))
    if deepest > DEEPEST:
        raise invalid(f"body: JSON nested {deepest} deep; allowed: {DEEPEST}")


def _outside_texts(body: bytes) -> np.ndarray:
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    byte_N = np.frombuffer(body, np.uint8)
    return byte_N[~np.logical_xor.accumulate(byte_N == ord('"'))]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        again = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise invalid(f"body: got key {again[:NAME_SHOWN]!r} more than once; allowed: each key once")
    return values
