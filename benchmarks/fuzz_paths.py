"""Forms of every path with every method and token, and hostile bodies: a token that reads changes nothing.

`make fuzz-http` runs it on the index that it built. The embedded server gets a copy of that index.
"""

import json
import math
import shutil
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.commands import Options, absolute, served
from benchmarks.serve import hostile
from benchmarks.serve.watch import watched
from rayhier.serve.client import Client
from rayhier.storage import current

PORT, START_SECONDS = 8125, 180.0
HEALTH_SECONDS, SLOWEST_HEALTH = 0.02, 0.1
"""Seconds between two looks at the server's health, and the most that one may take."""
TRIES = 3
"""Tries of a body next to which health was slow, as other work of the machine makes it slow too."""
TOKENS = {"none": None, "read": "fuzz-token-that-reads", "write": "fuzz-token-that-writes"}
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE")
READS = METHODS[:3]
FORMS = (
    *("{}", "{}?x=1", "{}#x", "http://h{}"),
    *("{}%0A", "{}%0a%0a", "{}%0D", "{}%00", "{}%09", "{}%1F", "{}%7F", "{}%C2%85", "{}%E2%80%A8", "http://h{}%0A"),
    *("/{}", "{}/", "{}//", "{}%2F", "{}/.", "{}/..", "/.{}", "/x/..{}", "{};x", "{}%20", "%0A{}", "*{}", "//h{}"),
)
"""What a path is made into: the first line has the path itself, the second has control characters."""
SAME, CONTROL = FORMS[:4], FORMS[4:14]
BODIES: Mapping[tuple[str, str], Any] = {
    ("PUT", "/v1/documents"): {"documents": [{"id": "fuzzed", "text": "oak"}]},
    ("DELETE", "/v1/documents"): {"ids": ["d1"]},
    ("POST", "/v1/versions/rollback"): {"version": 1},
    ("POST", "/v1/search"): {"query": "oak"},
}
"""Bodies that routes take; other requests have an empty object."""


def main() -> int:
    """Serve a copy of an index, send all forms and bodies, print what came of them."""
    parser = Options("Fuzz the paths of a served index.")
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
            statuses = Counter[str]()
            failures = [*_paths(url, statuses), *_bodies(url)]
    print(", ".join(f"{name}: {count:,}" for name, count in sorted(statuses.items())))
    print("\n".join(failures) or "no failure")
    return 1 if failures else 0


def _paths(url: str, statuses: Counter[str]) -> Iterator[str]:
    """Send every form of every path by every method with every token; yields what went wrong."""
    client = Client(url, TOKENS["write"])
    paths = ["/", "/healthz", "/metrics", "/nowhere", "/v1/documents/d0"]
    paths += [path for path in _schema()["paths"] if "{" not in path and path not in paths]
    before = _state(client)
    for token, path, form, method in product(TOKENS, paths, FORMS, METHODS):
        if token == "write" and form in SAME and (method, path) in BODIES:
            continue  # it changes the index, as it should
        status, _ = _sent(method, form.format(path), token, json.dumps(BODIES.get((method, path), {})).encode())
        statuses[f"{token} {status}"] += 1
        if found := _wrong(token, path, form, method, status):
            yield f"{found}: {method} {form.format(path)} with token {token}: {status}"
    if (after := _state(client)) != before:
        yield f"changed: {before} became {after}"


def _wrong(token: str, path: str, form: str, method: str, status: int) -> str:
    """Say what is wrong with a status; "" if nothing is."""
    if not 200 <= status < 500:
        return "no answer" if status == 0 else "a defect"
    is_id = path.startswith("/v1/documents/") and method in READS
    if form in CONTROL and status not in (404, 405) and not is_id:
        return "a control character was taken"
    reading = method in READS or (method == "POST" and path in READING)
    if not reading and status < 300:
        return "a write was taken"
    is_free = path in ("/", "/healthz", "/readyz")
    if token == "none" and not is_free and status < 300:
        return "no token was needed"
    return ""


READING = ("/v1/search", "/v1/search:batch", "/v1/route", "/v1/embeddings", "/v1/rerank", "/v2/rerank")


def _bodies(url: str) -> Iterator[str]:
    """Send hostile bodies while the server's health is looked at; yields what went wrong."""
    for name, method, path, body in _hostile():
        token = TOKENS["write" if method != "POST" else "read"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        slowest = math.inf
        for _ in range(TRIES):
            with watched(f"{url}/healthz", HEALTH_SECONDS) as looks:
                reply = hostile.post(PORT, path, body, headers, method)
            slowest = min(slowest, looks.slowest)
            if slowest <= SLOWEST_HEALTH:
                break
        if not reply.refused:
            yield f"{name}, {method} {path}: status {reply.status}"
        if slowest > SLOWEST_HEALTH:
            yield f"{name}, {method} {path}: /healthz took {1e3 * slowest:.0f} ms"


def _hostile() -> Iterator[tuple[str, str, str, bytes]]:
    """Yield a name, a method, a path and a body, of each body that is made to cost a server much."""
    for (name, body), path in product(hostile.bodies(), hostile.PATHS):
        yield name, "POST", path, body
    for name, method, body in hostile.writes():
        yield name, method, "/v1/documents", body


def _state(client: Client) -> tuple[int, int, int, list[int]]:
    """What changes of an index would change."""
    index = client.index()
    return index.version, index.log, index.documents, [one.version for one in client.versions().versions]


def _schema() -> Any:
    return json.loads(_sent("GET", "/openapi.json", "read", b"")[1])


def _sent(method: str, target: str, token: str, body: bytes) -> tuple[int, bytes]:
    """Send a request with its target as it is; returns status (0: no answer) and body."""
    heads = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    heads += [] if TOKENS[token] is None else [f"Authorization: Bearer {TOKENS[token]}"]
    heads += [] if not body else [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    answer = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", PORT), timeout=30) as one:
        one.sendall("\r\n".join([*heads, "", ""]).encode() + body)
        while part := one.recv(1 << 20):
            answer += part
    words = answer.split(b" ", 2)
    return (int(words[1]) if len(words) > 2 else 0), answer.partition(b"\r\n\r\n")[2]


if __name__ == "__main__":
    sys.exit(main())
