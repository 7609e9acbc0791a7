"""A beam of its own for every query against one for all: `make bench-beam`."""

from pathlib import Path

import numpy as np

from benchmarks.commands import Options
from benchmarks.machine import THREADS, set_threads
from benchmarks.quality.bench import Bench
from benchmarks.quality.view import Places
from benchmarks.statistics import Curve, draws, reached
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
    """Rows of the table for one collection; what is visited is read for every seed."""
    bench = Bench(name, workdir, seeds, "test")
    curves: dict[str, list[Curve]] = {"fixed": [], "own": [], "shipped": []}
    for seed in range(seeds):
        view, search = bench.view(seed), bench.collection.spec.search
        index = view.index(bench.collection.spec)
        router, leaves = index.router, index.router.n_leaves
        queries, relevance = Encoded.of(view.encode(bench.final.vector_QM)), view.relevance(bench.final)
        places = Places(index.leaf_NR, leaves)
        rules: dict[str, list[tuple[Router, int]]] = {
            "fixed": [(router, beam) for beam in beams(leaves) if beam <= leaves // 2],
            "own": [(OwnBeam(router, target), leaves // 2) for target in TARGETS],
            "shipped": [(OwnBeam(router, SHIPPED), search.leaves_visited(leaves, int(places.sizes.sum())))],
        }
        for rule, settings in rules.items():
            probed = [places.probed(route_all(own, queries, beam)[0].numpy()) for own, beam in settings]
            recall_PQ = np.stack([relevance.within(probed_QL, index.leaf_NR) for probed_QL in probed])
            visited_PQ = np.stack([places.counts(probed_QL)[0] for probed_QL in probed]) / len(index.leaf_NR)
            curves[rule].append(
                Curve(recall_PQ.astype(np.float64), visited_PQ, visited_PQ, relevance.exact().astype(np.float64))
            )
        say(f"{name}: seed {seed}")
    weight_RQ = draws(len(bench.final.count_Q))
    fixed_RS, own_RS = (
        np.mean([reached(one, SHARES, weight_RQ=weight_RQ) for one in curves[rule]], axis=0)
        for rule in ("fixed", "own")
    )
    ratio_RS = own_RS / fixed_RS
    low_S, high_S = np.nanquantile(ratio_RS[1:], [0.025, 0.975], axis=0)
    columns = zip(SHARES, fixed_RS[0], own_RS[0], ratio_RS[0], low_S, high_S, strict=True)
    lines = [
        [
            f"{name}, {seeds} seeds",
            f"{share:.0%}",
            f"{fixed:.2%}",
            f"{own:.2%}",
            f"{over:.2f}",
            f"{low:.2f} to {high:.2f}",
        ]
        for share, fixed, own, over, low, high in columns
    ]
    found = [float(one.recall_PQ.mean() / one.exact_Q.mean()) for one in curves["shipped"]]
    at = float(np.mean([one.visited_PQ.mean() for one in curves["shipped"]]))
    even = np.mean([reached(one, [share]) for one, share in zip(curves["fixed"], found, strict=True)])
    title = f"target {SHIPPED} as shipped: {np.mean(found):.1%}"
    return [*lines, ["", title, f"{even:.2%}", f"{at:.2%}", f"{at / even:.2f}", ""]]


def main() -> None:
    """Print the table."""
    parser = Options("A beam of its own for every query.", "quality", "seeds")
    parser.add_argument("--collections", nargs="+", default=list(COLLECTIONS))
    given = parser.parse_args()
    set_threads(THREADS)
    rows = [row for name in given.collections for row in measure(name, given.seeds, given.workdir)]
    head = ["", "of exact R@100", "fixed beam visits", "own beams visit", "ratio", "95% interval"]
    print("\n".join(table(head, rows)))


if __name__ == "__main__":
    main()
