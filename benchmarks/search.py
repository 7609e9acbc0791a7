"""Searching the same vectors with faiss, ScaNN, hnswlib, LanceDB and a leaf map in each codec: `make bench-search`."""

import argparse
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.collection import Collection
from benchmarks.commands import Options, count
from benchmarks.leaf_maps import rows
from benchmarks.machine import interleaved, set_threads, timed
from benchmarks.search_peers import K, Ours, System, faiss_graph, faiss_lists, hnswlib_graph, lance, scann
from benchmarks.synthetic import centres, part, parts, queries
from benchmarks.tables import UNKNOWN, heading, line, quotient, table
from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import nearest
from rayhier.cluster.library import ivf_tools
from rayhier.search import codecs
from rayhier.search.segment import read_segment

RECALL, BATCH, ROUNDS = 0.95, 64, 7
QUERIES, ALONE = 2_000, 200
PROBED = 0.01
"""Share of the leaves that are probed where lists are compared."""


def rate(system: System, query_QM: Floats, effort: int, batch: int, threads: int) -> float:
    """Queries a second, the median of five rounds."""
    parts = [query_QM[begin : begin + batch] for begin in range(0, len(query_QM), batch)]
    rounds = [timed(lambda: [system.search(part, effort, threads) for part in parts]) for _ in range(5)]
    return len(query_QM) / float(np.median(rounds))


def at_recall(system: System, query_QM: Floats, true_QK: Ints) -> str:
    """The table's line of a system, at the least effort that finds 95% of the true ten."""

    def recall(effort: int) -> float:
        found_QK = system.search(query_QM, effort, 2)
        return float((found_QK[:, :, None] == true_QK[:, None, :]).any(axis=1).mean())

    place = bisect_left(range(len(system.efforts) - 1), RECALL, key=lambda place: recall(system.efforts[place]))
    effort = system.efforts[place]
    one, two = (rate(system, query_QM, effort, BATCH, threads) for threads in (1, 2))
    visited, single = system.visited(query_QM, effort), [UNKNOWN, UNKNOWN]
    if system.threads:
        single = [f"{rate(system, query_QM[:ALONE], effort, 1, 1):,.0f}", f"{one:,.0f}"]
    cells = [system.name, f"{effort:,}", f"{recall(effort):.3f}", UNKNOWN if np.isnan(visited) else f"{visited:,.0f}"]
    return line([*cells, *single, f"{two:,.0f}", f"{system.bytes / 1e6:,.0f}", f"{system.seconds:,.0f}"])


def same_lists(ours: Ours, query_QM: Floats) -> list[str]:
    """Table of a leaf map's queries a second as parts of faiss', both probing the same lists of the same rows.

    Faiss has them as float32, and in the leaf map's codec, where nothing is scored again.
    """
    segment, leaf_N = read_segment(ours.there, ours.there.manifest.shards)[0], rows(ours.there)[1]
    beam = max(1, round(PROBED * ours.router.n_leaves))
    leaves_QB = ours.route(query_QM, beam)
    heads = [
        f"{threads}, faiss' {lists}" for lists in ("float32", "same codec") for threads in ("1 thread", "2 threads")
    ]
    lines = []
    for codec in codecs.AGAIN:
        leaves, own = ours.open(codec)[0], codecs.fill(codec, segment.vector_NM, leaf_N, ours.router.n_leaves)
        cells = []
        for index in (segment.lists.index, own):
            scans: dict[str, Callable[..., object]] = {
                "theirs": partial(scan_lists, index),
                "mine": partial(leaves.candidates, k=K),
            }
            works = {name: partial(in_batches, scan, query_QM, leaves_QB) for name, scan in scans.items()}
            for threads in (1, 2):
                set_threads(threads)
                seconds = interleaved(works, ROUNDS)
                cells.append(quotient((seconds["theirs"] / seconds["mine"]).tolist()))
        lines.append([codec, *cells])
    return table([f"the same {beam} of {ours.router.n_leaves:,} lists", *heads], lines)


def in_batches(scan: Callable[..., object], query_QM: Floats, leaves_QB: Ints) -> None:
    """Scan given leaves [q, β], batch by batch."""
    for begin in range(0, len(query_QM), BATCH):
        scan(query_QM[begin : begin + BATCH], leaves_QB[begin : begin + BATCH])


def scan_lists(index: Any, query_QM: Floats, leaves_QB: Ints) -> None:
    """Scan given lists [q, β] of a faiss index."""
    index.nprobe = leaves_QB.shape[1]
    ivf_tools.search_preassigned(index, query_QM, K, leaves_QB)


def vectors(given: argparse.Namespace) -> tuple[str, Floats, Floats]:
    """Name of the searched collection, its vectors, and the queries."""
    if given.synthetic:
        centre_CM = centres()
        found = np.concatenate([part(number, count, centre_CM) for number, count in parts(given.synthetic)])
        return f"{given.synthetic:,} synthetic vectors", found, queries(given.synthetic)[0]
    data = Collection(given.collection, given.quality / given.collection)
    query_QM = np.concatenate([data.dev.vector_QM, data.queries("test").vector_QM])[:QUERIES]
    return f"{given.collection}, {len(data.documents.ids):,} documents", data.documents.vector_NM, query_QM


def main() -> None:
    """Print both tables."""
    parser = Options("Searching the same vectors.", None, "quality")
    parser.add_argument("--collection", default="oewn_examples")
    parser.add_argument("--synthetic", type=count, help="so many synthetic vectors")
    parser.add_argument("--leaves", type=int, help="lists of every system (default: the router's own choice)")
    parser.add_argument("--only", default="", help="part of faiss IVF, faiss HNSW, hnswlib, ScaNN, LanceDB, rayhier")
    given = parser.parse_args()
    what, vector_NM, query_QM = vectors(given)
    vector_NM, query_QM = (np.ascontiguousarray(one, dtype=np.float32) for one in (vector_NM, query_QM))
    true_QK = nearest(query_QM, vector_NM, K)[0]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        leaves = given.leaves or 25 * round(len(vector_NM) ** 0.5)
        print(f"{what}, {vector_NM.shape[1]} dimensions, {len(query_QM):,} queries, {leaves:,} lists\n")
        set_threads(2)
        ours = Ours(vector_NM, leaves, folder)
        print("Queries a second as parts of faiss IVFFlat's, batches of 64, median (range) of seven paired rounds:\n")
        print("\n".join(same_lists(ours, query_QM)), flush=True)
        print(f"\nAt {RECALL:.0%} of the true {K} nearest:\n")
        head = ["system", "effort", "recall", "visited", "1 thread, batch 1", "batch 64", "2 threads", "MB", "built, s"]
        print("\n".join(heading(head)))
        families: dict[str, Iterable[System]] = {  # each built when its turn comes
            "faiss IVF": faiss_lists(vector_NM, leaves),
            "faiss HNSW": faiss_graph(vector_NM),
            "hnswlib": hnswlib_graph(vector_NM),
            "ScaNN": scann(vector_NM, leaves),
            "LanceDB": lance(vector_NM, leaves, folder),
            "rayhier": (ours.system(codec) for codec in codecs.AGAIN),
        }
        for system in chain(*(family for name, family in families.items() if given.only in name)):
            print(at_recall(system, query_QM, true_QK), flush=True)


if __name__ == "__main__":
    main()
