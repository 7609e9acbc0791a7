"""Requests that schemathesis makes from the server's own schema, valid and not: `make fuzz-http`.

Starts a server of a published index, draws cases for every operation, and holds each answer against the schema: its
status, type and body are documented, what the schema forbids is refused, and no status is a server's failure but a
503 with Retry-After. Meanwhile the server's health is asked for. Prints a table; exit code 1 where anything failed.
"""

import argparse
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from schemathesis import GenerationMode, checks

from benchmarks.collection import ROOT, RUNS
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


@dataclass
class Cases:
    """What came of the cases of one operation."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def main() -> int:
    """Start a server, send the cases, print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_http", description="Fuzz a served index.")
    parser.add_argument("--workdir", type=Path, default=RUNS / "quickstart")
    parser.add_argument("--cases", type=int, default=CASES, help=f"at least so many in all (default {CASES})")
    parser.add_argument("--seed", type=int, default=0)
    given_ = parser.parse_args()
    url = f"http://127.0.0.1:{PORT}"
    with _server(given_.workdir), _watched(url) as health:
        found = fuzzed(url, given_.cases, given_.seed)
    rows = [
        [
            name,
            f"{sum(own.statuses.values()):,}",
            ", ".join(f"{status}: {count:,}" for status, count in sorted(own.statuses.items())),
            f"{1e3 * max(own.seconds):.0f}",
            f"{len(own.failures)}",
        ]
        for name, own in found.items()
    ]
    print("\n".join(table(["operation", "cases", "statuses", "slowest, ms", "failures"], rows)))
    total = sum(sum(own.statuses.values()) for own in found.values())
    print(f"\n{total:,} cases; slowest answer to /healthz meanwhile {1e3 * max(health):.0f} ms of {len(health):,}")
    failures = [f"{name}: {one}" for name, own in found.items() for one in own.failures]
    slow = max(max(own.seconds) for own in found.values())
    failures += [f"an answer took {slow:.2f} s"] if slow > SLOWEST else []
    failures += [f"/healthz took {max(health):.2f} s"] if max(health) > SLOWEST_HEALTH else []
    print("\n".join(failures) or "no failure")
    return 1 if failures or total < given_.cases else 0


def fuzzed(url: str, cases: int, number: int) -> dict[str, Cases]:
    """Send cases for every operation, half of them valid by the schema, half of them not; returns what came of them."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [one.ok() for one in schema.get_all_operations()]
    asked = [one for one in operations if one.body]
    rest = [one for one in operations if not one.body]
    # Operations without a body have few cases; those with one share the others.
    found = {one.label: _sent(one, 50, number) for one in rest}
    left = cases - sum(sum(own.statuses.values()) for own in found.values())
    return found | {one.label: _sent(one, -(-left // len(asked)), number) for one in asked}


def _sent(operation: Any, cases: int, number: int) -> Cases:
    """Send so many cases of an operation, valid ones first."""
    found = Cases()
    chosen = [getattr(checks, name, None) or checks.CHECKS.get_one(name) for name in CHECKED]
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

        @seed(number)
        @settings(max_examples=-(-cases // 2), deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            began = time.perf_counter()
            answer = case.call(timeout=30)
            found.seconds.append(time.perf_counter() - began)
            found.statuses[answer.status_code] += 1
            if answer.status_code >= 500 and not _documented(answer):
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


def _documented(answer: Any) -> bool:
    return answer.status_code == UNAVAILABLE and "retry-after" in {name.lower() for name in answer.headers}


@contextmanager
def _server(workdir: Path) -> Iterator[None]:
    """A server of an index, until the block ends."""
    command = [sys.executable, "-m", "rayhier.serve", str(ROOT / "jobs" / "serve.yaml")]
    server = subprocess.Popen([*command, "--workdir", str(workdir), "--port", str(PORT)], cwd=ROOT)
    try:
        began = time.monotonic()
        while not _ready():
            if server.poll() is not None or time.monotonic() - began > START_SECONDS:
                sys.exit(f"no server of {workdir}; build its index first, for instance with make demo")
            time.sleep(0.5)
        yield
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


def _ready() -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def _watched(url: str) -> Iterator[list[float]]:
    """Ask for the server's health all the time; gives the seconds of every answer."""
    taken, stop = list[float](), threading.Event()

    def look() -> None:
        while not stop.wait(HEALTH_SECONDS):
            began = time.perf_counter()
            urllib.request.urlopen(f"{url}/healthz", timeout=30).close()
            taken.append(time.perf_counter() - began)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield taken
    finally:
        stop.set()
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
