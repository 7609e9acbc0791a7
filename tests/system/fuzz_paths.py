"""Hostile bodies to a served index: each is refused, its health stays quick, and nothing is changed.

`make fuzz-http` runs it on the index that it built. The embedded server gets a copy of that index.
"""

import http.client
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path

from benchmarks.commands import Options, absolute, served
from benchmarks.serve.load import error_code
from rayhier.serve.client import Client
from rayhier.serve.http.api import DESCRIPTIONS
from rayhier.storage import current
from tests.system.watch import watched

PORT, START_SECONDS = 8125, 180.0
HEALTH_SECONDS, SLOWEST_HEALTH = 0.02, 0.1
"""Seconds between two looks at the server's health, and the most that one may take."""
TRIES = 3
"""Tries of a body next to which health was slow, as other work of the machine makes it slow too."""
TOKENS = {"read": "fuzz-token-that-reads", "write": "fuzz-token-that-writes"}
PATHS = ("/v1/search", "/v1/search:batch", "/v1/route", "/v1/embeddings", "/v1/rerank")
QUESTIONS = ('"query": "oak"', '"queries": ["oak"]')
"""A question as one path takes it, and as the other."""


def main() -> int:
    parser = Options("Send hostile bodies to a served index.")
    parser.add_argument("workdir", type=absolute)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(shutil.copytree(given.workdir, Path(folder) / "work"))
        now = current.read(work)
        current.write(work, now.model_copy(update={"spec": now.spec.model_copy(update={"workdir": str(work)})}))
        files = list[str]()
        for name in ("read", "write"):
            (Path(folder) / name).write_text(f"{TOKENS[name]}\n")
            (Path(folder) / name).chmod(0o600)
            files += ["--token-file" if name == "read" else "--write-token-file", str(Path(folder) / name)]
        url = f"http://127.0.0.1:{PORT}"
        with served(["rayhier", "serve", str(work), "--port", str(PORT), *files], f"{url}/readyz", START_SECONDS):
            before = _state(Client(url, TOKENS["write"]))
            failures = list(_bodies(url))
            if (after := _state(Client(url, TOKENS["write"]))) != before:
                failures.append(f"changed: {before} became {after}")
    print("\n".join(failures) or "no failure")
    return 1 if failures else 0


def _state(client: Client) -> tuple[int, int, int]:
    index = client.index()
    return index.version, index.log, index.documents


def _bodies(url: str) -> Iterator[str]:
    """Send hostile bodies while the server's health is looked at; yields what went wrong."""
    for name, method, path, body in _hostile():
        token = TOKENS["write" if method != "POST" else "read"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        slowest = math.inf
        for _ in range(TRIES):
            with watched(f"{url}/healthz", HEALTH_SECONDS) as looks:
                is_refused, status = _refused(method, path, body, headers)
            slowest = min(slowest, looks.slowest)
            if slowest <= SLOWEST_HEALTH:
                break
        if not is_refused:
            yield f"{name}, {method} {path}: status {status}"
        if slowest > SLOWEST_HEALTH:
            yield f"{name}, {method} {path}: /healthz took {1e3 * slowest:.0f} ms"


def _hostile() -> Iterator[tuple[str, str, str, bytes]]:
    """Yield a name, a method, a path and a body, of each body that is made to cost a server much."""
    for (name, body), path in product(_hostile_bodies(), PATHS):
        yield name, "POST", path, body
    for name, method, body in _hostile_writes():
        yield name, method, "/v1/documents", body


def _hostile_bodies() -> Iterator[tuple[str, bytes]]:
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


def _hostile_writes() -> Iterator[tuple[str, str, bytes]]:
    """What is hostile, a method, and a body that no server takes, with the token that writes."""
    unknown = ",".join(f'"k{number}":0' for number in range(340_000))
    yield "340,000 keys of a document", "PUT", f'{{"documents": [{{"id": "a", "text": "oak",{unknown}}}]}}'.encode()
    yield "340,000 fields", "PUT", f'{{"documents": [{{"id": "a", "text": "b", "fields": {{{unknown}}}}}]}}'.encode()
    yield "390,000 documents", "PUT", f'{{"documents": [{",".join(["1"] * 390_000)}]}}'.encode()
    yield "390,000 ids", "DELETE", f'{{"ids": [{",".join(["1"] * 390_000)}]}}'.encode()


def _refused(method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[bool, int]:
    """Send a body, of which the server may not take all; whether the answer says what is wrong, and its status."""
    connection, status, content = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60), 0, b""
    try:
        with suppress(ConnectionError):
            connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        status, content = answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        status = 0
    finally:
        connection.close()
    return status in DESCRIPTIONS and 400 <= status < 500 and error_code(content) is not None, status


if __name__ == "__main__":
    sys.exit(main())
