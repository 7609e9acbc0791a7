"""First passes over the leaves of a published index, on its dev queries: `python -m benchmarks.first_pass WORKDIR`.

Documents visited and cost for shares of exact R@100, and microseconds that routing one query alone takes on one thread:
by the projection, by codes of the leaves' weights, and with every leaf scored in full.
"""

import sys
import time

import numpy as np
import torch
from rayhier.search.leaf_codes import LeafCodes

from benchmarks.commands import Options, absolute
from benchmarks.tables import table
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import load_queries
from rayhier.evaluate.curve import measure_curve, reach
from rayhier.evaluate.evaluation import SeedIndex, load_index
from rayhier.evaluate.part import ROUTER
from rayhier.evaluate.systems.router import router_system
from rayhier.evaluate.workers import LocalWorkers
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import route_all
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
    router = opened.model.router
    if not isinstance(router, LearnedIvfRouter):
        sys.exit(f"{root}: a router of type {now.spec.router.type}; this compares first passes of learned_ivf")
    encoded, judge = opened.encode(dev), Judge(dev, [MEASURE])
    exact = judge.mean(opened.collection.exact(encoded.numpy, K))[MEASURE]
    beam = now.spec.search.leaves_visited(router.n_leaves, int(opened.collection.sizes(ROUTER).sum()))
    torch.set_num_threads(1)
    settings = (
        ("projection", None, router.screen),
        ("codes", LeafCodes.of(router), router.screen),
        ("none, all in full", None, 0),
    )
    rows = []
    for name, first_pass, screen in settings:
        router.first_pass, router.screen = first_pass, screen
        taken = f"{_microseconds(router, encoded, beam):.0f}"
        rows.append([name, *_reached(opened, router, encoded, judge, exact), taken])
    print(
        f"{now.spec.name}: {router.n_leaves:,} leaves, {len(dev)} dev queries, {MEASURE} of exact search {exact:.3f}\n"
    )
    shares = " / ".join(f"{share:.0%}" for share in SHARES)
    head = ["first pass", f"visited for {shares} of it", "cost for the same", f"µs a query, beam {beam}"]
    print("\n".join(table(head, rows)))
    return 0


def _reached(index: SeedIndex, router: LearnedIvfRouter, encoded: Encoded, judge: Judge, exact: float) -> list[str]:
    """Visited documents and cost, as shares of the corpus, at which the curve reaches shares of exact recall."""
    curve = list(measure_curve(router_system("router", index.collection, router, encoded, K), judge))
    return [
        " / ".join(f"{reach(curve, MEASURE, share * exact, axis):.2%}" for share in SHARES)
        for axis in ("visited_mean", "cost_mean")
    ]


def _microseconds(router: LearnedIvfRouter, encoded: Encoded, beam: int) -> float:
    """Median microseconds of routing one query alone."""
    seconds = []
    for row in range(min(TIMED, len(encoded))):
        began = time.perf_counter()
        route_all(router, encoded[row : row + 1], beam)
        seconds.append(time.perf_counter() - began)
    return float(1e6 * np.median(seconds))


if __name__ == "__main__":
    sys.exit(main())
