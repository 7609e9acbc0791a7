"""A batch search by several processes on Ray: workers that search chunks of queries, and each hold a range of leaves.

A worker encodes and routes a chunk, asks every worker for its leaves' part of the work, and merges the answers, as an
embedded or deployed server does: `Retriever` decides in both. So filters, BM25 and re-ranking need nothing more. Ray
Data would exchange queries and results by a shuffle of all of them, which ends before anything is merged, once for
every round of a search. Here a chunk's vectors go to the workers that hold their leaves, and results come back.

A worker that dies is started again, and its work is done again. Results go to the driver, which writes them
(search/batch.py), so that each chunk is written once. Shapes: Q queries.
"""

import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import ray
import torch

from rayhier.cluster.library import faiss
from rayhier.embed.precision import as_embedded
from rayhier.executor.ray import check_cpus, get, join
from rayhier.model.precision import resolve
from rayhier.search.batch.job import Answers, Numbered, answered
from rayhier.search.batch.query_files import Chunk
from rayhier.search.request.request import Request
from rayhier.search.retrieve import Found, Reading, Reply, Scan, Score, Work
from rayhier.search.routing.routes import find_routes
from rayhier.search.snapshot import Snapshot
from rayhier.spec import InputError, JobSpec
from rayhier.storage import current
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import Manifest, ranges
from rayhier.storage.paths import locate

AHEAD = 2
"""Chunks that a worker searches at a time, so that it merges one while it waits for leaves of the other."""
RESTARTS = 4
"""Times that a worker which died is started again."""


class Worker:
    """A Ray actor that searches chunks, and reads a range of leaves for all workers.

    It has a thread for leaves, and threads for chunks of which one at a time encodes, routes or calls the
    cross-encoder. torch and faiss use no further threads.
    """

    def __init__(self, workdir: str, now: Current, version: int, leaves: Sequence[range], number: int) -> None:
        """Take a version of an index, which is opened at the first call. This worker reads `leaves[number]`."""
        os.environ["RAYON_NUM_THREADS"] = "1"  # the tokenizer's threads, read when it first runs
        self._index, self._leaves, self._number = (locate(workdir), now, version), leaves, number
        self._opening, self._one = threading.Lock(), threading.Lock()
        self._opened: Snapshot | None = None

    @property
    def _searcher(self) -> Snapshot:
        """The opened index. Ray would hide an InputError of the constructor in a stack trace."""
        with self._opening:
            if self._opened is None:
                self._opened = Snapshot.of_version(*self._index, self._leaves[self._number])
            return self._opened

    def read(self, work: Reading) -> Any:
        """Do a piece of a search's work in this worker's leaves. InputError if a file is not as published."""
        _one_thread()
        return self._searcher.read(work)

    def search(self, workers: Sequence[Any], chunk: Chunk, arguments: dict[str, Any]) -> pa.Table:
        """Search the queries of a chunk with all workers. Returns their results as `batch.answered` does."""
        _one_thread()
        searcher = self._searcher

        def reply(work: Work) -> Reply:
            if isinstance(work, Score):
                with self._one:
                    return searcher.reply(work)
            return self._asked(workers, work)

        def retrieve(request: Request) -> Found:
            with self._one:
                routes = find_routes(searcher.model, request.queries, request.beam, encodes=request.encodes)
            return searcher.drive(request, routes, reply)

        return answered(searcher.rules, chunk, arguments, retrieve)

    def _asked(self, workers: Sequence[Any], work: Reading) -> Reply:
        if not isinstance(work, Scan):
            return Reply(get([_read(worker, work) for worker in workers]))
        visits = [work.visits(leaves) for leaves in self._leaves]
        visited = [number for number, here_Q in enumerate(visits) if here_Q.any()]
        parts = get([_read(workers[number], work.part(visits[number])) for number in visited])
        return Reply([part.among(visits[number]) for number, part in zip(visited, parts, strict=True)])


class WorkerPool:
    """A pool of workers; use as a context manager, which ends them."""

    def __init__(self, workdir: str, now: Current, manifest: Manifest, count: int, address: str | None) -> None:
        """Start `count` workers on the cluster at `address`, by default the spec's.

        `workdir` is an absolute path that all nodes have, or in a bucket. InputError if there are more workers than
        leaves or than CPUs, or no cluster answers.
        """
        if count > len(manifest.counts):
            raise InputError(f"--workers: got {count}; allowed: 1 to {len(manifest.counts)}, the index's leaves")
        update = {} if address is None else {"address": address}
        join(now.spec.model_copy(update={"cluster": now.spec.cluster.model_copy(update=update)}))
        check_cpus("--workers", count)
        leaves = [range(first, last) for first, last in ranges(manifest.counts, count)]
        kind = ray.remote(
            num_cpus=1, max_restarts=RESTARTS, max_task_retries=-1, concurrency_groups={"search": AHEAD, "read": 1}
        )(Worker)
        spec = _one_precision(workdir, now)
        same = workdir, now.model_copy(update={"spec": spec}), manifest.version, leaves
        self._workers = [kind.remote(*same, number) for number in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            ray.kill(worker)

    def answers(self, arguments: dict[str, Any]) -> Answers:
        """Return the function that searches chunks, a few for each worker at a time, as the arguments say.

        It raises InputError if a worker raises it, or dies again and again.
        """
        return lambda chunks: self._searched(chunks, arguments)

    def _searched(self, chunks: Numbered, arguments: dict[str, Any]) -> Iterator[tuple[int, pa.Table]]:
        running = dict[Any, tuple[int, int]]()
        for number, chunk in chunks:
            if len(running) == AHEAD * len(self._workers):
                yield _first(running)
            busy = Counter(worker for _, worker in running.values())
            free = min(range(len(self._workers)), key=busy.__getitem__)
            search = self._workers[free].search.options(concurrency_group="search")
            running[search.remote(self._workers, chunk, arguments)] = number, free
        while running:
            yield _first(running)


def _one_precision(workdir: str, now: Current) -> JobSpec:
    """Return the spec with one number format of the encoder for all workers, where it has `auto`.

    It is the embed stage's; where that has none for CPUs, the fastest in this process.
    """
    spec = now.spec
    if "vectors" in now.artifacts:
        spec = as_embedded(spec, current.artifact(locate(workdir), now, "vectors"), 0)
    if spec.encoder.precision != "auto":
        return spec
    precision = str(resolve("auto", torch.device("cpu"))).removeprefix("torch.")
    return spec.model_copy(update={"encoder": spec.encoder.model_copy(update={"precision": precision})})


def _first(running: dict[Any, tuple[int, int]]) -> tuple[int, pa.Table]:
    (ready,), _ = ray.wait(list(running), num_returns=1)
    try:
        (table,) = get([ready])
    except ray.exceptions.RayError as error:
        died = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error  # another worker, or this one
        if not isinstance(died, ray.exceptions.RayActorError):
            raise
        reason = str(died).splitlines()[0]
        raise InputError(
            f"a worker died {RESTARTS + 1} times ({reason}); what is done is kept: run the same command again, with "
            "fewer --workers where memory is short"
        ) from None
    return running.pop(ready)[0], table


def _read(worker: Any, work: Reading) -> Any:
    return worker.read.options(concurrency_group="read").remote(work)


def _one_thread() -> None:
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
