"""Requests that schemathesis makes from the server's own schema, valid and not: `make fuzz-http`."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks

from benchmarks.collection import ROOT
from benchmarks.commands import Options, served
from benchmarks.tables import table

PORT, START_SECONDS = 8124, 180.0
CASES = 2_400
HEALTH_SECONDS, SLOWEST_HEALTH, SLOWEST = 0.1, 0.25, 1.0
"""Seconds between two looks at the server's health; the most that these, and any answer, may take."""
CHECKED = (
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
UNAVAILABLE = 503
WORDS = ["list", "file", "value", "error", "string", "class", "thread", "socket", "module", "return", "path", "number"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
QUESTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "/v1/search": {"query": TEXTS},
    "/v1/search:batch": {"queries": st.lists(TEXTS, min_size=1, max_size=8)},
}
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "k": st.integers(1, 60),
    "beam": st.integers(1, 12),
    "mode": st.sampled_from(["dense", "bm25", "hybrid"]),
    "rerank": st.booleans(),
    "budget": st.integers(1, 40),
    "explain": st.booleans(),
    "strict": st.booleans(),
    "include": st.lists(st.sampled_from(["title", "text", "fields"]), max_size=3),
}
"""What a search may ask for; not all of it together, and not all of every index."""
HOSTILE: dict[str, tuple[str, Any]] = {
    "a million texts": ("queries", [""] * 1_000_000),
    "a million lists": ("vector", [[]] * 1_000_000),
    "340,000 keys": ("filter", dict.fromkeys(map("k{}".format, range(340_000)), 0)),
    "a filter 50 deep": ("filter", json.loads('{"not": ' * 50 + '{"year": 1}' + "}" * 50)),
    "10,000 values": ("filter", {"year": {"in": list(range(10_000))}}),
    "a text of 3.9 MB": ("query", "x" * 3_900_000),
    "a text of 3.9 MB to encode": ("input", "ab " * 1_300_000),
    "64 texts of 60 kB": ("documents", ["!." * 30_000] * 64),
}
"""What costs a server much: a key and its value."""
ASKED: dict[str, dict[str, Any]] = {
    "/v1/search": {"query": "oak"},
    "/v1/search:batch": {"queries": ["oak"]},
    "/v1/route": {"query": "oak"},
    "/v1/embeddings": {"input": "oak"},
    "/v1/rerank": {"query": "oak", "documents": ["elm"]},
}
"""What each path takes, beside which it is sent."""


@dataclass
class Cases:
    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def main() -> int:
    parser = Options("Fuzz a served index.")
    parser.add_argument("workdir", type=Path, help="an index, such as runs/quickstart")
    parser.add_argument("--cases", type=int, default=CASES, help=f"at least so many in all (default {CASES})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--embedded", action="store_true", help="the embedded server, not the one on Ray Serve")
    given_ = parser.parse_args()
    url = f"http://127.0.0.1:{PORT}"
    work = str(given_.workdir)
    what = [work] if given_.embedded else [str(ROOT / "jobs" / "serve.yaml"), "--workdir", work]
    server = served(["rayhier", "serve", *what, "--port", str(PORT)], f"{url}/readyz", START_SECONDS)
    with server, watched(f"{url}/healthz") as looks:
        found = fuzzed(url, given_.cases, given_.seed)
        failures = list(hostile(url))
    rows = []
    for name, own in found.items():
        statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(own.statuses.items()))
        slowest = f"{1e3 * max(own.seconds):.0f}"
        rows.append([name, f"{own.statuses.total():,}", statuses, slowest, f"{len(own.failures)}"])
    print("\n".join(table(["operation", "cases", "statuses", "slowest, ms", "failures"], rows)))
    total = sum(own.statuses.total() for own in found.values())
    slowest = max(looks)
    print(f"\n{total:,} cases; slowest answer to /healthz meanwhile {1e3 * slowest:.0f} ms of {len(looks):,}")
    failures += [f"{name}: {one}" for name, own in found.items() for one in own.failures]
    slow = max(max(own.seconds) for own in found.values())
    failures += [f"an answer took {slow:.2f} s"] if slow > SLOWEST else []
    failures += [f"/healthz took {slowest:.2f} s"] if slowest > SLOWEST_HEALTH else []
    print("\n".join(failures) or "no failure")
    return 1 if failures or total < given_.cases else 0


