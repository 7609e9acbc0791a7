"""Compare added documents per second: rayhier over HTTP and in Python, LanceDB and qdrant-edge-py.

    python -m benchmarks.live.ingest INDEX --rivals PYTHON

PYTHON is an interpreter with numpy, lancedb and qdrant-edge-py. Vectors are given. Every system begins with the
documents of the index, and gets the same further documents in the same order. Systems and runs follow one after
another. Each writes `ingest-TRIAL-SYSTEM.RUN.json`.
"""

import asyncio
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import rayhier
from benchmarks.collection import ROOT
from benchmarks.commands import Options, absolute, clock, served
from benchmarks.live.gauge import MARKS, Taken, Until, about, ask, count, ingest, sizes_below, watched, weigh
from benchmarks.live.stream import BATCH, TOGETHER, VECTORS, K, Stream
from benchmarks.machine import below, free_ports
from benchmarks.tables import ranged, table
from rayhier.dataset.documents import document_texts
from rayhier.dataset.queries import load_queries
from rayhier.index.vacuum import vacuum
from rayhier.search.index import open_leaf_map
from rayhier.search.routing.routes import Model
from rayhier.serve.client import AsyncClient, Client
from rayhier.spec import InputError
from rayhier.storage import columns, current
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import locate

QUERIES = 500
CLIENTS = 4
"""Clients of the server, each with a batch on its way."""
TRIALS = {"documents": Until(3_600, 500_000), "seconds": Until(600)}
"""What ends an ingest: as many documents for each system, or as many seconds."""
SUSTAINED = ("rayhier", "lancedb")
"""The two systems that added most documents a second, which go on for ten minutes."""
HEAD = [
    "system",
    "documents added",
    "seconds",
    "documents per second",
    "longest wait, s",
    "CPU, µs per document",
    "files",
    "MB",
    "and cache, MB",
    "memory, MB",
    "with mapped files, MB",
]
SEARCHES = ["system", "documents", "effort", "recall@10", "of texts", "median ms per search", "99%"]
NAMES = {
    "rayhier": "rayhier, `Index.add` of 20,000",
    "lancedb": "LanceDB, `add` of 20,000, `optimize` every 100,000",
    "lancedb-20000": "LanceDB, `add` of 20,000, `optimize` after each",
    "rayhier-http": "rayhier over HTTP, four clients, 1,000 per call",
    "lancedb-1000": "LanceDB, `add` of 1,000, `optimize` every 20,000",
    "qdrant-edge": "qdrant-edge-py, `upsert_points` of 1,000, `optimize` every 20,000",
}
BEAMS = (20, 80, 320)
"""Leaves that a search visits, in addition to as many as an index visits by default."""
KEPT = 10
"""Versions that the server keeps."""


def stream_of(index: Path) -> Stream:
    """Documents of an index, in an order at random, and vectors of some test queries."""
    root = locate(str(index))
    now = current.read(root)
    there, model = open_leaf_map(root, now), Model.of_workdir(root, now)
    read = (there.read(shard, ["doc_id", "rank", "title", "text", "vector"]) for shard in there.manifest.shards)
    rows = pa.concat_tables(table.filter(pc.equal(table["rank"], 0)) for table in read)
    vector_NM = columns.matrix(rows["vector"])
    vector_NM /= np.linalg.norm(vector_NM, axis=1, keepdims=True)
    order_N = np.random.default_rng(0).permutation(len(rows))
    rows = rows.drop_columns(["vector"]).take(pa.array(order_N))
    test = current.artifact(root, now, "test")
    split = load_queries(test, test, "test")  # nothing was tuned by these
    if not len(split):
        raise InputError(f"{index}: has no test queries; allowed: the workdir of a run whose corpus has some")
    queries = split.some(np.arange(len(split)) < QUERIES)
    query_QM = model.encode_stored(queries.vector_QM, lambda: queries.texts, "query").numpy
    return Stream(rows["doc_id"].to_pylist(), document_texts(rows), vector_NM[order_N], query_QM)


