"""First passes over the leaves of a published index, on its dev queries: `python -m benchmarks.first_pass WORKDIR`.

Documents visited and cost for shares of exact R@100, and microseconds that routing one query alone takes on one thread:
by codes of the leaves' weights, and with every leaf scored in full; beside them IVF with as many lists.
"""

import sys
import time

import numpy as np
import torch

from benchmarks.commands import Options, absolute
from benchmarks.tables import UNKNOWN, table
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
from rayhier.search.coded_router import CodedRouter
from rayhier.storage import current
from rayhier.storage.paths import locate

MEASURE, K, SHARES = "R@100", 100, (0.9, 0.95, 0.98)
TIMED = 300
"""Most queries that are routed one by one."""


def main() -> int:
    """Print the table of an index."""
    parser = Options("First passes over the leaves of a published index, on dev.")
    parser.add_argument("target", metavar="WORKDIR", type=absolute, help="where a run built an index of learned_ivf")
    root = locate(str(parser.parse_args().target))
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
    settings: dict[str, Router] = {"codes": CodedRouter(router), "none, all in full": router}
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


def _reached(system: System, judge: Judge, exact: float) -> list[str]:
    """Visited documents and cost, as shares of the corpus, at which the curve reaches shares of exact recall."""
    curve = list(measure_curve(system, judge))
    return [
        " / ".join(f"{reach(curve, MEASURE, share * exact, axis):.2%}" for share in SHARES)
        for axis in ("visited_mean", "cost_mean")
    ]


def _microseconds(router: Router, encoded: Encoded, beam: int) -> float:
    """Median microseconds of routing one query alone."""
    seconds = []
    for row in range(min(TIMED, len(encoded))):
        began = time.perf_counter()
        route_all(router, encoded[row : row + 1], beam)
        seconds.append(time.perf_counter() - began)
    return float(1e6 * np.median(seconds))


if __name__ == "__main__":
    sys.exit(main())
