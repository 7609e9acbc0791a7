"""A beam of its own for every query against one for all: `make bench-beam`.

Queries that stop where an answer has become improbable (`search.beam: {type: mass, target: …}`) beside a fixed beam, at
equal recall, on the test queries of two collections: the router as shipped, its leaf map, the same leaves. Each rule is
measured at many settings; visited is read where it reaches 90, 95 and 98% of exact R@100. The last column is what the
shipped setting comes to: calibrated on dev, never on test.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from quality import Bench
from quality_collection import Taught, View
from quality_scan import Asked, Judged, Places
from rayhier.cluster.library import faiss
from rayhier.evaluate.curve import beams
from rayhier.model.router import Router, route_all
from rayhier.model.own_beam import OwnBeam
from rayhier.arrays import Ints
from rayhier.arrays import Floats

ROOT = Path(__file__).parents[1]
COLLECTIONS = ("scifact", "oewn_examples")
SHARES = (0.9, 0.95, 0.98)
TARGETS = tuple(np.concatenate([np.linspace(0.5, 0.9, 9), 1 - np.geomspace(0.09, 0.002, 12)]).tolist())
SHIPPED = 0.95
RESAMPLES = 1000


@dataclass(frozen=True)
class Setting:
    """What one setting of a rule finds and visits, of every query [q]."""

    recall_Q: Floats
    visited_Q: Floats


class Asking:
    """Queries of one view, and where their answers lie."""

    def __init__(self, view: View, taught: Taught, asked: Asked) -> None:
        self.router, self.leaf_NR = taught.router, taught.leaf_NR
        self.x_QM = torch.from_numpy(view.encode(asked.vector_QM))
        self.judged: Judged = view.judged(asked)
        self.places = Places(taught.leaf_NR, taught.router.n_leaves)
        self.documents = len(taught.leaf_NR)

    def at(self, router: Router, beam: int) -> Setting:
        """One setting."""
        return self._of(route_all(router, self.x_QM, beam)[0].numpy())

    def _of(self, leaves_QB: Ints) -> Setting:
        probed = np.zeros((len(leaves_QB), self.router.n_leaves + 1), dtype=bool)
        np.put_along_axis(probed, leaves_QB, values=True, axis=1)
        probed = probed[:, :-1]
        visited_Q = self.places.counts(probed)[0] / self.documents
        return Setting(self.judged.within(probed, self.leaf_NR), visited_Q.astype(np.float32))


def read(settings: Sequence[Setting], wanted: float, rows: Ints) -> float:
    """Documents visited, in the mean over some queries, where the mean recall is what is wanted; NaN beyond."""
    recall = np.maximum.accumulate([float(one.recall_Q[rows].mean()) for one in settings])
    visited = [float(one.visited_Q[rows].mean()) for one in settings]
    return float(np.interp(wanted, recall, visited)) if recall[-1] >= wanted else float("nan")


def calibrated(view: View, taught: Taught) -> None:
    """Tell a router what dev says, as training does at its end."""
    dev = view.lessons[1]
    leaf_PR = torch.from_numpy(taught.leaf_NR[dev.pair_P2[:, 1]])
    taught.router.calibrate(torch.from_numpy(dev.vector_TM), torch.from_numpy(dev.pair_P2[:, 0]), leaf_PR)


def measure(name: str, seeds: int, workdir: Path) -> list[str]:
    """Lines of the table for one collection."""
    bench = Bench(name, workdir, seeds, "test")
    fixed: list[list[Setting]] = []
    spared: list[list[Setting]] = []
    shipped: list[Setting] = []
    exact: list[Floats] = []
    for seed in range(seeds):
        view = bench.view(seed)
        taught = view.taught(bench.data.spec)
        calibrated(view, taught)
        asking, router = Asking(view, taught, bench.data.asked), taught.router
        most = router.n_leaves // 2
        fixed.append([asking.at(router, beam) for beam in beams(router.n_leaves) if beam <= most])
        spared.append([asking.at(OwnBeam(router, target), most) for target in TARGETS])
        rows = len(taught.leaf_NR) + int((taught.leaf_NR[:, 0] != taught.leaf_NR[:, -1]).sum())
        auto = bench.data.spec.search.leaves_visited(router.n_leaves, rows)
        shipped.append(asking.at(OwnBeam(router, SHIPPED), auto))
        exact.append(asking.judged.exact())
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
        lines.append(
            f"| {name}, {seeds} seeds | {share:.0%} | {one:.2%} | {other:.2%} | {quotient:.2f} "
            f"| {low:.2f} to {high:.2f} |"
        )
    found = np.mean([one.recall_Q.mean() / whole.mean() for one, whole in zip(shipped, exact, strict=True)])
    visited = np.mean([one.visited_Q.mean() for one in shipped])
    even = np.mean([read(fixes, float(one.recall_Q.mean()), every) for fixes, one in zip(fixed, shipped, strict=True)])
    lines.append(
        f"| | target {SHIPPED} as shipped: {found:.1%} | {even:.2%} | {visited:.2%} | {visited / even:.2f} | |"
    )
    return lines


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="A beam of its own for every query.")
    parser.add_argument("--collections", nargs="+", default=list(COLLECTIONS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workdir", type=Path, default=ROOT / "runs" / "quality")
    given = parser.parse_args()
    threads = min(2, os.cpu_count() or 1)
    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
    lines = [line for name in given.collections for line in measure(name, given.seeds, given.workdir.absolute())]
    print("| | of exact R@100 | fixed beam visits | own beams visit | ratio | 95% interval |")
    print("|---|---|---:|---:|---:|---|")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
