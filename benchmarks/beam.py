"""A beam of its own for every query against one for all, and whether a promised recall is kept: `make bench-beam`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.commands import Options
from benchmarks.machine import THREADS, set_threads
from benchmarks.quality.bench import Bench
from benchmarks.quality.view import Index, Places, View
from benchmarks.statistics import Curve, draws, reached
from benchmarks.tables import table
from rayhier.arrays import Floats, Ints
from rayhier.evaluate.calibrate import largest_floors
from rayhier.evaluate.curve import beams
from rayhier.model.encoded import Encoded
from rayhier.model.own_beam import OwnBeam
from rayhier.model.router import Router, route_all
from rayhier.progress import say
from rayhier.search.calibration import Calibration
from rayhier.search.coded_router import first_pass_before
from rayhier.search.exact import exact_rows
from rayhier.search.promised_beam import PromisedBeam
from rayhier.spec.search import MOST_QUERIES, RecallBeam

COLLECTIONS = ("scifact", "oewn_examples")
SHARES = (0.9, 0.95, 0.98)
TARGETS = tuple(np.concatenate([np.linspace(0.5, 0.9, 9), 1 - np.geomspace(0.09, 0.002, 12)]).tolist())
SHIPPED = 0.95
HALVES = 10
RESULTS = (100, 10)
"""Numbers of results, k, for which a recall of the exact best k is promised."""


def measure(name: str, seeds: int, workdir: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Rows of both tables for one collection; what is visited is read for every seed."""
    bench, promised = Bench(name, workdir, seeds, "test"), list[list[str]]()
    curves: dict[str, list[Curve]] = {"fixed": [], "own": [], "shipped": []}
    for seed in range(seeds):
        view = bench.view(seed)
        index = view.index(bench.collection.spec)
        router, leaves = index.router, index.router.n_leaves
        queries, relevance = Encoded.of(view.encode(bench.final.vector_QM)), view.relevance(bench.final)
        places = Places(index.leaf_NR, leaves)
        rules: dict[str, list[tuple[Router, int]]] = {
            "fixed": [(router, beam) for beam in beams(leaves) if beam <= leaves // 2],
            "own": [(OwnBeam.reaching(router, target), leaves) for target in TARGETS],
            "shipped": [(OwnBeam.reaching(router, SHIPPED), leaves)],
        }
        for rule, settings in rules.items():
            probed = [places.probed(route_all(own, queries, beam)[0].numpy()) for own, beam in settings]
            recall_PQ = np.stack([relevance.within(probed_QL, index.leaf_NR) for probed_QL in probed])
            visited_PQ = np.stack([places.counts(probed_QL)[0] for probed_QL in probed]) / len(index.leaf_NR)
            curves[rule].append(
                Curve(recall_PQ.astype(np.float64), visited_PQ, visited_PQ, relevance.exact().astype(np.float64))
            )
        promised += promises(bench, view, index)
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
    title = f"target {SHIPPED}: {np.mean(found):.1%}"
    return [*lines, ["", title, f"{even:.2%}", f"{at:.2%}", f"{at / even:.2f}", ""]], promised


@dataclass(frozen=True)
class Asked:
    """Queries, and for each of them the floors [q, k] and the beams [q, k] that find its exact best k documents."""

    encoded: Encoded
    floor_QK: Floats
    beam_QK: Ints

    @classmethod
    def of(cls, query_QM: Floats, view: View, index: Index, k: int) -> "Asked":
        """Find each query's exact best k documents, and how far it must go for them."""
        best_QK, encoded = exact_rows(query_QM, view.vectors, None, k)[1], Encoded.of(query_QM)
        leaf_QKR = index.leaf_NR[best_QK]
        floor_QK = largest_floors(PromisedBeam(index.router, _finds(index), k, 0.0), encoded, leaf_QKR)
        leaves_QL = route_all(_finds(index), encoded, index.router.n_leaves)[0].numpy()
        place_QL = np.argsort(leaves_QL, axis=1)
        places = np.take_along_axis(place_QL, leaf_QKR.reshape(len(query_QM), -1), axis=1)
        return cls(encoded, floor_QK, 1 + places.reshape(leaf_QKR.shape).min(axis=2))


def _finds(index: Index) -> Router:
    return first_pass_before(index.router)


def promises(bench: Bench, view: View, index: Index) -> Iterator[list[str]]:
    """Rows of the table of promises for one seed: dev queries calibrate, halves of the test queries measure."""
    places, documents = Places(index.leaf_NR, index.router.n_leaves), len(index.leaf_NR)
    rng = np.random.default_rng(view.seed)
    for k in RESULTS:
        dev = Asked.of(view.encode(bench.collection.dev.vector_QM[:MOST_QUERIES]), view, index, k)
        test = Asked.of(view.encode(bench.final.vector_QM), view, index, k)
        calibration = Calibration(dev.floor_QK)
        for share in SHARES:
            floor = calibration.floor(RecallBeam(type="recall", target=share))
            recall_Q = (test.floor_QK >= floor).mean(axis=1)
            halves = [rng.permutation(len(recall_Q))[: len(recall_Q) // 2] for _ in range(HALVES)]
            kept = sum(recall_Q[half].mean() >= share for half in halves)
            even = int(np.quantile(dev.beam_QK, (dev.floor_QK >= floor).mean(), method="higher"))
            own, fixed = PromisedBeam(index.router, _finds(index), k, floor), _finds(index)
            visited, beside = (
                places.counts(places.probed(route_all(router, test.encoded, beam)[0].numpy()))[0].mean()
                for router, beam in ((own, index.router.n_leaves), (fixed, even))
            )
            yield [
                f"{bench.name}, seed {view.seed}, {calibration.queries:,} dev queries",
                f"{share:.0%} of the best {k}",
                f"{calibration.promised(floor):.4f}",
                f"{recall_Q.mean():.4f}",
                f"{kept} of {HALVES}",
                f"{visited / documents:.2%}",
                f"{beside / documents:.2%}, {(test.beam_QK <= even).mean():.4f}",
                f"{visited / beside:.2f}",
            ]


def main() -> None:
    """Print both tables."""
    parser = Options("A beam of its own for every query.", "quality", "seeds")
    parser.add_argument("--collections", nargs="+", default=list(COLLECTIONS))
    given = parser.parse_args()
    set_threads(THREADS)
    rows: list[list[str]] = []
    promised: list[list[str]] = []
    for name in given.collections:
        reached_rows, promised_rows = measure(name, given.seeds, given.workdir)
        rows += reached_rows
        promised += promised_rows
    head = ["", "of exact R@100", "fixed beam visits", "own beams visit", "ratio", "95% interval"]
    print("\n".join(table(head, rows)))
    head = ["", "target", "promised", "measured", "halves kept", "visits", "fixed beam visits, finds", "ratio"]
    print("\n".join(["", *table(head, promised)]))


if __name__ == "__main__":
    main()
