"""JSON files that contain the SHA-256 of their own bytes, so that a damaged file is noticed when it is read."""

import hashlib
import json
import re
from typing import Any

from rayhier.spec import InputError
from rayhier.storage.paths import Location

NAME = "sha256"
ZEROS = b"0" * 64
HEAD = re.compile(rb'\{\n "sha256": "([0-9a-f]{64})",\n')


def seal(value: dict[str, Any]) -> bytes:
    """Convert a value to JSON whose first entry is the SHA-256 of all bytes, computed with zeros in its place."""
    lines = (f" {json.dumps(key)}: {json.dumps(entry, allow_nan=False)}" for key, entry in value.items())
    plain = b'{\n "sha256": "' + ZEROS + b'",\n' + ",\n".join(lines).encode() + b"\n}\n"
    return plain.replace(ZEROS, hashlib.sha256(plain).hexdigest().encode(), 1)


def unseal(path: Location) -> dict[str, Any]:
    """Read a JSON file made by `seal`; InputError where its bytes were changed, FileNotFoundError if it is missing."""
    data = path.read_bytes()
    head = HEAD.match(data)
    if head is None:
        raise InputError(f"{path}: not a file that rayhier wrote, or damaged: it does not begin with its SHA-256")
    if hashlib.sha256(data.replace(head[1], ZEROS, 1)).hexdigest().encode() != head[1]:
        raise InputError(f"{path}: damaged or edited: its bytes do not match the SHA-256 that it begins with")
    value: dict[str, Any] = json.loads(data)
    del value[NAME]
    return value
