"""An embedded server beside FastAPI with a `Searcher` in one process: `make bench-embedded`.

Both serve one index, each in a process of its own, and are asked in turn by one load generator on the same machine.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.collection import BUILT, ROOT, place, run
from benchmarks.commands import Options
from benchmarks.goals import Goal, lines
from benchmarks.pages import write
from benchmarks.serve import hostile
from benchmarks.serve.load import TOKEN, Load, a_second, at_a_time
from benchmarks.serve.watch import watched
from rayhier.progress import say
from rayhier.search.searcher import Searcher
from rayhier.serve.backend.version import Version
from rayhier.serve.client import Client
from rayhier.storage import columns, current

EMBEDDED, CONTROL = 8131, 8132
"""Ports of the two servers."""
PATH = "/v1/search"
ROUNDS, ASKED, CLIENTS = 7, 200, 16
"""Paired rounds of each comparison, requests of a round, and clients of a busy server."""
START_SECONDS = 60.0
Value = Callable[[Load], float]
"""What is compared of a load."""
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}


def main() -> int:
    """Measure, write the page and print it; the exit code is 1 where a goal was not met."""
    parser = Options("An embedded server beside FastAPI with a Searcher.", "serve")
    parser.add_argument("--collection", default="scifact")
    parser.add_argument("--seconds", type=float, default=30.0, help="of overload (default 30)")
    parser.docs()
    given = parser.parse_args()
    run(place(given.collection, given.workdir), stages=BUILT)
    goals = []
    for goal in measure(given.workdir, given.seconds):
        say("  ".join(goal.row()))
        goals.append(goal)
    about = (
        f"# An embedded server\n\n`python -m benchmarks.serve.embedded`: {given.collection}, "
        f"{len(os.sched_getaffinity(0))} cores, load from the same machine, k = 10, queries encoded in float32. The "
        "control is FastAPI before a `Searcher` in one process, one query a call, without limits, tokens or errors of "
        f"its own; ratios are medians of {ROUNDS} paired rounds. The gain under 16 clients is mostly batching; a "
        "control that batches was not measured. Eight queries may always wait, which excludes three times an idle "
        "server's latency in an overload ([LOG.md](LOG.md))."
    )
    print(write(given.docs, "embedded.md", [about, "", *lines(goals, "seen", ".3g")]))
    return 0 if all(goal.met for goal in goals if goal.limit is not None) else 1


def measure(workdir: Path, seconds: float) -> Iterator[Goal]:
    """All goals, in their order."""
    token = workdir / "token"
    token.write_text(TOKEN)
    embedded = ["rayhier", "serve", str(workdir), "--port", str(EMBEDDED), "--token-file", str(token)]
    control = ["benchmarks.serve.control", str(workdir), str(CONTROL)]
    searcher = Searcher.open(workdir)
    searcher.model = Version.newest(str(workdir))[0].model("float32").load()  # in which servers encode queries
    corpus = current.artifact(workdir, current.read(workdir), "corpus")
    texts: list[str] = columns.read([corpus.path("queries.parquet")], ["text"])["text"].to_pylist()[:ASKED]
    vectors = searcher.model.encode(texts).numpy.tolist()
    bodies = {
        "vectors": [json.dumps({"vector": vector, "k": 10}).encode() for vector in vectors],
        "texts": [json.dumps({"query": text, "k": 10}).encode() for text in texts],
    }
    starts = []
    for _ in range(3):
        with _process(embedded, EMBEDDED) as taken:
            starts.append(taken)
    yield Goal("seconds from start to the first answer of /readyz", float(np.median(starts)), 8, "most")
    with _process(embedded, EMBEDDED), _process(control, CONTROL):
        yield _equal(searcher, texts)
        for port in (EMBEDDED, CONTROL):
            at_a_time(port, PATH, bodies["texts"][:50], 4)
        for kind, most in (("vectors", 1.3), ("texts", 1.15)):
            ratio, ours, theirs = _paired(bodies[kind], 1, lambda load: load.ms(0.5))
            seen = f"{ours:.1f} ms, {theirs:.1f} ms"
            yield Goal(f"{kind}, one client: median latency over the control's", ratio, most, "most", seen)
        for kind in ("vectors", "texts"):
            ratio, ours, theirs = _paired(bodies[kind] * 3, CLIENTS, lambda load: load.rate)
            seen = f"{ours:.0f} a second, {theirs:.0f} a second"
            yield Goal(f"{kind}, {CLIENTS} clients: answers a second over the control's", ratio, 1.5, "least", seen)
        few = at_a_time(EMBEDDED, PATH, bodies["texts"] * 2, 8)
        yield Goal("texts, 8 clients: share refused", len(few.refused()) / len(few.outcomes), 0, "most")
    with _process(embedded, EMBEDDED):
        yield from _overloaded(bodies["texts"], seconds)
        yield from _besieged()


def _paired(bodies: Sequence[bytes], clients: int, value: Value) -> tuple[float, float, float]:
    """Medians over paired rounds, the order changing: of our value over the control's, of ours, of the control's."""
    rounds = []
    for number in range(ROUNDS):
        order = (EMBEDDED, CONTROL) if number % 2 else (CONTROL, EMBEDDED)
        both = {port: value(at_a_time(port, PATH, bodies, clients)) for port in order}
        rounds.append((both[EMBEDDED] / both[CONTROL], both[EMBEDDED], both[CONTROL]))
    ratio, ours, theirs = np.median(rounds, axis=0).tolist()
    return ratio, ours, theirs


def _equal(searcher: Searcher, texts: Sequence[str]) -> Goal:
    """Share of queries whose answers are offline search's: the same ids, scores within 1e-5."""
    client, right = Client(f"http://127.0.0.1:{EMBEDDED}", TOKEN), 0
    for text, offline in zip(texts, searcher.search(texts, 10), strict=True):
        served = {hit.id: hit.score for hit in client.search(text, 10).results}
        expected = {hit.id: hit.score for hit in offline.hits}
        right += served.keys() == expected.keys() and all(abs(served[n] - expected[n]) < 1e-5 for n in served)
    return Goal("texts: share answered as offline search does", right / len(texts), 0.99)


