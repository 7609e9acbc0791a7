"""Scanning the same lists query by query and leaf by leaf: `make bench-leaf-by-leaf`.

The lists are the leaves of an index and coarser ones by k-means; a query visits those whose means are nearest. Queries
are the index's judged ones and documents at random, and last documents in the order of their leaves, as many together
as `rayhier search --documents` searches. The control is faiss' big_batch_search over the same lists and the same
visits, by its method knn_function; its coarse step is left out. Rates are by the seconds of one processor.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from faiss.contrib.big_batch_search import big_batch_search

from benchmarks.commands import Options, absolute, clock, count
from benchmarks.machine import set_threads
from benchmarks.search import vectors
from benchmarks.tables import UNKNOWN, table
from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import nearest, spherical_kmeans
from rayhier.search import codecs, leaf_by_leaf
from rayhier.search.index import open_leaf_map
from rayhier.search.lists import FileLists, LeafLists
from rayhier.search.query_files import DOCUMENTS as CHUNK
from rayhier.spec.search import Codec
from rayhier.storage import current
from rayhier.storage.paths import locate

K = 10
CODECS: tuple[Codec, ...] = ("fp16", "flat")
WAYS = ("query by query", "leaf by leaf", "faiss big_batch_search")
RANDOM, CHUNKS = 20_000, 3
"""Most random queries, and chunks of documents in the order of their leaves."""


@dataclass(frozen=True)
class Lists:
    """Vectors in lists, in one codec."""

    name: str
    leaf_lists: LeafLists
    index: Any
    """faiss's index of the lists."""


@dataclass(frozen=True)
class Workload:
    """Queries that are searched together, chunk by chunk, and the lists that they visit, nearest first."""

    name: str
    chunks: list[tuple[Floats, Ints]]

    @property
    def queries(self) -> int:
        """Number of queries."""
        return sum(len(query_QM) for query_QM, _ in self.chunks)


def leaves_of(workdir: Path) -> Ints:
    """First leaf [n] of each document, in the order of `benchmarks.search.vectors`."""
    root = locate(str(workdir))
    parts = []
    leaf_map = open_leaf_map(root, current.read(root))
    for shard in leaf_map.manifest.shards:
        rows = leaf_map.read(shard, ["rank", "leaf"])
        parts.append(rows["leaf"].to_numpy()[rows["rank"].to_numpy() == 0].astype(np.int64))
    return np.concatenate(parts)


def means(vector_NM: Floats, leaf_N: Ints) -> tuple[Floats, Ints]:
    """Directions [l, m] of the vectors of each leaf that has some, and the list [n] of each vector."""
    held, list_N = np.unique(leaf_N, return_inverse=True)
    sum_LM = np.zeros((len(held), vector_NM.shape[1]), np.float32)
    np.add.at(sum_LM, list_N, vector_NM)
    return sum_LM / np.linalg.norm(sum_LM, axis=1, keepdims=True), list_N


def workloads(
    vector_NM: Floats, judged_QM: Floats, list_N: Ints, mean_LM: Floats, sizes: list[int], beam: int
) -> Iterator[Workload]:
    """Queries at random, in several numbers, then documents in the order of their lists."""
    rng = np.random.default_rng(0)
    query_QM = np.concatenate([judged_QM, vector_NM[rng.permutation(len(vector_NM))[:RANDOM]]])
    for size in sizes:
        some_QM = query_QM[:size]
        yield Workload(f"{size:,}", [(some_QM, nearest(some_QM, mean_LM, beam)[0])])
    order_N, chunks = np.argsort(list_N, kind="stable"), list[tuple[Floats, Ints]]()
    for begin in np.linspace(0, len(order_N) - CHUNK, CHUNKS).astype(int).tolist():
        some_QM = vector_NM[order_N[begin : begin + CHUNK]]
        chunks.append((some_QM, nearest(some_QM, mean_LM, beam)[0]))
    yield Workload(f"documents, by {CHUNK:,}", chunks)


def scanned(lists: LeafLists, workload: Workload, beam: int, rule: Callable[..., int]) -> None:
    """Scan all chunks; `rule` tells how many lists of each query are scanned query by query."""
    with patch.object(leaf_by_leaf, "first_lists", rule):
        for query_QM, list_QB in workload.chunks:
            lists.scan(query_QM, list_QB[:, :beam], K)


