"""Bodies within the limit of bytes that are made to cost a server much, and what it answers."""

import http.client
import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.serve.load import error_code
from rayhier.serve.http.api import DESCRIPTIONS

PATHS = ("/v1/search", "/v1/search:batch", "/v1/route", "/v1/embeddings", "/v1/rerank")
QUESTIONS = ('"query": "oak"', '"queries": ["oak"]')
"""A question as one path takes it, and as the other."""
CHUNKS = 200_000


@dataclass(frozen=True)
class Reply:
    """Status (0: no answer) and seconds of an answer, and the code of its error, if it says one."""

    status: int
    seconds: float
    code: str | None

    @property
    def documented(self) -> bool:
        """Whether it is an answer that the schema names, and no defect."""
        return self.status == 200 or (self.status in DESCRIPTIONS and self.status != 500 and self.code is not None)

    @property
    def refused(self) -> bool:
        """Whether it says what is wrong with the request."""
        return self.documented and 400 <= self.status < 500


def bodies() -> Iterator[tuple[str, bytes]]:
    """Bodies, by what is hostile about them; no path may take one."""
    for kind in ('""', "[]", "1"):
        for key in ("queries", "vectors", "query", "vector", "input", "documents"):
            yield f"a million {kind} as {key}", f'{{"{key}": [{",".join([kind] * 1_000_000)}]}}'.encode()
    yield "a key 40,000 times", f"{{{','.join(QUESTIONS[:1] * 40_000)}}}".encode()
    yield "40,000 keys", json.dumps({f"key{number}": 1 for number in range(40_000)}).encode()
    for keys in (20_000, 340_000):
        unknown = ",".join(f'"k{number}":0' for number in range(keys))
        for known in ('"input": "oak"', '"query": "oak", "documents": ["oak"]', QUESTIONS[1]):
            yield f"{keys:,} keys beside {known}", f"{{{known},{unknown}}}".encode()
    yield "lists 100,000 deep", b"[" * 100_000 + b"]" * 100_000
    yield "objects 100,000 deep", b'{"query":' * 100_000 + b"1" + b"}" * 100_000
    text = "x" * 3_900_000
    yield "a text of 3.9 MB", f'{{"query": "{text}"}}'.encode()
    yield "a text of 3.9 MB in a list", f'{{"queries": ["{text}"]}}'.encode()
    yield "a text of 3.9 MB to encode", f'{{"input": "{"ab " * 1_300_000}"}}'.encode()
    yield "64 texts of 60 kB to encode", json.dumps({"input": ["!." * 30_000] * 64}).encode()
    yield "64 texts of 60 kB to read", json.dumps({"query": "oak", "documents": ["!." * 30_000] * 64}).encode()
    filters = {
        "a filter nested 100 deep": '{"not": ' * 100 + '{"year": 1}' + "}" * 100,
        "a filter nested 50 deep": '{"not": ' * 50 + '{"year": 1}' + "}" * 50,
        "a filter of 10,000 values": json.dumps({"year": {"in": list(range(10_000))}}),
    }
    for name, wanted in filters.items():
        for question in QUESTIONS:
            yield f"{name}, {question}", f'{{{question}, "filter": {wanted}}}'.encode()


def writes() -> Iterator[tuple[str, str, bytes]]:
    """What is hostile, a method, and a body that no server takes, with the token that writes."""
    unknown = ",".join(f'"k{number}":0' for number in range(340_000))
    yield "340,000 keys of a document", "PUT", f'{{"documents": [{{"id": "a", "text": "oak",{unknown}}}]}}'.encode()
    yield "340,000 fields", "PUT", f'{{"documents": [{{"id": "a", "text": "b", "fields": {{{unknown}}}}}]}}'.encode()
    yield "390,000 documents", "PUT", f'{{"documents": [{",".join(["1"] * 390_000)}]}}'.encode()
    yield "390,000 ids", "DELETE", f'{{"ids": [{",".join(["1"] * 390_000)}]}}'.encode()


def chunks() -> Iterator[bytes]:
    """A question in so many chunks of a byte."""
    return (b"%c" % byte for byte in f"{{{QUESTIONS[0]}}}".ljust(CHUNKS).encode())


def post(
    port: int, path: str, body: bytes | Iterable[bytes], headers: Mapping[str, str], method: str = "POST"
) -> Reply:
    """Send a body, whole or in chunks, to a server on this machine, which may answer before it has all of it."""
    connection, began = http.client.HTTPConnection("127.0.0.1", port, timeout=60), time.perf_counter()
    status, content = 0, b""
    try:
        with suppress(ConnectionError):
            connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        status, content = answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        status = 0
    finally:
        connection.close()
    return Reply(status, time.perf_counter() - began, error_code(content))


def endless_head(port: int, size: int) -> int:
    """Status of the answer to a head of `size` bytes that never ends; 0 where the connection ended without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\nX: ")
        with suppress(OSError):
            for _ in range(0, size, 100_000):
                one.sendall(b"x" * 100_000)
        try:
            return int(one.makefile("rb").readline().split()[1])
        except (OSError, IndexError):
            return 0
