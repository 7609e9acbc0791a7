"""First passes over the leaves of a published index, on its dev queries: `python -m benchmarks.first_pass WORKDIR`.

Documents visited and cost for shares of exact R@100, and microseconds that routing one query alone takes on one thread:
by codes of the leaves' weights, with every leaf scored in full, and by codes before queries taught the router; beside
them IVF with as many lists. With `--leaves`, k-means leaves of the documents instead, in several numbers: the time that
finding a query's best leaves takes by codes, by a graph of the leaves, and in full.
"""

import copy
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.commands import Options, absolute
from benchmarks.machine import set_threads, timed
from benchmarks.search import vectors
from benchmarks.search_systems import LINKS, centroids
from benchmarks.tables import UNKNOWN, table
from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import load_queries
from rayhier.evaluate.curve import System, measure_curve, reach
from rayhier.evaluate.evaluation import load_index
from rayhier.evaluate.part import ROUTER
from rayhier.evaluate.systems.ivf import faiss_ivf
from rayhier.evaluate.systems.router import router_system
from rayhier.evaluate.workers import LocalWorkers
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import Router, route_all
from rayhier.search.coded_router import SHORTLIST, CodedRouter
from rayhier.storage import current
from rayhier.storage.paths import locate

MEASURE, K, SHARES = "R@100", 100, (0.9, 0.95, 0.98)
TIMED = 300
"""Most queries that are routed one by one."""
VISITED = (16, 64, 128)
"""Numbers of leaves that a query visits."""
TOGETHER, ROUNDS = 1_000, 5
"""Queries in a batch, and rounds in which the ways take turns."""
EFFORTS = (1, 1.5, 2, 3, 4, 6, 8)
"""Candidates that a search of the graph keeps, for each leaf wanted."""


def main() -> int:
    """Print the table of an index."""
    parser = Options("First passes over the leaves of a published index, on dev.")
    parser.add_argument("target", metavar="WORKDIR", type=absolute, help="where a run built an index of learned_ivf")
    parser.add_argument("--leaves", type=int, nargs="+", help="numbers of k-means leaves, instead of the index's")
    given = parser.parse_args()
    if given.leaves:
        return _many(given.target, given.leaves)
    root = locate(str(given.target))
    now = current.read(root)
    corpus, vectors, model, index = (
        current.artifact(root, now, kind) for kind in ("corpus", "vectors", "model", "index")
    )
    dev, opened = load_queries(corpus, vectors, "dev"), load_index(now.spec, model, index, LocalWorkers())
    router = opened.model.trained
    if not isinstance(router, LearnedIvfRouter):
        sys.exit(f"{root}: a router of type {now.spec.router.type}; this compares first passes of learned_ivf")
    encoded, judge = opened.encode(dev), Judge(dev, [MEASURE])
    exact = judge.mean(opened.collection.exact(encoded.numpy, K))[MEASURE]
    beam = now.spec.search.leaves_visited(router.n_leaves, int(opened.collection.sizes(ROUTER).sum()))
    torch.set_num_threads(1)
    settings: dict[str, Router] = {
        "codes": CodedRouter(router),
        "none, all in full": router,
        "codes, no query taught the router": CodedRouter(_untaught(router)),
    }
    rows = []
    for name, chosen in settings.items():
        system = router_system("router", opened.collection, chosen, encoded, K)
        rows.append([name, *_reached(system, judge, exact), f"{_microseconds(chosen, encoded, beam):.0f}"])
    for name, leaves in (("IVF, as many lists", 1), ("IVF in two lists (SOAR), as many", 2)):
        lists = faiss_ivf(name, opened.collection, encoded.numpy, K, router.n_leaves, 0, leaves)
        rows.append([name, *_reached(lists, judge, exact), UNKNOWN])
    print(
        f"{now.spec.name}: {router.n_leaves:,} leaves, {len(dev)} dev queries, {MEASURE} of exact search {exact:.3f}\n"
    )
    shares = " / ".join(f"{share:.0%}" for share in SHARES)
    head = ["first pass", f"visited for {shares} of it", "cost for the same", f"µs a query, beam {beam}"]
    print("\n".join(table(head, rows)))
    return 0


@torch.no_grad()
def _untaught(router: LearnedIvfRouter) -> LearnedIvfRouter:
    """The router as k-means made it: weights of the centroids' directions, and nothing that transforms queries."""
    made = copy.deepcopy(router)
    made.begin(router.cells.centroid_LM)
    made.U.zero_()
    return made


