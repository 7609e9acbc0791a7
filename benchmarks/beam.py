"""A beam of its own for every query against one for all: `make bench-beam`.

Queries that stop where an answer has become improbable (`search.beam: {type: mass, target: …}`) beside a fixed beam, at
equal recall, on the test queries of two collections: the router as shipped, its leaf map, the same leaves. Each rule is
measured at many settings; visited is read where it reaches 90, 95 and 98% of exact R@100. The last column is what the
shipped setting comes to: calibrated on dev, never on test.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.commands import Options
from benchmarks.machine import THREADS, set_threads
from benchmarks.quality.bench import Bench
from benchmarks.quality.recall import Places, Questions
from benchmarks.quality.view import Index, View
from benchmarks.tables import table
from rayhier.arrays import Floats, Ints
from rayhier.evaluate.curve import beams
from rayhier.model.encoded import Encoded
from rayhier.model.own_beam import OwnBeam
from rayhier.model.router import Router, route_all

COLLECTIONS = ("scifact", "oewn_examples")
SHARES = (0.9, 0.95, 0.98)
TARGETS = tuple(np.concatenate([np.linspace(0.5, 0.9, 9), 1 - np.geomspace(0.09, 0.002, 12)]).tolist())
SHIPPED = 0.95
RESAMPLES = 1000


@dataclass(frozen=True)
class Setting:
    """What one setting of a rule finds and visits: R@100 and a fraction of the documents, of every query [q]."""

    recall_Q: Floats
    visited_Q: Floats


class Trial:
    """Queries of one view that visit the leaves of an index."""

    def __init__(self, view: View, index: Index, questions: Questions) -> None:
        self.router, self.leaf_NR = index.router, index.leaf_NR
        self.queries = Encoded.of(view.encode(questions.vector_QM))
        self.relevance = view.relevance(questions)
        self.places = Places(index.leaf_NR, index.router.n_leaves)
        self.documents = len(index.leaf_NR)

    def at(self, router: Router, beam: int) -> Setting:
        """Recall and visited documents of each query where a router names at most `beam` leaves for it."""
        probed_QL = self.places.probed(route_all(router, self.queries, beam)[0].numpy())
        visited_Q = self.places.counts(probed_QL)[0] / self.documents
        return Setting(self.relevance.within(probed_QL, self.leaf_NR), visited_Q.astype(np.float32))


def read(settings: Sequence[Setting], wanted: float, rows: Ints) -> float:
    """Mean documents visited by some queries where their mean recall reaches `wanted`; NaN where it never does."""
    recall = np.maximum.accumulate([float(one.recall_Q[rows].mean()) for one in settings])
    visited = [float(one.visited_Q[rows].mean()) for one in settings]
    return float(np.interp(wanted, recall, visited)) if recall[-1] >= wanted else float("nan")


def measure(name: str, seeds: int, workdir: Path) -> list[list[str]]:
    """Rows of the table for one collection."""
    bench = Bench(name, workdir, seeds, "test")
    fixed: list[list[Setting]] = []
    spared: list[list[Setting]] = []
    shipped: list[Setting] = []
    exact: list[Floats] = []
    for seed in range(seeds):
        view, search = bench.view(seed), bench.collection.spec.search
        index = view.index(bench.collection.spec)
        trial, router = Trial(view, index, bench.final), index.router
        most = router.n_leaves // 2
        fixed.append([trial.at(router, beam) for beam in beams(router.n_leaves) if beam <= most])
        spared.append([trial.at(OwnBeam(router, target), most) for target in TARGETS])
        auto = search.leaves_visited(router.n_leaves, int(trial.places.sizes.sum()))
        shipped.append(trial.at(OwnBeam(router, SHIPPED), auto))
        exact.append(trial.relevance.exact())
        print(f"{name}: seed {seed}", file=sys.stderr, flush=True)
    q = len(exact[0])
    every = np.arange(q)
    generator = np.random.default_rng(0)
    draws = [generator.integers(0, q, q) for _ in range(RESAMPLES)]

    def ratio(share: float, rows: Ints) -> tuple[float, float, float]:
        pairs = []
        for fixes, spares, whole in zip(fixed, spared, exact, strict=True):
            wanted = share * float(whole[rows].mean())
            pairs.append((read(fixes, wanted, rows), read(spares, wanted, rows)))
        one, other = np.mean(pairs, axis=0)
        return float(one), float(other), float(other / one)

    lines = []
    for share in SHARES:
        one, other, quotient = ratio(share, every)
        ratios = [ratio(share, rows)[2] for rows in draws[:: 1 if q < 1000 else 4]]
        low, high = np.nanquantile(ratios, [0.025, 0.975])
        cells = [f"{share:.0%}", f"{one:.2%}", f"{other:.2%}", f"{quotient:.2f}", f"{low:.2f} to {high:.2f}"]
        lines.append([f"{name}, {seeds} seeds", *cells])
    found = np.mean([one.recall_Q.mean() / whole.mean() for one, whole in zip(shipped, exact, strict=True)])
    visited = np.mean([one.visited_Q.mean() for one in shipped])
    even = np.mean([read(fixes, float(one.recall_Q.mean()), every) for fixes, one in zip(fixed, shipped, strict=True)])
    title = f"target {SHIPPED} as shipped: {found:.1%}"
    lines.append(["", title, f"{even:.2%}", f"{visited:.2%}", f"{visited / even:.2f}", ""])
    return lines


def main() -> int:
    """Print the table."""
    parser = Options("A beam of its own for every query.", "quality")
    parser.collections(COLLECTIONS, others=True)
    parser.seeds()
    given = parser.parse_args()
    set_threads(THREADS)
    rows = [row for name in given.collections for row in measure(name, given.seeds, given.workdir)]
    head = ["", "of exact R@100", "fixed beam visits", "own beams visit", "ratio", "95% interval"]
    print("\n".join(table(head, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
