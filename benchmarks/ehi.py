"""EHI's ablations on SciFact: `make bench-ehi` (about 20 minutes on two quiet cores; what is done is kept).

The paper's questions, asked of a trained head on frozen all-MiniLM-L6-v2 vectors: each loss left out (its Figure 5c),
the number of leaves (5b), taller trees at equal leaf counts (Table 6), where hard negatives come from (Table 12), one
and two leaves a document (Figure 12), imbalance over epochs (Figure 7). Every row differs from the first in what it
names; every figure is a mean over seeds, of the test split read once a row, and nothing is chosen by it. Beside each
stands k-means IVF with as many lists on the very same trained vectors. Writes docs/ehi.md and its figures.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FormatStrFormatter, MaxNLocator, NullLocator

from benchmarks import cache, pages
from benchmarks.collection import Collection
from benchmarks.commands import Options, clock
from benchmarks.machine import set_threads
from benchmarks.quality.recall import Places, Questions, Relevance
from benchmarks.quality.systems import Leaves, columns, placed
from benchmarks.statistics import Curve, recall_at, sample
from benchmarks.tables import heading, line, mean, spread
from benchmarks.training import encode, train
from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import leaf_means, nearest, spherical_kmeans
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import new_answers
from rayhier.model.encoded import Encoded
from rayhier.model.router import route_all
from rayhier.model.spill import CANDIDATES, Spill
from rayhier.search.exact import exact
from rayhier.spec.router import EhiRouting
from rayhier.spec.train import EhiTraining
from rayhier.storage import files
from rayhier.train.loop import best_row

SHARES = (0.05, 0.1, 0.2)
MEASURES = ("R@10", "R@100")
DEPTH = 100


@dataclass(frozen=True)
class Row:
    """One configuration: what differs from the base."""

    name: str
    router: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    second: Spill | None = None
    """How each document gets a second leaf; None where it has one leaf."""


def loss(**weights: float) -> dict[str, Any]:
    """Training with other weights of the losses."""
    return {"loss": weights}


def negatives(source: str) -> dict[str, Any]:
    """Training with hard negatives from elsewhere."""
    return {"hard_negatives": {"source": source}}


BASE = Row("as shipped, 40 leaves")
TABLES: dict[str, list[Row]] = {
    "Figure 5c: a loss left out": [
        BASE,
        Row("no semantic loss (λ1 = 0)", train=loss(semantic=0)),
        Row("no indexing loss (λ2 = 0)", train=loss(indexing=0)),
        Row("no intra-leaf loss (λ3 = 0)", train=loss(intra_leaf=0)),
        Row("cold start (the paper's)", router={"warm_start": "none"}),
    ],
    "Figure 5b: leaves": [Row(f"{leaves} leaves", {"branching": leaves}) for leaves in (10, 20, 40, 80, 160)],
    "Table 6: 64 leaves, taller": [
        Row("(64, 1)", {"branching": 64, "height": 1}),
        Row("(8, 2)", {"branching": 8, "height": 2}),
        Row("(4, 3)", {"branching": 4, "height": 3}),
    ],
    "Table 12: hard negatives": [
        Row("from the query's leaves", train=negatives("query_leaves")),
        Row("from the positive's leaf", train=negatives("positive_leaf")),
        Row("exact neighbours (ANCE's)", train=negatives("exact")),
        Row("none", train=negatives("none")),
    ],
    "Figure 12: leaves a document": [
        Row("one"),
        Row("two, the next best", second="next_best"),
        Row("two, by SOAR", second="soar"),
    ],
}


HEAD = ("", "R@100 at 5%", "at 10%", "at 20%", "exact R@10", "new: R@100 at 10%", "new: exact R@10")
Results = dict[str, list[tuple[Row, list[dict[str, Any]]]]]
"""Table -> its rows, and what each measured with every seed."""


class Bench:
    """SciFact under the base encoder, and what the ablations measure on it."""

    def __init__(self, workdir: Path) -> None:
        self.collection = Collection("scifact", workdir)
        self.ids = pa.array(self.collection.documents.ids, pa.string())
        self.test = self.collection.queries("test")
        self.questions = Questions.of(self.test, self.collection.documents.ids)
        self.judge = Judge(self.test, MEASURES)
        new_Q = new_answers(self.test, self.collection.examples.answers(self.collection.documents.results))
        self.groups = {"": np.ones(len(new_Q), dtype=bool), " new": new_Q}
        self.results = workdir.absolute() / "results"

    def row(self, row: Row, seed: int) -> dict[str, Any]:
        """Measures of a row with one seed, made now or read from an earlier run."""
        router = EhiRouting.model_validate({"type": "ehi", "branching": 40, **row.router})
        training = EhiTraining.model_validate({"type": "ehi", **row.train})
        path = self.results / f"{cache.key(router.model_dump(), training.model_dump(), row.second, seed)}.json"
        if not path.is_file():
            files.write_json(path, self.measure(router, training, row.second, seed))
        found: dict[str, Any] = files.read_json(path)
        return found

    def measure(self, router: EhiRouting, training: EhiTraining, second: Spill | None, seed: int) -> dict[str, Any]:
        """Train, and read the test split once."""
        data = self.collection
        joint = data.joint(data.examples, router, training, seed)
        history = train(joint).history
        now, leaves = joint.snapshot(), joint.router.n_leaves
        document_NM, query_QM = now.document_NM, encode(joint.tower.module, self.test.vector_QM)
        count = min(CANDIDATES, leaves)
        routed_NC = route_all(joint.router, Encoded.of(document_NM), 1 if second is None else count)[0].numpy()
        means_LM = leaf_means(document_NM, routed_NC[:, 0], leaves)
        centroid_LM = spherical_kmeans(document_NM, leaves, seed)
        near_NC, order_QL = nearest(document_NM, centroid_LM, count)[0], nearest(query_QM, centroid_LM, leaves)[0]
        relevance = Relevance(self.questions, query_QM, document_NM)

        def leaves_of(leaf_NC: Ints, centroid_LM: Floats, probe: Callable[[int], Ints]) -> Leaves:
            places = Places(placed(document_NM, leaf_NC, centroid_LM, second), leaves)
            return Leaves(places, relevance, probe, lambda _: 0.0)

        best = best_row(history)
        found = self.judge.values(exact(query_QM, document_NM, self.ids, self.ids, DEPTH))
        return {
            "ehi": self.at_shares(leaves_of(routed_NC, means_LM, lambda beam: now.leaves(query_QM, beam))),
            "ivf": self.at_shares(leaves_of(near_NC, centroid_LM, lambda beam: order_QL[:, :beam])),
            "exact": {
                f"{measure}{group}": float(value_Q[own_Q].mean())
                for measure, value_Q in found.items()
                for group, own_Q in self.groups.items()
            },
            "imbalance": best["imbalance"],
            "empty": best["empty"],
            "over_epochs": [[row["epoch"], row["imbalance"], row["dev"]] for row in history],
        }

    def at_shares(self, system: Leaves) -> dict[str, dict[str, float | None]]:
        """R@100 of all queries and of those with new answers at the shares that all visit, interpolated.

        None where the smallest beam visits more.
        """
        curve = Curve.read(columns(system))
        visited_PQ = np.repeat(curve.visited_PQ.mean(axis=1, keepdims=True), len(curve.exact_Q), axis=1)
        found = {}
        for group, own_Q in self.groups.items():
            own = replace(curve, visited_PQ=visited_PQ).of(own_Q)
            values = recall_at(own, sample(len(own.exact_Q)), SHARES)[0].tolist()
            found[f"R@100{group}"] = {
                str(share): None if np.isnan(value) else value for share, value in zip(SHARES, values, strict=True)
            }
        return found


def recalls(results: Sequence[dict[str, Any]], system: str, share: float, group: str = "") -> list[float]:
    """R@100 of each seed at a share visited, NaN where it is not known; of a group of queries."""
    values = [result[system][f"R@100{group}"][str(share)] for result in results]
    return [float("nan") if value is None else value for value in values]


def main() -> None:
    """Measure every row, print the tables, write ehi.md and the figures."""
    parser = Options("EHI's ablations on SciFact.", "bench-ehi")
    parser.seeds()
    parser.docs()
    given = parser.parse_args()
    set_threads(1)
    seeds = range(given.seeds)
    bench = Bench(given.workdir)
    report = clock()
    found: Results = {}
    for title, rows in TABLES.items():
        found[title] = []
        for row in rows:
            found[title].append((row, [bench.row(row, seed) for seed in seeds]))
            report(f"{title}: {row.name}")
    plots = draw(found, given.docs / "images")
    print(pages.write(given.docs, "ehi.md", [*markdown(found, len(seeds)), "", *plots]))


def markdown(found: Results, seeds: int) -> list[str]:
    """One table, a stretch of it for each table or figure of the paper."""
    lines = [
        *pages.prose("ehi.md", seeds=seeds),
        "",
        *heading([*HEAD, "imbalance", "empty leaves"]),
    ]
    for title, rows in found.items():
        lines.append(f"| **{title}** {'| ' * (len(HEAD) + 1)}|")
        for row, results in rows:
            cells = [
                f"{spread(recalls(results, 'ehi', share))} ({mean(recalls(results, 'ivf', share))})" for share in SHARES
            ]
            cells.append(spread([r["exact"]["R@10"] for r in results]))
            cells.append(f"{mean(recalls(results, 'ehi', 0.1, ' new'))} ({mean(recalls(results, 'ivf', 0.1, ' new'))})")
            cells.append(mean([r["exact"]["R@10 new"] for r in results]))
            cells.append(spread([r["imbalance"] for r in results], 2))
            cells.append(f"{max(r['empty'] for r in results):.0f}")
            lines.append(line([row.name, *cells]))
    return lines


def draw(found: Results, images: Path) -> list[str]:
    """Save one figure a table of the paper; returns links to them."""
    fills: dict[str, Callable[[Axes], None]] = {title: partial(bars, rows=rows) for title, rows in found.items()}
    shown = [one for rows in found.values() for one in rows if one[0].name in EPOCHS]
    fills["Figure 7: imbalance over epochs"] = partial(epochs, rows=shown)
    links = []
    for title, fill in fills.items():
        path = images / f"ehi_{title.partition(':')[0].lower().replace(' ', '_')}.png"
        with pages.plot(path) as (axes,):
            axes.set_title(title)
            fill(axes)
        links.append(pages.link(title, path))
    return links


EPOCHS = (BASE.name, "no intra-leaf loss (λ3 = 0)", "cold start (the paper's)", "160 leaves", "(8, 2)")


def bars(axes: Axes, rows: list[tuple[Row, list[dict[str, Any]]]]) -> None:
    """R@100 at 10% visited of every row, ours and IVF's, with every seed."""
    for place, (_, results) in enumerate(rows):
        for offset, system, color in ((-0.2, "ehi", "C0"), (0.2, "ivf", "0.6")):
            values = recalls(results, system, 0.1)
            label = {"ehi": "EHI", "ivf": "k-means IVF, same vectors"}[system] if place == 0 else None
            axes.bar(place + offset, np.mean(values), 0.38, color=color, label=label)
            axes.plot([place + offset] * len(values), values, "k.", markersize=3)
    axes.set_xticks(range(len(rows)), [folded(row.name) for row, _ in rows], fontsize=7)
    for place, (_, results) in enumerate(rows):
        if np.isnan(recalls(results, "ehi", 0.1)).any():
            axes.text(place, 0.51, "some seed\nvisits more", fontsize=6, ha="center")
    axes.set_ylim(bottom=0.5)
    axes.set_ylabel("R@100 at 10% visited")
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=2)


def folded(name: str) -> str:
    """A row's name on two lines where it is long."""
    return name if len(name) < 16 else name.replace(", ", ",\n", 1).replace(" (", "\n(")


def epochs(axes: Axes, rows: list[tuple[Row, list[dict[str, Any]]]]) -> None:
    """Imbalance after each epoch, mean over seeds."""
    for row, results in rows:
        over = np.mean([result["over_epochs"] for result in results], axis=0)
        axes.plot(over[:, 0], over[:, 1], "-o", markersize=3, label=row.name)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator([1, 1.5, 2, 3, 5, 8]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel("imbalance (1 = even)")
    axes.legend(fontsize=8)


if __name__ == "__main__":
    main()