def _overloaded(bodies: Sequence[bytes], seconds: float) -> Iterator[Goal]:
    """Three times as many queries a second as the server answers."""
    idle = at_a_time(EMBEDDED, PATH, bodies, 1)
    capacity = at_a_time(EMBEDDED, PATH, list(bodies) * 3, 8).rate
    load = a_second(EMBEDDED, PATH, bodies, 3 * capacity, seconds)
    refused = load.refused()
    documented = [outcome.unavailable("overloaded") for outcome in refused]
    statuses = ", ".join(f"{status}: {count:,}" for status, count in Counter(o.status for o in load.outcomes).items())
    title = f"overload, {3 * capacity:.0f} a second: share of refusals that are the documented 503"
    yield Goal(title, float(np.mean(documented)) if refused else None, 1.0, "least", statuses)
    late, plain = load.ms(0.99), idle.ms(0.99)
    title = "overload: 99% of answers, over those of an idle server"
    yield Goal(title, late / plain, 3.0, "most", f"{late:.0f} ms, {plain:.0f} ms")
    seen = f"{load.rate:.0f} a second, {capacity:.0f} a second"
    yield Goal("overload: answers a second over capacity", load.rate / capacity, 0.5, "least", seen)


def _besieged() -> Iterator[Goal]:
    """Hostile bodies, one after the other, and heads without end, while the server's health is watched."""
    replies = {}
    with watched(f"http://127.0.0.1:{EMBEDDED}/healthz", 0.05) as looks:
        for name, body in hostile.bodies():
            for path in hostile.PATHS:
                replies[f"{name}, to {path}"] = hostile.post(EMBEDDED, path, body, HEADERS)
        flood = hostile.endless_head(EMBEDDED, 250_000_000)
    wrong = [f"{name}: {reply.status}" for name, reply in replies.items() if not reply.refused]
    title = f"{len(replies)} hostile bodies: share answered with a documented 4xx"
    yield Goal(title, 1 - len(wrong) / len(replies), 1.0, "least", "; ".join(wrong[:3]))
    name, slowest = max(replies.items(), key=lambda each: each[1].seconds)
    yield Goal("the same: slowest answer, seconds", slowest.seconds, 1.0, "most", name)
    yield Goal("a head of 250 MB: status", flood, 431, "most", "sent to its end or until the server ends it")
    yield Goal("meanwhile: slowest /healthz, milliseconds", 1e3 * looks.slowest, 250.0, "most")


@contextmanager
def _process(arguments: Sequence[str], port: int) -> Iterator[float]:
    """A server in a process of its own, ready, while the block runs; yields the seconds until it was."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", *arguments], cwd=ROOT, stdout=subprocess.DEVNULL) as server:
        try:
            while not _answers(port):
                if server.poll() is not None or time.perf_counter() - began > START_SECONDS:
                    raise RuntimeError(f"{arguments[0]}: no answer within {START_SECONDS:g} s")
                time.sleep(0.02)
            yield time.perf_counter() - began
        finally:
            server.send_signal(signal.SIGINT)


def _answers(port: int) -> bool:
    path = "/readyz" if port == EMBEDDED else "/docs"
    try:
        return hostile.get(port, path) == 200
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