def _many(workdir: Path, counts: list[int]) -> int:
    """Print, for numbers of leaves, the microseconds of a query's best leaves, alone and in batches, in each way."""
    _, vector_NM, (query_QM,) = vectors(workdir, "dev")
    query_QM, lines = np.ascontiguousarray(query_QM[:TOGETHER], np.float32), []
    for leaves in counts:
        ways = _Ways(vector_NM, leaves)
        for beam in (beam for beam in VISITED if beam * SHORTLIST <= leaves):
            lines.append([f"{leaves:,}", str(beam), *ways.measured(query_QM, beam)])
            print(lines[-1], file=sys.stderr, flush=True)
    head = [f"{way}, µs alone / in batches" for way in ("by codes", "in full", "by a graph")]
    print("\n".join(table(["leaves", "visited", *head, "codes' share of the best", "graph's (effort)"], lines)))
    return 0


class _Ways:
    """Ways to find a query's best leaves among k-means leaves."""

    def __init__(self, vector_NM: Floats, leaves: int) -> None:
        set_threads(2)
        m, centroid_LM = vector_NM.shape[1], centroids(vector_NM, leaves)
        router = LearnedIvfRouter(m, leaves, 1, 0)
        router.begin(torch.from_numpy(centroid_LM))
        self.coded = CodedRouter(router.eval().requires_grad_(requires_grad=False))
        self.full: Any = faiss.IndexFlatIP(m)
        self.graph: Any = faiss.IndexHNSWFlat(m, LINKS, faiss.METRIC_INNER_PRODUCT)
        for index in (self.full, self.graph):
            index.add(centroid_LM)

    def measured(self, query_QM: Floats, beam: int) -> list[str]:
        """Cells of the table: the times of each way, the share that codes find, and the graph's at the least effort."""
        ways: list[Callable[[Floats], Ints]] = [
            lambda part: self.coded.by_codes(part, beam)[0],
            lambda part: np.asarray(self.full.search(part, beam)[1]),
            lambda part: np.asarray(self.graph.search(part, beam)[1]),
        ]
        true_QB = ways[1](query_QM)
        by_codes, by_graph = _agreement(ways[0](query_QM), true_QB), 0.0
        for effort in EFFORTS:
            self.graph.hnsw.efSearch = round(effort * beam)
            by_graph = _agreement(ways[2](query_QM), true_QB)
            if by_graph >= by_codes:
                break
        set_threads(1)
        alone, together = _times(ways, query_QM, 1), _times(ways, query_QM, TOGETHER)
        times = [f"{one:.0f} / {many:.1f}" for one, many in zip(alone, together, strict=True)]
        return [*times, f"{by_codes:.3f}", f"{by_graph:.3f} ({effort:g})"]


def _agreement(found_QB: Ints, true_QB: Ints) -> float:
    """Share of the best leaves that were found."""
    return float(np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(found_QB, true_QB, strict=True)]))


def _times(ways: list[Callable[[Floats], Ints]], query_QM: Floats, batch: int) -> list[float]:
    """Microseconds a query of each way, medians of rounds in which they take turns."""
    some_QM = query_QM[: TIMED if batch == 1 else TOGETHER]

    def ask(way: Callable[[Floats], Ints]) -> None:
        for begin in range(0, len(some_QM), batch):
            way(some_QM[begin : begin + batch])

    seconds = [[timed(partial(ask, way)) for way in ways] for _ in range(ROUNDS + 1)][1:]
    return [float(time) for time in 1e6 * np.median(seconds, axis=0) / len(some_QM)]


def _reached(system: System, judge: Judge, exact: float) -> list[str]:
    """Visited documents and cost, as shares of the corpus, at which the curve reaches shares of exact recall."""
    curve = []
    for point in measure_curve(system, judge):
        curve.append(point)
        if point.measures[MEASURE] >= max(SHARES) * exact:
            break
    return [
        " / ".join(f"{reach(curve, MEASURE, share * exact, axis):.2%}" for share in SHARES)
        for axis in ("visited_mean", "cost_mean")
    ]


def _microseconds(router: Router, encoded: Encoded, beam: int) -> float:
    """Median microseconds of routing one query alone."""
    rows = range(min(TIMED, len(encoded)))
    seconds = [timed(partial(route_all, router, encoded[row : row + 1], beam)) for row in rows]
    return float(1e6 * np.median(seconds))


if __name__ == "__main__":
    sys.exit(main())
