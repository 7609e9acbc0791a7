"""Vectors as texts: base64 of their numbers as float32, little-endian, a quarter of the bytes of JSON numbers.

Needs no numpy, as clients do not.
"""

import base64
import binascii
import sys
from array import array
from collections.abc import Iterable

BYTES = 4
"""Bytes of a number."""


def pack(numbers: Iterable[float]) -> str:
    """Return numbers as a text; OverflowError where one is too large for a float32, TypeError where one is no number.

    >>> pack([1, 0.5])
    'AACAPwAAAD8='
    """
    return base64.b64encode(_little(array("f", numbers)).tobytes()).decode()


def unpack(text: str) -> "array[float]":
    """Return the numbers of a text. ValueError where it is not base64 of one number or more.

    >>> unpack("AACAPwAAAD8=").tolist()
    [1.0, 0.5]
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data or len(data) % BYTES:
        raise ValueError(f"got a text of {len(text)} characters; allowed: numbers, or base64 of float32 numbers")
    numbers = array("f")
    numbers.frombytes(data)
    return _little(numbers)


def _little(numbers: "array[float]") -> "array[float]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
