"""Documents a second, vectors given: rayhier over HTTP and in this process, beside LanceDB and qdrant-edge-py.

`python -m benchmarks.live.ingest INDEX --rivals PYTHON`, where PYTHON is an interpreter with numpy, lancedb and
qdrant-edge-py. Every system begins with the documents of the index and is given the same documents for as long, one
system after another, run after run; each writes `ingest-SYSTEM.RUN.json`.
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
from benchmarks.live.gauge import Taken, about, ask, count, ingest, sizes_below, watched, weigh
from benchmarks.live.stream import BATCH, TOGETHER, VECTORS, K, Stream
from benchmarks.machine import below, free_ports
from benchmarks.tables import table
from rayhier.dataset.documents import document_texts
from rayhier.dataset.queries import load_queries
from rayhier.index.vacuum import vacuum
from rayhier.search.index import open_leaf_map
from rayhier.search.model import Model
from rayhier.serve.client import AsyncClient, Client
from rayhier.storage import columns, current
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import locate

QUERIES = 500
CLIENTS = 4
"""Clients of the server, each with a batch on its way."""
HEAD = [
    "system",
    "documents of a call",
    "seconds",
    "documents a second",
    "longest wait, s",
    "CPU, µs a document",
    "documents at the end",
    "files",
    "MB",
    "cache, MB",
    "memory, MB",
]
SEARCHES = ["system", "documents", "effort", "recall@10", "a search, median ms", "99%"]
NAMES = {
    "rayhier": "rayhier, `Index.add`",
    "lancedb": "LanceDB, `add` and `optimize`",
    "qdrant-edge": "qdrant-edge-py, `upsert_points` and `optimize`",
    "rayhier-http": "rayhier over HTTP, four clients",
    "lancedb-1000": "LanceDB, `add`, `optimize` every 20",
}
BEAMS = (20, 80, 320)
"""Leaves that a search visits, beside as many as the spec's promise needs."""
KEPT = 10
"""Versions that the server keeps."""


def stream_of(index: Path) -> Stream:
    """Documents of an index, in an order at random, and vectors of some dev queries."""
    root = locate(str(index))
    now = current.read(root)
    there, model = open_leaf_map(root, now), Model.of_workdir(root, now)
    read = (there.read(shard, ["doc_id", "rank", "title", "text", "vector"]) for shard in there.manifest.shards)
    rows = pa.concat_tables(table.filter(pc.equal(table["rank"], 0)) for table in read)
    vector_NM = columns.matrix(rows["vector"])
    vector_NM /= np.linalg.norm(vector_NM, axis=1, keepdims=True)
    order_N = np.random.default_rng(0).permutation(len(rows))
    rows = rows.drop_columns(["vector"]).take(pa.array(order_N))
    corpus, vectors = (current.artifact(root, now, kind) for kind in ("corpus", "vectors"))
    dev = load_queries(corpus, vectors, "dev")
    queries = dev.some(np.arange(len(dev)) < QUERIES)
    query_QM = model.encode_stored(queries.vector_QM, lambda: queries.texts).numpy
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


async def put_for(url: str, token: str, stream: Stream, seconds: float) -> list[float]:
    """Put batch after batch by several clients for some seconds; returns the seconds at which each was answered."""
    ends, numbers, began = list[float](), iter(range(1 << 40)), time.perf_counter()

    async def work(client: AsyncClient) -> None:
        while time.perf_counter() - began < seconds:
            batch = stream.batch(next(numbers))
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
    taken = [each for name in NAMES for each in Taken.read(workdir, name)]
    if not taken:
        return []
    first = len(Stream.open(workdir / "ingest").first)
    rows = [
        [
            NAMES[each.system],
            f"{each.call:,}",
            f"{each.seconds:,.0f}",
            f"{each.rate:,.0f}",
            f"{each.longest:.1f}",
            f"{1e6 * each.cpu / each.documents:,.0f}",
            f"{first + each.documents:,}",
            f"{each.files:,}",
            f"{each.bytes / 1e6:,.0f}",
            f"{each.cache / 1e6:,.0f}",
            f"{each.memory / 1e6:,.0f}",
        ]
        for each in taken
    ]
    found = [
        [
            NAMES[each.system],
            f"{first + each.documents:,}",
            asked.effort,
            f"{asked.recall:.3f}",
            f"{asked.median:.1f}",
            f"{asked.p99:.1f}",
        ]
        for each in taken
        for asked in each.searches
    ]
    settings = [f"- {NAMES[each.system]}: {each.about}." for each in taken]
    return [*table(HEAD, rows), "", *table(SEARCHES, found), "", *dict.fromkeys(settings)]