def copied(index: Path, work: Path) -> Path:
    """Copy an index's artifacts into a workdir of its own; returns the folder of the leaf map."""
    shutil.rmtree(work, ignore_errors=True)
    now = current.read(locate(str(index)))
    for kind, fingerprint in now.artifacts.items():
        shutil.copytree(index / kind / fingerprint, work / kind / fingerprint)
    shutil.copy(index / current.NAME, work / current.NAME)
    return Path(str(current.artifact(locate(str(work)), now, "index").root))


@contextmanager
def serving(work: Path, *settings: str) -> Iterator[tuple[str, str]]:
    """An embedded server that writes; yields its address and the token."""
    (port,), token = free_ports(1), secrets.token_hex(8)
    url, file = f"http://127.0.0.1:{port}", work / "token"
    file.write_text(token)
    server = ["rayhier", "serve", str(work), "--port", str(port)]
    overrides = [f"write_token_file={file}", "limits.queue_seconds=60", *settings]
    with served([*server, *(part for setting in overrides for part in ("--set", setting))], f"{url}/healthz", 300):
        yield url, token


async def put_until(url: str, token: str, stream: Stream, until: Until) -> list[float]:
    """Put batch after batch by several clients; returns the seconds at which each was answered."""
    ends, numbers, began = list[float](), iter(range(1 << 40)), time.perf_counter()

    async def work(client: AsyncClient) -> None:
        while not until.is_over(time.perf_counter() - began, sent := next(numbers)):
            batch = stream.batch(sent)
            documents = [
                {"id": id_, "text": text, "vector": vector}
                for id_, text, vector in zip(batch.ids, batch.texts, batch.vector_BM, strict=True)
            ]
            await client.put(documents)
            ends.append(time.perf_counter() - began)

    async with (
        AsyncClient(url, token, timeout=120, connections=CLIENTS, retries=100) as client,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(CLIENTS):
            group.create_task(work(client))
    return sorted(ends)


def lines(workdir: Path) -> list[str]:
    """Tables of the figures below a workdir, of the ingest and of searches after it; empty where there are none."""
    told = list[str]()
    for trial in TRIALS:
        taken = [run for name in NAMES if (run := Taken.read(workdir, trial, name))]
        if not taken:
            continue
        first = len(Stream.open(workdir / "ingest").first)
        rows = [
            [
                NAMES[runs[0].system],
                ranged([run.documents for run in runs]),
                ranged([run.seconds for run in runs]),
                ranged([run.rate for run in runs]),
                ranged([run.longest for run in runs], 1),
                ranged([1e6 * run.cpu / run.documents for run in runs]),
                ranged([run.files for run in runs]),
                ranged([run.bytes / 1e6 for run in runs]),
                ranged([(run.bytes + run.cache) / 1e6 for run in runs]),
                ranged([run.memory / 1e6 for run in runs]),
                ranged([run.resident / 1e6 for run in runs]),
            ]
            for runs in taken
        ]
        searched = [
            [
                "" if number else NAMES[runs[0].system],
                "" if number else ranged([first + run.documents for run in runs]),
                asked[0].effort,
                ranged([each.recall for each in asked], 3),
                ranged([each.texts for each in asked], 3),
                ranged([each.median for each in asked], 1),
                ranged([each.p99 for each in asked], 1),
            ]
            for runs in taken
            for number, asked in enumerate(zip(*(run.searches for run in runs), strict=True))
        ]
        marks = [str(mark) for mark in MARKS if any(str(mark) in run.reached for runs in taken for run in runs)]
        times = [
            [
                NAMES[runs[0].system],
                *(ranged([run.reached[mark] for run in runs if mark in run.reached]) or "-" for mark in marks),
            ]
            for runs in taken
        ]
        head = ["seconds until", *(f"{int(mark):,}" for mark in marks)]
        settings = [f"- {run.about}." for runs in taken for run in runs]
        told += ["", f"### As many {trial}", "", *table(HEAD, rows), "", *table(head, times), ""]
        told += [*table(SEARCHES, searched), "", *dict.fromkeys(settings)]
    return told[1:]


def over_http(root: Path, work: Path, stream: Stream, trial: str) -> Taken:
    """An embedded server, with clients in this process."""
    settings = ("writes.fold_seconds=2", f"writes.keep_versions={KEPT}")
    taken = Taken("rayhier-http", trial, BATCH, about(*settings))
    with (
        serving(work, *settings) as (url, token),
        Client(url, token) as client,
    ):
        pid = below(os.getpid())[-1]
        with watched(taken, pid):
            began = time.perf_counter()
            ends = asyncio.run(put_until(url, token, stream, TRIALS[trial]))
            last = client.index().log
            while LeafMap.open(locate(str(root))).manifest.log < last:
                time.sleep(0.05)
            count(taken, ends, time.perf_counter() - began)

        def search(beam: int | None, query_M: Any) -> list[str]:
            return [result.id for result in client.search(query_M, k=K, beam=beam, mode="dense").results]

        with watched(taken, pid, adds=False):
            ask(taken, stream, efforts(search))
        weigh(taken, root)
    return taken


def efforts(search: Callable[[int | None, Any], list[str]]) -> dict[str, Callable[[Any], list[str]]]:
    """Searches that visit as many leaves as the index does by itself, and others, by name."""
    return {"automatic" if beam is None else f"{beam} leaves": partial(search, beam) for beam in (None, *BEAMS)}


def in_process(root: Path, work: Path, stream: Stream, trial: str) -> Taken:
    """`Index.add` of parquet files of as many documents as a server's tail holds, then `vacuum`; searches see each."""
    taken, file = Taken("rayhier", trial, TOGETHER * BATCH), work / "batch.parquet"
    waiting = list[pa.Table]()
    index = rayhier.open(work)
    names = index.spec.corpus.row_columns

    def flush() -> None:
        if waiting:
            pq.write_table(pa.concat_tables(waiting), file)
            index.add(file)
            index.search(stream.query_QM[0], K, mode="dense")  # opens what was added
            vacuum(root, keep=2, hours=0)
            waiting.clear()

    def add(number: int) -> None:
        batch = stream.batch(number)
        vectors = columns.vector_column(batch.vector_BM, pa.float32())
        waiting.append(pa.table({names.id: batch.ids, names.text: batch.texts, "vector": vectors}))
        if len(waiting) == TOGETHER:
            flush()

    def search(beam: int | None, query_M: Any) -> list[str]:
        return [hit.id for hit in index.search(query_M, K, beam=beam, mode="dense")]

    with watched(taken):
        ingest(taken, add, TRIALS[trial], flush)
    with watched(taken, adds=False):
        ask(taken, stream, efforts(search))
    index.close()
    weigh(taken, root)
    return taken


OURS = {"rayhier": in_process, "rayhier-http": over_http}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the systems one after another; each writes its figures."""
    parser = Options("Compare added documents per second.", "live")
    parser.add_argument("index", type=absolute, help="workdir of an index, which is copied")
    parser.add_argument("--trial", choices=TRIALS, default="documents", help="limit of each run (default documents)")
    parser.add_argument("--rivals", type=absolute, help="interpreter with numpy, lancedb and qdrant-edge-py")
    parser.add_argument("--systems", nargs="+", choices=NAMES, help="default: all, or two if the limit is seconds")
    parser.add_argument("--runs", type=int, nargs="+", default=[1], help="numbers of the runs (default 1)")
    options = parser.parse_args(arguments)
    report, folder = clock(), options.workdir / "ingest"
    if not (folder / VECTORS).exists():
        stream_of(options.index).write(folder)
    systems = options.systems or (list(NAMES) if options.trial == "documents" else SUSTAINED)
    for run, name in product(options.runs, systems):
        if name in OURS:
            root, cache = copied(options.index, folder / "index"), folder / "cache"
            os.environ["RAYHIER_CACHE"] = str(cache)
            taken = OURS[name](root, folder / "index", Stream.open(folder), options.trial)
            taken.cache = sum(sizes_below(cache))
            taken.write(options.workdir, run)
            for made in (folder / "index", cache):
                shutil.rmtree(made)
        elif options.rivals:
            command = [options.rivals, "-m", "benchmarks.live.rivals", name, folder, options.workdir]
            until = TRIALS[options.trial]
            ends = ["--seconds", until.seconds, "--documents", until.documents]
            subprocess.run([*map(str, [*command, *ends, "--trial", options.trial, "--run", run])], check=True, cwd=ROOT)
        report(f"{name}, run {run}")
    print("\n".join(lines(options.workdir)))


if __name__ == "__main__":
    main()
