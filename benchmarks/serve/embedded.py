"""Compare an embedded server with FastAPI and a `Snapshot` in one process: `make bench NAME=serve.embedded`.

Both serve one index, each in a separate process. One load generator on the same machine takes turns between them.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.collection import BUILT, place, run
from benchmarks.commands import Options, absolute, served
from benchmarks.pages import prose
from benchmarks.serve.goals import ASKED, PATH, K, asked, ended, overload, paired, same
from benchmarks.serve.load import TOKEN, at_a_time
from benchmarks.tables import Goal
from rayhier.search.snapshot import Snapshot
from rayhier.serve.client import Client

EMBEDDED, CONTROL = 8131, 8132
"""Ports of the two servers."""
ROUNDS, CLIENTS = 7, 16
"""Paired rounds of each comparison, and clients of a busy server."""


def main() -> int:
    """Measure, write the page and print it; the exit code is 1 where a goal was not met."""
    parser = Options("Compare an embedded server with FastAPI and a Snapshot.", "serve", "docs")
    parser.add_argument("--collection", default="scifact")
    parser.add_argument("--index", type=absolute, help="workdir of an index (default: build one)")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of overload (default 30)")
    given = parser.parse_args()
    workdir: Path = given.index or given.workdir
    if given.index is None:
        run(place(given.collection, workdir), stages=BUILT)
    cores, collection = len(os.sched_getaffinity(0)), given.collection if given.index is None else workdir.name
    about = prose("serve/embedded.md", collection=collection, cores=cores, rounds=ROUNDS)
    return ended(measure(workdir, given.seconds), given.docs, "embedded.md", about)


def measure(workdir: Path, seconds: float) -> Iterator[Goal]:
    """All goals, in their order."""
    token = workdir / "token"
    token.write_text(TOKEN)
    command = ["rayhier", "serve", str(workdir), "--port", str(EMBEDDED), "--token-file", str(token)]
    embedded = partial(served, command, f"http://127.0.0.1:{EMBEDDED}/readyz")
    command = ["benchmarks.serve.control", str(workdir), str(CONTROL)]
    control = partial(served, command, f"http://127.0.0.1:{CONTROL}/docs")
    searcher, texts = asked(workdir)
    texts = texts[:ASKED]
    vectors = searcher.model.encode(texts).numpy.tolist()
    bodies = {
        "vectors": [json.dumps({"vector": vector, "k": K}).encode() for vector in vectors],
        "texts": [json.dumps({"query": text, "k": K}).encode() for text in texts],
    }
    starts = []
    for _ in range(3):
        with embedded() as taken:
            starts.append(taken)
    yield Goal("seconds from start to the first answer of /readyz", float(np.median(starts)), 8, "most")
    with embedded(), control():
        yield equal(searcher, texts)
        for port in (EMBEDDED, CONTROL):
            at_a_time(port, PATH, bodies["texts"][:50], 4)
        for kind, most in (("vectors", 1.3), ("texts", 1.15)):
            ask = partial(at_a_time, path=PATH, bodies=bodies[kind], clients=1)
            title = f"{kind}, one client: median latency / FastAPI's"
            yield paired(title, ask, (EMBEDDED, CONTROL), ROUNDS, most, late=True)
        for kind in ("vectors", "texts"):
            ask = partial(at_a_time, path=PATH, bodies=bodies[kind] * 3, clients=CLIENTS)
            title = f"{kind}, {CLIENTS} clients: answers per second / FastAPI's"
            yield paired(title, ask, (EMBEDDED, CONTROL), ROUNDS, 1.5)
        few = at_a_time(EMBEDDED, PATH, bodies["texts"] * 2, 8)
        yield Goal("texts, 8 clients: share refused", len(few.refused()) / len(few.outcomes), 0, "most")
    with embedded():
        capacity = at_a_time(EMBEDDED, PATH, bodies["texts"] * 3, 8).rate
        yield from overload(EMBEDDED, PATH, bodies["texts"], capacity, seconds)


def equal(searcher: Snapshot, texts: Sequence[str]) -> Goal:
    """Share of queries whose answers are offline search's: the same ids but for ties, scores within 1e-5."""
    client = Client(f"http://127.0.0.1:{EMBEDDED}", TOKEN)
    right = []
    for text, offline in zip(texts, searcher.search(texts, 2 * K), strict=True):
        answer, wanted = (
            [(hit.id, hit.score) for hit in hits] for hits in (client.search(text, K).results, offline.hits)
        )
        right.append(same(answer, wanted, K, 1e-5))
    return Goal("texts: share answered as offline search does", float(np.mean(right)), 0.99)


if __name__ == "__main__":
    sys.exit(main())
