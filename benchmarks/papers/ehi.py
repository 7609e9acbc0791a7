"""Print EHI's table on SciFact: encoder and tree trained together, compared with k-means lists on the trained vectors.

The table is that of results/ehi.md. R@100 is the recall when queries visit 5, 10 and 20% of the documents on average.
The recall of as many k-means lists is in brackets. Imbalance is L·Σn²/(Σn)², which is 1 if leaves are even. The test
split is read once per row. This takes an hour on one core. Finished rows are kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from benchmarks import cache
from benchmarks.collection import Collection
from benchmarks.commands import Options, clock
from benchmarks.machine import set_threads
from benchmarks.quality.systems import columns, in_leaves, placed
from benchmarks.quality.view import Places, Questions, Relevance
from benchmarks.statistics import Curve, recall_at
from benchmarks.tables import heading, line, mean, spread
from benchmarks.training import encode, train
from rayhier.arrays import Bools, Floats, Ints, Values
from rayhier.cluster.kmeans import leaf_means, spherical_kmeans
from rayhier.cluster.neighbours import nearest
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import load_answers, new_answers
from rayhier.model.encoded import Encoded
from rayhier.model.router import opened
from rayhier.model.spill import CANDIDATES
from rayhier.search.segment.exact import exact
from rayhier.spec.router import EhiRouting
from rayhier.spec.train import EhiTraining
from rayhier.train.loop import best_row

SHARES = (0.05, 0.1, 0.2)
"""Shares of the documents, all visited, at which R@100 is read."""
TOLD = 1
"""Place of the share at which queries with new answers are told."""
DEPTH = 100
HEAD = ["", "R@100 at 5%", "at 10%", "at 20%", "exact R@10", "new: R@100 at 10%", "new: exact R@10"]
HEAD += ["imbalance", "empty leaves", "epochs kept"]


@dataclass(frozen=True)
class Row:
    """One configuration: what differs from the shipped settings with 40 leaves."""

    name: str
    router: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    two: bool = False
    """True: each document has a second leaf."""
    last: bool = False
    """True: the weights of the last epoch are measured, not those of the best on dev."""

    @property
    def routing(self) -> EhiRouting:
        """The `router` of a spec."""
        return EhiRouting.model_validate({"type": "ehi", "branching": 40, **self.router})

    @property
    def training(self) -> EhiTraining:
        """The `train` of a spec."""
        return EhiTraining.model_validate({"type": "ehi", **self.train})


READ = yaml.safe_load(Path(__file__).with_name("ehi.yaml").read_text())
TABLES = {title: [Row(name, **settings) for name, settings in rows.items()] for title, rows in READ.items()}
"""Table or figure of the paper -> its rows."""


class Bench:
    """SciFact under the base encoder, and what rows measure on it; what is measured is kept in `workdir`."""

    def __init__(self, workdir: Path) -> None:
        self.collection = Collection("scifact", workdir)
        self.ids = pa.array(self.collection.documents.ids, pa.string())
        self.test = self.collection.queries("test")
        self.questions = Questions.of(self.test, self.collection.documents.ids)
        self.judge = Judge(self.test, ("R@10",))
        self.new_Q = new_answers(self.test, load_answers(self.collection.corpus, "train"))
        """Queries whose answers answer no train query."""
        self.results = workdir.absolute() / "results"

    def values(self, row: Row, seed: int) -> dict[str, Values]:
        """What a row measures with one seed, now or in an earlier run."""
        key = cache.key(row.routing.model_dump(), row.training.model_dump(), row.two, row.last, seed)
        return cache.kept(self.results / f"{key}.npz", lambda: self.measure(row, seed))

    def measure(self, row: Row, seed: int) -> dict[str, Values]:
        """Train, and read the test split once.

        Returns R@100 [s, q] of every query at shares of the documents, by `ehi` and by `ivf`; exact R@10 [q]; the
        imbalance, the number of empty leaves, and the epoch that was kept.
        """
        joint = self.collection.joint(self.collection.examples, row.routing, row.training, seed)
        history, now = train(joint, last=row.last).history, joint.snapshot()
        document_NM, leaves = now.document_NM, now.router.n_leaves
        query_QM, count = encode(joint.tower.module, self.test.vector_QM), min(CANDIDATES, leaves)
        routed_NC = opened(now.router).choose(Encoded(document_NM), count if row.two else 1)
        means_LM = leaf_means(document_NM, routed_NC[:, 0], leaves)
        centroid_LM = spherical_kmeans(document_NM, leaves, seed)
        near_NC, order_QL = nearest(document_NM, centroid_LM, count)[0], nearest(query_QM, centroid_LM, leaves)[0]
        relevance = Relevance(self.questions, query_QM, document_NM)

        def recalls(leaf_NC: Ints, centroid_LM: Floats, probe: Callable[[int], Ints]) -> Values:
            places = Places(placed(document_NM, leaf_NC, centroid_LM, two=row.two), leaves)
            return at_shares(Curve.read(columns(in_leaves(places, relevance, probe, lambda _: 0.0))))

        kept = history[-1] if row.last else best_row(history)
        return {
            "ehi": recalls(routed_NC, means_LM, lambda beam: now.leaves(query_QM, beam)),
            "ivf": recalls(near_NC, centroid_LM, lambda beam: order_QL[:, :beam]),
            **self.judge.values(exact(query_QM, document_NM, self.ids, self.ids, DEPTH)),
            **{name: np.array(kept[name]) for name in ("imbalance", "empty", "epoch")},
        }


def at_shares(curve: Curve) -> Values:
    """R@100 [s, q] of every query at the shares that all visit on average, interpolated.

    NaN where the smallest beam visits more.
    """
    visited_PQ = np.repeat(curve.visited_PQ.mean(axis=1, keepdims=True), len(curve.exact_Q), axis=1)
    return recall_at(replace(curve, visited_PQ=visited_PQ), SHARES, weight_RQ=np.eye(len(curve.exact_Q))).T


def cells(seeds: Sequence[Mapping[str, Values]], new_Q: Bools) -> list[str]:
    """A row of the table: means of seeds, with half their range."""

    def recall(system: str, share: int, in_Q: Bools) -> list[float]:
        return [float(seed[system][share][in_Q].mean()) for seed in seeds]

    every_Q = np.ones_like(new_Q)
    told = [f"{spread(recall('ehi', at, every_Q))} ({mean(recall('ivf', at, every_Q))})" for at in range(len(SHARES))]
    told.append(spread([float(seed["R@10"].mean()) for seed in seeds]))
    told.append(f"{mean(recall('ehi', TOLD, new_Q))} ({mean(recall('ivf', TOLD, new_Q))})")
    told.append(mean([float(seed["R@10"][new_Q].mean()) for seed in seeds]))
    told += [
        spread([float(seed["imbalance"]) for seed in seeds], 2),
        f"{max(float(seed['empty']) for seed in seeds):.0f}",
    ]
    return [*told, ", ".join(f"{float(seed['epoch']):.0f}" for seed in seeds)]


def main() -> None:
    """Measure every row, and print the table: a stretch of it for each table or figure of the paper."""
    options = Options("Measure EHI on SciFact.", "papers/ehi", "seeds")
    options.add_argument("--only", default="", help="measure only tables whose titles contain this text")
    given = options.parse_args()
    set_threads(1)
    bench, report, lines = Bench(given.workdir), clock(), heading(HEAD)
    for title, rows in {title: rows for title, rows in TABLES.items() if given.only in title}.items():
        lines.append(f"| **{title}** {'| ' * (len(HEAD) - 1)}|")
        for row in rows:
            seeds = [bench.values(row, seed) for seed in range(given.seeds)]
            lines.append(line([row.name, *cells(seeds, bench.new_Q)]))
            report(f"{title}: {row.name}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
