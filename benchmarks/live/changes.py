"""Measure single changes next to searches: `python -m benchmarks.live.changes INDEX`.

An embedded server in a separate process answers searches of two clients, alone and next to sixteen that search too.
Then the sixteen add documents one by one and delete them again. After each change, the client's next search looks for
it. A request is due at a fixed time. If an earlier request is not answered yet, it is sent late. Its time counts from
when it was due. Changes are folded meanwhile. Documents are copies of the index's documents, each with a unique word.
"""

import asyncio
import json
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.commands import Options, absolute, clock, count
from benchmarks.live.gauge import about
from benchmarks.live.ingest import copied, serving
from benchmarks.tables import ranged, table
from rayhier.arrays import Floats
from rayhier.dataset.queries import load_queries
from rayhier.search.index import open_leaf_map
from rayhier.serve.client import AsyncClient
from rayhier.spec import JobSpec
from rayhier.storage import current, parquet
from rayhier.storage.change_log import LOG
from rayhier.storage.paths import locate

SEARCHERS, WRITERS = 2, 16
"""Clients that search all the time, and clients that write."""
QUIET_SECONDS = 20.0
"""Seconds of searches before the first change."""
K = 10
PACE = 1.0
"""Seconds from one change of a client to its next; searches of a client that only searches come five times as often."""
FOLDED = 200
"""Documents of changes that are folded together."""
FIGURES = "changes.{}.json"


@dataclass
class Times:
    """Milliseconds of requests of each kind, and changes that the next search did not show."""

    ms: dict[str, list[float]] = field(default_factory=dict)
    at: dict[str, list[float]] = field(default_factory=dict)
    """Seconds, since the measurement began, at which each of these requests was answered."""
    unseen: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Seconds of all changes."""
    changes: int = 0
    left: dict[str, int] = field(default_factory=dict)
    """Numbers of files that are left on storage, by kind."""
    began: float = field(default_factory=time.perf_counter)
    about: str = ""
    """When, where and how this was measured."""

    def __call__(self, kind: str, began: float) -> None:
        """Note that a request of a kind, begun at a time, has been answered."""
        now = time.perf_counter()
        self.ms.setdefault(kind, []).append(round(1e3 * (now - began), 2))
        self.at.setdefault(kind, []).append(round(now - self.began, 2))


async def dues(pace: float) -> AsyncIterator[float]:
    """Yield the times at which requests are due, each once it is over; with pace 0 at once.

    One is due at a random moment of each `pace`: clients whose moments fell together would else meet in every second.
    """
    begin = time.perf_counter()
    while True:
        due = begin + pace * secrets.randbelow(1000) / 1000
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        yield due if pace else time.perf_counter()
        begin += pace


async def searches(
    client: AsyncClient, queries: Sequence[str], kind: str, times: Times, ends: asyncio.Event, pace: float
) -> None:
    """Search one query after another until an event."""
    place = secrets.randbelow(len(queries))
    async for due in dues(pace):
        if ends.is_set():
            return
        await client.search(queries[place % len(queries)], k=K)
        times(kind, due)
        place += 1


async def writes(
    client: AsyncClient, texts: Sequence[str], number: int, times: Times, pace: float, *, changes: bool
) -> None:
    """Add a client's documents one by one, then delete them; the next search tells whether a change is seen.

    Without `changes` only these searches are made.
    """
    named = {f"live-{number}-{place}": f"{text} mark{number}x{place}" for place, text in enumerate(texts)}
    clock = dues(pace)
    for kind in ("add", "delete"):
        for name, text in named.items():
            log, began = 0, await anext(clock)
            if changes:
                told = await (client.put([{"id": name, "text": text}]) if kind == "add" else client.delete([name]))
                times(kind, began)
                log = told.log
            answer = await client.search(text, k=K)
            is_there = name in {result.id for result in answer.results}
            if changes and (is_there != (kind == "add") or answer.log < log):
                times.unseen.append(f"{kind} {name}")


async def measure(url: str, token: str, queries: Sequence[str], texts: Sequence[str], pace: float) -> Times:
    """Measure searches alone, then next to changes."""
    times = Times()

    async def meanwhile(kind: str, work: Callable[[], Awaitable[object]]) -> None:
        ends = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(SEARCHERS):
                group.create_task(searches(client, queries, kind, times, ends, pace / 5))
            await work()
            ends.set()

    async with AsyncClient(url, token, timeout=120, connections=SEARCHERS + WRITERS) as client:
        for query in queries[:50]:
            await client.search(query, k=K)
        await meanwhile("search, alone", lambda: asyncio.sleep(QUIET_SECONDS))
        parts = np.array_split(np.array(texts, dtype=object), WRITERS)

        async def all_writers(*, changes: bool) -> None:
            async with asyncio.TaskGroup() as group:
                for number, part in enumerate(parts):
                    group.create_task(writes(client, part.tolist(), number, times, pace, changes=changes))

        await meanwhile("search, no changes", lambda: all_writers(changes=False))
        began = time.perf_counter()
        await meanwhile("search, next to changes", lambda: all_writers(changes=True))
        times.seconds = time.perf_counter() - began
        return times


def left(folder: Path) -> dict[str, int]:
    """Count the files of each kind below the folder of a leaf map."""
    patterns = {
        "versions": "manifests/*.json",
        "leaf files": "data/*.parquet",
        "objects of the change log": f"{LOG}/*.c*",
    }
    return {kind: len(list(folder.glob(pattern))) for kind, pattern in patterns.items()}


def collection(spec: JobSpec) -> str:
    """Name of the collection that a spec reads: that of its folder, or the spec's."""
    return Path(str(getattr(spec.corpus, "path", spec.name))).name