def batched(lists: Lists, workload: Workload, beam: int) -> None:
    """Search all chunks by faiss' big_batch_search."""
    for query_QM, list_QB in workload.chunks:
        lists.index.nprobe = beam
        visited = np.ascontiguousarray(list_QB[:, :beam], np.int32)
        with redirect_stdout(StringIO()):  # it prints every list
            big_batch_search(lists.index, query_QM, K, verbose=1, q_assign=visited)


def by_query(rows: object, scored_L: Ints, list_QB: Ints, k: int) -> int:  # noqa: ARG001
    """Rule: all lists query by query."""
    return int(list_QB.shape[1])


def by_leaf(rows: leaf_by_leaf.StoredRows, scored_L: Ints, list_QB: Ints, k: int) -> int:
    """Rule: leaf by leaf, after as many lists as always, however long it takes."""
    with patch.multiple(leaf_by_leaf, VISIT=float("inf"), FEWEST=0):
        return own_rule(rows, scored_L, list_QB, k)


own_rule = leaf_by_leaf.first_lists


def rates(lists: Lists, workload: Workload, beam: int, rounds: int) -> tuple[dict[str, float], bool]:
    """Median queries a second of each way, in rounds that take turns; and whether leaf by leaf is what is chosen."""
    works: dict[str, Callable[[], None]] = {
        WAYS[0]: partial(scanned, lists.leaf_lists, workload, beam, by_query),
        WAYS[1]: partial(scanned, lists.leaf_lists, workload, beam, by_leaf),
    }
    if len(lists.leaf_lists.sizes) + 1 < beam * len(workload.chunks[0][0]):  # it sorts no fewer visits than lists
        works[WAYS[2]] = partial(batched, lists, workload, beam)
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            began = time.process_time()
            work()
            taken[name].append(time.process_time() - began)
    median = {name: workload.queries / float(np.median(seconds)) for name, seconds in taken.items()}
    firsts = [lists.leaf_lists.query_by_query_first(list_QB[:, :beam], K) for _, list_QB in workload.chunks]
    return median, sum(first < beam for first in firsts) * 2 > len(firsts)


def main() -> None:
    """Print a table for each codec and each set of lists."""
    parser = Options("Scans query by query and leaf by leaf.")
    parser.add_argument("index", metavar="WORKDIR", type=absolute, help="where a run built an index")
    parser.add_argument("--lists", type=count, default=1_024, help="number of coarser lists (default 1,024)")
    parser.add_argument("--queries", type=count, nargs="+", default=[64, 256, 1_000, 4_000, RANDOM])
    parser.add_argument("--beams", type=count, nargs="+", default=[16, 64, 256])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    say = clock()
    name, vector_NM, (dev_QM, test_QM) = vectors(given.index, "dev", "test")
    set_threads(2)
    coarse_LM = spherical_kmeans(vector_NM, given.lists, seed=1)
    kinds = [
        ("leaves of the index", *means(vector_NM, leaves_of(given.index))),
        ("lists by k-means", coarse_LM, nearest(vector_NM, coarse_LM, 1)[0][:, 0]),
    ]
    for kind, mean_LM, list_N in kinds:
        every = list(
            workloads(vector_NM, np.concatenate([dev_QM, test_QM]), list_N, mean_LM, given.queries, max(given.beams))
        )
        set_threads(1)
        for codec in CODECS:
            index = codecs.fill(codec, vector_NM, list_N, len(mean_LM))
            sizes = np.bincount(list_N, minlength=len(mean_LM))
            file = FileLists(index, np.arange(len(mean_LM)), sizes, list_N=list_N)
            lists, lines = Lists(codec, LeafLists([file]), index), list[list[str]]()
            for beam in given.beams:
                for workload in every:
                    rate, chosen = rates(lists, workload, beam, given.rounds)
                    say(f"{kind}, {codec}, beam {beam}, {workload.name}: {rate}")
                    cells = [f"{rate[way]:,.0f}" if way in rate else UNKNOWN for way in WAYS]
                    lines.append([str(beam), workload.name, *cells, WAYS[1] if chosen else WAYS[0]])
            print(f"\n{name}, {codec}: {len(vector_NM):,} vectors, {len(mean_LM):,} {kind}\n")
            head = ["beam", "queries", *WAYS, "chosen"]
            print("\n".join(table(head, lines)), flush=True)


if __name__ == "__main__":
    main()
