"""A beam of its own for every query against one for all: `make bench-beam`.

Queries that stop where an answer has become improbable (`search.beam: {type: mass, target: …}`) beside a fixed beam, at
equal recall, on the test queries of two collections: the router as shipped, its leaf map, the same leaves. Each rule is
measured at many settings; visited is read where it reaches 90, 95 and 98% of exact R@100. The last column is what the
shipped setting comes to: calibrated on dev, never on test.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.commands import Options
from benchmarks.machine import THREADS, set_threads
from benchmarks.quality.bench import Bench
from benchmarks.quality.recall import Places, Questions
from benchmarks.quality.view import Index, View
from benchmarks.statistics import Curve, estimate, mean_curve, ratio, reached, sample
from benchmarks.tables import table
from rayhier.evaluate.curve import beams
from rayhier.model.encoded import Encoded
from rayhier.model.own_beam import OwnBeam
from rayhier.model.router import Router, route_all
from rayhier.progress import say

COLLECTIONS = ("scifact", "oewn_examples")
SHARES = (0.9, 0.95, 0.98)
TARGETS = tuple(np.concatenate([np.linspace(0.5, 0.9, 9), 1 - np.geomspace(0.09, 0.002, 12)]).tolist())
SHIPPED = 0.95


def measure(name: str, seeds: int, workdir: Path) -> list[list[str]]:
    """Rows of the table for one collection; what a query finds and visits are means over seeds, point by point."""
    bench = Bench(name, workdir, seeds, "test")
    curves: dict[str, list[Curve]] = {"fixed": [], "own": [], "shipped": []}
    for seed in range(seeds):
        view, search = bench.view(seed), bench.collection.spec.search
        index = view.index(bench.collection.spec)
        router, n_leaves = index.router, index.router.n_leaves
        auto = search.leaves_visited(n_leaves, int(Places(index.leaf_NR, n_leaves).sizes.sum()))
        rules: dict[str, list[tuple[Router, int]]] = {
            "fixed": [(router, beam) for beam in beams(n_leaves) if beam <= n_leaves // 2],
            "own": [(OwnBeam(router, target), n_leaves // 2) for target in TARGETS],
            "shipped": [(OwnBeam(router, SHIPPED), auto)],
        }
        for rule, settings in rules.items():
            curves[rule].append(curve(view, index, bench.final, settings))
        say(f"{name}: seed {seed}")
    fixed, own, shipped = (mean_curve(several) for several in curves.values())
    ratio_RS, lines = ratio(own, fixed, SHARES), []
    visited = [reached(one, sample(len(one.exact_Q)), SHARES)[0] for one in (fixed, own)]
    for share, one, other, ratio_R in zip(SHARES, *visited, ratio_RS.T, strict=True):
        over = estimate(ratio_R)
        cells = [
            f"{share:.0%}",
            f"{one:.2%}",
            f"{other:.2%}",
            f"{over.value:.2f}",
            f"{over.low:.2f} to {over.high:.2f}",
        ]
        lines.append([f"{name}, {seeds} seeds", *cells])
    found, at = float(shipped.recall_PQ.mean() / shipped.exact_Q.mean()), float(shipped.visited_PQ.mean())
    even = float(reached(fixed, sample(len(fixed.exact_Q)), [found])[0, 0])
    lines.append(["", f"target {SHIPPED} as shipped: {found:.1%}", f"{even:.2%}", f"{at:.2%}", f"{at / even:.2f}", ""])
    return lines


def curve(view: View, index: Index, questions: Questions, settings: Sequence[tuple[Router, int]]) -> Curve:
    """What every query finds and visits where a router names at most so many leaves for it, for each setting."""
    queries, relevance = Encoded.of(view.encode(questions.vector_QM)), view.relevance(questions)
    places = Places(index.leaf_NR, index.router.n_leaves)
    probed = [places.probed(route_all(router, queries, beam)[0].numpy()) for router, beam in settings]
    recall_PQ = np.stack([relevance.within(probed_QL, index.leaf_NR) for probed_QL in probed])
    visited_PQ = np.stack([places.counts(probed_QL)[0] for probed_QL in probed]) / len(index.leaf_NR)
    return Curve.read({"recall": recall_PQ, "visited": visited_PQ, "cost": visited_PQ, "exact": relevance.exact()})


def main() -> None:
    """Print the table."""
    parser = Options("A beam of its own for every query.", "quality")
    parser.collections(COLLECTIONS, others=True)
    parser.seeds()
    given = parser.parse_args()
    set_threads(THREADS)
    rows = [row for name in given.collections for row in measure(name, given.seeds, given.workdir)]
    head = ["", "of exact R@100", "fixed beam visits", "own beams visit", "ratio", "95% interval"]
    print("\n".join(table(head, rows)))


if __name__ == "__main__":
    main()