def over_http(root: Path, work: Path, stream: Stream, seconds: float) -> Taken:
    """An embedded server, with clients in this process."""
    settings = ("writes.fold_seconds=2", f"writes.keep_versions={KEPT}")
    taken = Taken("rayhier-http", BATCH, about(*settings))
    with (
        serving(work, *settings) as (url, token),
        Client(url, token) as client,
    ):
        with watched(taken, below(os.getpid())[-1]):
            began = time.perf_counter()
            ends = asyncio.run(put_for(url, token, stream, seconds))
            last = client.index().log
            while LeafMap.open(locate(str(root))).manifest.log < last:
                time.sleep(0.05)
            count(taken, ends, time.perf_counter() - began)

        def search(beam: int | None, query_M: Any) -> list[str]:
            return [result.id for result in client.search(query_M, k=K, beam=beam, mode="dense").results]

        ask(taken, stream, efforts(search))
        weigh(taken, root)
    return taken


def efforts(search: Callable[[int | None, Any], list[str]]) -> dict[str, Callable[[Any], list[str]]]:
    """Searches with the spec's beam, and with others, by name."""
    return {"the spec's" if beam is None else f"{beam} leaves": partial(search, beam) for beam in (None, *BEAMS)}


def in_process(root: Path, work: Path, stream: Stream, seconds: float) -> Taken:
    """`Index.add` of parquet files of as many documents as a server's tail holds, then `vacuum`; searches see each."""
    taken, file, waiting = Taken("rayhier", TOGETHER * BATCH), work / "batch.parquet", list[pa.Table]()
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
        ingest(taken, add, seconds, flush)
    ask(taken, stream, efforts(search))
    index.close()
    weigh(taken, root)
    return taken


OURS = {"rayhier": in_process, "rayhier-http": over_http}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the systems one after another; each writes its figures."""
    parser = Options("Documents a second, vectors given.", "live")
    parser.add_argument("index", type=absolute, help="workdir of an index, which is copied")
    parser.add_argument("--seconds", type=float, default=600, help="of each system (default 600)")
    parser.add_argument("--rivals", type=absolute, help="interpreter with numpy, lancedb and qdrant-edge-py")
    parser.add_argument("--systems", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--runs", type=int, nargs="+", default=[1], help="numbers of the runs (default 1 alone)")
    options = parser.parse_args(arguments)
    report, folder = clock(), options.workdir / "ingest"
    if not (folder / VECTORS).exists():
        stream_of(options.index).write(folder)
    for run, name in product(options.runs, options.systems):
        if name in OURS:
            root, cache = copied(options.index, folder / "index"), folder / "cache"
            os.environ["RAYHIER_CACHE"] = str(cache)
            taken = OURS[name](root, folder / "index", Stream.open(folder), options.seconds)
            taken.cache = sum(sizes_below(cache))
            taken.write(options.workdir, run)
            for made in (folder / "index", cache):
                shutil.rmtree(made)
        elif options.rivals:
            command = [options.rivals, "-m", "benchmarks.live.rivals", name, folder, options.workdir]
            settings = ["--seconds", options.seconds, "--run", run]
            subprocess.run([*map(str, [*command, *settings])], check=True, cwd=ROOT)
        report(f"{name}, run {run}")
    print("\n".join(lines(options.workdir)))


if __name__ == "__main__":
    main()
