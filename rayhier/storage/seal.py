"""JSON files that carry the SHA-256 of their own bytes: any change of them is told by name."""

import hashlib
import json
import re
from typing import Any

from rayhier.spec import InputError
from rayhier.storage.paths import Location

NAME = "sha256"
NONE = b"0" * 64
HEAD = re.compile(rb'\{\n "sha256": "([0-9a-f]{64})",\n')


def seal(value: dict[str, Any]) -> bytes:
    """JSON, an entry a line, whose first is the digest of all its bytes, the digest's own read as zeros."""
    lines = (f" {json.dumps(key)}: {json.dumps(one, allow_nan=False)}" for key, one in value.items())
    plain = b'{\n "sha256": "' + NONE + b'",\n' + ",\n".join(lines).encode() + b"\n}\n"
    return plain.replace(NONE, hashlib.sha256(plain).hexdigest().encode(), 1)


def unseal(path: Location) -> dict[str, Any]:
    """What was sealed; InputError where the file is not as it was written, FileNotFoundError where there is none."""
    data = path.read_bytes()
    head = HEAD.match(data)
    if head is None:
        raise InputError(f"{path}: not a file that was written here: it does not begin with its own SHA-256")
    if hashlib.sha256(data.replace(head[1], NONE, 1)).hexdigest().encode() != head[1]:
        raise InputError(f"{path}: its bytes are not those its own SHA-256 was taken of")
    value: dict[str, Any] = json.loads(data)
    del value[NAME]
    return value