def read(workdir: Path) -> list[Times]:
    """Read the times below a workdir, a run after the other; none where there are none."""
    return [Times(**json.loads(path.read_text())) for path in sorted(workdir.glob(FIGURES.format("[0-9]*")))]


def lines(runs: Sequence[Times]) -> list[str]:
    """Tables of the times, and what is left on storage: of several runs the median, the least and the most."""
    rows, by_run = [], [_by_kind(times) for times in runs]
    for kind in sorted(by_run[0]):
        numbers = sum(len(ms[kind]) for ms in by_run)
        shares = [ranged([float(np.percentile(ms[kind], share)) for ms in by_run]) for share in (50, 95, 99)]
        rows.append([kind, f"{numbers:,}", *shares])
    slower = [_slower(ms) for ms in by_run]
    left = {kind: ranged([times.left[kind] for times in runs]) for kind in runs[0].left}
    unseen = sum(len(times.unseen) for times in runs)
    said = [
        f"Of {sum(2 * times.changes for times in runs):,} changes, the next search missed {unseen}.",
        f"99% of searches next to changes took {ranged(slower, 1)} times as long as without changes.",
        f"On storage at the end: {', '.join(f'{number} {kind}' for kind, number in left.items())}.",
        *(f"{about}." for about in dict.fromkeys(times.about for times in runs)),
    ]
    return [*table(["request", "number", "median ms", "95%", "99%"], rows), "", " ".join(said)]


def _by_kind(times: Times) -> dict[str, Floats]:
    """Return milliseconds of requests by kind, also of searches next to adds and next to deletes."""
    ms = {kind: np.array(values) for kind, values in times.ms.items()}
    changing, at = ms["search, next to changes"], np.array(times.at["search, next to changes"])
    is_adding = at <= max(times.at["add"])
    return ms | {"search, next to adds": changing[is_adding], "search, next to deletes": changing[~is_adding]}


def _slower(ms: Mapping[str, Floats]) -> float:
    """Return how many times as long 99% of searches take next to changes."""
    busy, quiet = (np.percentile(ms[f"search, {some} changes"], 99) for some in ("next to", "no"))
    return float(busy / quiet)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a copy of an index, change it while it is searched, and print the tables."""
    parser = Options("Measure single changes next to searches.", "live")
    parser.add_argument("index", type=absolute, help="workdir of an index, which is copied")
    parser.add_argument("--pace", type=float, default=PACE, help="seconds between a client's changes (0: no pause)")
    parser.add_argument("--changes", type=count, default=1_000, help="documents that are added, then deleted")
    parser.add_argument("--run", type=int, default=1, help="number of the run")
    options = parser.parse_args(arguments)
    report, work, cache = clock(), options.workdir / "changes", options.workdir / "changes-cache"
    folder = copied(options.index, work)
    os.environ["RAYHIER_CACHE"] = str(cache)
    now = current.read(locate(str(work)))
    place = locate(str(work))
    corpus, vectors = (current.artifact(place, now, kind) for kind in ("corpus", "vectors"))
    queries = list(load_queries(corpus, vectors, "dev").texts)
    some = parquet.read(corpus.path(corpus.names("documents/")[0]), ["title", "text"])
    texts = [
        f"{title} {text}".strip()
        for title, text in zip(*(some[name].to_pylist() for name in some.column_names), strict=True)
    ]
    documents = open_leaf_map(place, now).manifest.documents
    report("copied")
    with serving(work, f"writes.fold_documents={FOLDED}") as (url, token):
        times = asyncio.run(measure(url, token, queries, texts[: options.changes], options.pace))
        times.changes, times.left = min(options.changes, len(texts)), left(folder)
        times.about = about(f"a change every {options.pace:g} s", f"{collection(now.spec)}, {documents:,} documents")
    (options.workdir / FIGURES.format(options.run)).write_text(json.dumps(asdict(times)))
    for made in (work, cache):
        shutil.rmtree(made)
    print("\n".join(["", *lines([times])]))
    print(json.dumps({"unseen": times.unseen[:20]}))


if __name__ == "__main__":
    main()