LOOKS = """
import sys, time, urllib.request
while True:
    began = time.perf_counter()
    urllib.request.urlopen(sys.argv[1], timeout=60).close()
    print(time.perf_counter() - began, flush=True)
    time.sleep(float(sys.argv[2]))
"""


@contextmanager
def watched(url: str) -> Iterator[list[float]]:
    """Look at an address again and again until the block ends: seconds of each look, and since the last one.

    In a process of its own: a thread beside what makes the load would measure that, not the server.
    """
    command, seconds = [sys.executable, "-c", LOOKS, url, str(HEALTH_SECONDS)], list[float]()
    with tempfile.TemporaryFile("w+") as said, subprocess.Popen(command, stdout=said) as process:
        yield seconds
        since = time.time() - os.fstat(said.fileno()).st_mtime - HEALTH_SECONDS
        process.terminate()
        said.seek(0)
        seconds += [*map(float, said.read().split()), since]


def fuzzed(url: str, cases: int, number: int) -> dict[str, Cases]:
    """Send cases for every operation, half of them valid by the schema, half of them not; returns what came of them."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [one.ok() for one in schema.get_all_operations()]
    asked = [one for one in operations if one.body]
    # Operations without a body have few cases; those with one share the others.
    found = {one.label: _sent(one, 50, number) for one in operations if not one.body}
    left = cases - sum(own.statuses.total() for own in found.values())
    return found | {one.label: _sent(one, -(-left // len(asked)), number) for one in asked}


def hostile(url: str) -> Iterator[str]:
    """Send what costs much to every path that takes a body; yields what is not refused."""
    for (name, (key, value)), (path, asked) in product(HOSTILE.items(), ASKED.items()):
        answer = httpx2.post(f"{url}{path}", json=asked | {key: value}, timeout=60, trust_env=False)
        if not 400 <= answer.status_code < 500 or "error" not in answer.json():
            yield f"{name}, {path}: status {answer.status_code}"


def _sent(operation: Any, cases: int, number: int) -> Cases:
    """Send so many cases of an operation, valid ones first."""
    found = Cases()
    chosen = [getattr(checks, name, None) or checks.CHECKS.get_one(name) for name in CHECKED]
    asked = QUESTIONS.get(operation.path)
    bodies: st.SearchStrategy[Any] = st.nothing() if asked is None else st.fixed_dictionaries(asked, optional=OPTIONS)
    for mode, own in ((GenerationMode.POSITIVE, st.none() | bodies), (GenerationMode.NEGATIVE, st.none())):

        @seed(number)
        @settings(max_examples=-(-cases // 2), deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode), body=own)
        def send(case: Any, body: dict[str, Any] | None) -> None:
            if body is not None:
                case.body = body
            began = time.perf_counter()
            answer = case.call(timeout=30)
            found.seconds.append(time.perf_counter() - began)
            found.statuses[answer.status_code] += 1
            refused = answer.status_code == UNAVAILABLE and "retry-after" in {name.lower() for name in answer.headers}
            if answer.status_code >= 500 and not refused:
                found.failures.append(f"{answer.status_code}: {case.as_curl_command()[:300]}")
            try:
                case.validate_response(answer, checks=chosen)
            except (AssertionError, ExceptionGroup) as error:
                found.failures.append(" ".join(str(error).split())[:600])

        try:
            send()
        except Exception as error:  # noqa: BLE001  an operation may have no invalid cases
            if "Unsatisfiable" not in type(error).__name__:
                found.failures.append(f"{type(error).__name__}: {error}"[:300])
    return found


if __name__ == "__main__":
    sys.exit(main())
