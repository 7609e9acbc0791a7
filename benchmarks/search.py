"""Searching the same vectors with faiss, ScaNN, hnswlib, LanceDB and a leaf map in each codec: `make bench-search`.

First, probing the same lists with the same rows: a leaf map against faiss' own lists, in paired rounds. Then every
system by itself, at the least effort that finds 95% of the true ten nearest. Vectors are the collection's under the
base encoder; routers know their documents and no query, since this measures the search and not what was learned.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rayhier.cluster.library import faiss, ivf_tools
from rayhier.search import codecs
from rayhier.search.scan import LeafScan
from rayhier.arrays import Ints
from rayhier.search.loaded import LoadedMap
from rayhier.arrays import Floats
from search_ours import Ours
from search_peers import K, System, faiss_lists, graphs, lance, scann, set_threads

RECALL, BATCH, ROUNDS = 0.95, 64, 7
QUERIES, ALONE = 2_000, 200
PROBED = 0.01
"""Share of the leaves that are probed where lists are compared."""


@dataclass(frozen=True)
class Asked:
    """Queries, and their true nearest."""

    query_QM: Floats
    true_QK: Ints

    def recall(self, found_QK: Ints) -> float:
        """Of the true ten."""
        hits = (found_QK[:, :, None] == self.true_QK[:, None, :]).any(axis=1)
        return float(hits.mean())


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rate(system: System, query_QM: Floats, effort: int, batch: int, threads: int) -> float:
    """Queries a second, the median of five rounds."""
    parts = [query_QM[begin : begin + batch] for begin in range(0, len(query_QM), batch)]
    rounds = [timed(lambda: [system.search(part, effort, threads) for part in parts]) for _ in range(5)]
    return len(query_QM) / float(np.median(rounds))


def at_recall(system: System, asked: Asked) -> str:
    """A line of the table: the least effort that finds 95% of the true ten."""
    low, high = 0, len(system.efforts) - 1
    while low < high:
        middle = (low + high) // 2
        found = system.search(asked.query_QM, system.efforts[middle], 2)
        low, high = (low, middle) if asked.recall(found) >= RECALL else (middle + 1, high)
    effort = system.efforts[low]
    recall = asked.recall(system.search(asked.query_QM, effort, 2))
    alone = rate(system, asked.query_QM[:ALONE], effort, 1, 1)
    one, two = (rate(system, asked.query_QM, effort, BATCH, threads) for threads in (1, 2))
    visited = system.visited(asked.query_QM, effort)
    shown = "-" if np.isnan(visited) else f"{visited:,.0f}"
    single = (f"{alone:,.0f}", f"{one:,.0f}") if system.threads else ("-", "-")
    return (
        f"| {system.name} | {effort:,} | {recall:.3f} | {shown} | {single[0]} | {single[1]} | {two:,.0f} "
        f"| {system.bytes / 1e6:,.0f} | {system.seconds:,.0f} |"
    )


def same_lists(ours: Ours, query_QM: Floats) -> list[str]:
    """Queries a second of a leaf map, as parts of faiss', probing the same lists of the same rows.

    Of faiss' float32 lists, and of lists that faiss holds in the same codec, which are not scored again.
    """
    loaded = LoadedMap.read(ours.there, texts=False)
    beam = max(1, round(PROBED * ours.router.n_leaves))
    leaves_QB = ours.route(query_QM, beam)
    leaf_N = loaded.table["leaf"].to_numpy().astype(np.int64)
    what = f"the same {beam} of {ours.router.n_leaves:,} lists"
    heads = [
        f"{threads}, faiss' {lists}" for lists in ("float32", "same codec") for threads in ("1 thread", "2 threads")
    ]
    lines = [f"| {what} | {' | '.join(heads)} |", "|---|---:|---:|---:|---:|"]
    parts = [slice(begin, begin + BATCH) for begin in range(0, len(query_QM), BATCH)]

    def theirs(index: Any) -> None:
        index.nprobe = beam
        for part in parts:
            ivf_tools.search_preassigned(index, query_QM[part], K, leaves_QB[part])

    for codec in codecs.AGAIN:
        leaves, _, _ = ours.open(codec)

        def mine(leaves: LeafScan = leaves) -> None:
            for part in parts:
                leaves.rows(query_QM[part], leaves_QB[part], K)

        cells = []
        for index in (loaded.lists.index, codecs.fill(codec, loaded.vector_NM, leaf_N, ours.router.n_leaves)):
            for threads in (1, 2):
                set_threads(threads)
                mine(), theirs(index)
                ratios = [timed(lambda index=index: theirs(index)) / timed(mine) for _ in range(ROUNDS)]
                cells.append(f"{np.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
        lines.append(f"| {codec} | {' | '.join(cells)} |")
    return lines


def vectors(given: argparse.Namespace) -> tuple[str, Floats, Floats]:
    """What is searched, and what for."""
    if given.synthetic:
        from synthetic import asked, centres, part, parts

        centre_CM = centres()
        found = np.concatenate([part(number, rows, centre_CM) for number, rows in parts(given.synthetic)])
        return f"{given.synthetic:,} synthetic vectors", found, asked(given.synthetic)[0]
    from quality_collection import Data

    data = Data(given.collection, given.quality.absolute(), "test")
    query_QM = np.concatenate([data.chooses.vector_QM, data.asked.vector_QM])[:QUERIES]
    return f"{given.collection}, {len(data.documents.ids):,} documents", data.documents.vector_NM, query_QM


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Searching the same vectors.")
    parser.add_argument("--collection", default="oewn_examples")
    parser.add_argument("--synthetic", type=lambda text: int(text.replace("_", "")), help="so many synthetic vectors")
    parser.add_argument("--leaves", type=int, help="lists of every system (default: the router's own choice)")
    parser.add_argument("--quality", type=Path, default=Path("runs/quality"), help="where bench-quality keeps vectors")
    parser.add_argument("--only", help="systems whose name holds this")
    given = parser.parse_args()
    what, vector_NM, query_QM = vectors(given)
    vector_NM, query_QM = (np.ascontiguousarray(one, dtype=np.float32) for one in (vector_NM, query_QM))
    exact = faiss.IndexFlatIP(vector_NM.shape[1])
    exact.add(vector_NM)
    asked = Asked(query_QM, exact.search(query_QM, K)[1])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        leaves = given.leaves or 25 * round(len(vector_NM) ** 0.5)
        print(f"{what}, {vector_NM.shape[1]} dimensions, {len(query_QM):,} queries, {leaves:,} lists\n")
        set_threads(2)
        ours = Ours(vector_NM, leaves, folder)
        print("Queries a second as parts of faiss IVFFlat's, batches of 64, median (range) of seven paired rounds:\n")
        print("\n".join(same_lists(ours, query_QM)), flush=True)
        print(f"\nAt {RECALL:.0%} of the true {K} nearest:\n")
        print("| system | effort | recall | visited | 1 thread, batch 1 | batch 64 | 2 threads | MB | built, s |")
        print(f"|---|{'---:|' * 8}")
        systems: Iterator[Callable[[], Iterator[System]]] = iter(
            [
                lambda: faiss_lists(vector_NM, leaves),
                lambda: graphs(vector_NM),
                lambda: scann(vector_NM, leaves),
                lambda: lance(vector_NM, leaves, folder),
                lambda: (ours.system(codec) for codec in codecs.AGAIN),
            ]
        )
        for made in systems:
            for system in made():
                if given.only is None or given.only in system.name:
                    print(at_recall(system, asked), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
