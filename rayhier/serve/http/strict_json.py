"""JSON of requests, limited in values before it is parsed; a key may stand only once in an object.

A body within the limit of bytes may still hold a million values, which take seconds to parse and to validate. Counting
the values in the bytes takes milliseconds. Shapes: N bytes.
"""

import json
from collections import Counter
from typing import Any

import numpy as np

from rayhier.serve.errors import ApiError, invalid
from rayhier.serve.http.models import NAME_SHOWN

DEEPEST = 64
"""Most objects and lists inside one another."""


def parse(body: bytes, most: int) -> Any:
    """Parse a body in UTF-8 as JSON; ApiError where it is not JSON, or holds more than `most` values.

    >>> parse(b'{"vector": [1, 0.5]}', most=10)
    {'vector': [1, 0.5]}
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise ApiError(400, "not_json", f"body: byte {error.start} is not UTF-8; allowed: JSON in UTF-8") from None
    _check_size(body, most)
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise invalid(f"body: not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:  # Python's own limit, since reading such a number takes quadratic time
        raise invalid("body: got a whole number of more than 4300 digits; allowed: fewer") from None


def _check_size(body: bytes, most: int) -> None:
    begun = body.count(b"[") + body.count(b"{")
    if begun + body.count(b",") < most and begun <= DEEPEST:  # enough, though texts' characters are counted too
        return
    byte_N = _outside_texts(body)
    begins_N = (byte_N == ord("[")) | (byte_N == ord("{"))
    values = 1 + int(np.count_nonzero(begins_N)) + int(np.count_nonzero(byte_N == ord(",")))
    if values > most:
        raise ApiError(413, "too_large", f"body: got about {values} values; allowed: {most}")
    ends_N = (byte_N == ord("]")) | (byte_N == ord("}"))
    deepest = int(np.cumsum(begins_N.astype(np.int32) - ends_N).max(initial=0))
    if deepest > DEEPEST:
        raise invalid(f"body: JSON nested {deepest} deep; allowed: {DEEPEST}")


def _outside_texts(body: bytes) -> np.ndarray:
    """Return the bytes of a body that are not inside JSON texts."""
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
