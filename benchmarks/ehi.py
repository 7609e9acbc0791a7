"""EHI's ablations on SciFact: `make bench-ehi` (about 20 minutes on two quiet cores; what is done is kept).

Every row differs from the first in what it names (benchmarks/ehi.md has the questions); beside each stands k-means IVF
with as many lists on the very same trained vectors. Writes docs/ehi.md and its figures.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FormatStrFormatter, MaxNLocator, NullLocator

from benchmarks import cache, pages
from benchmarks.collection import Collection
from benchmarks.commands import Options, clock
from benchmarks.machine import set_threads
from benchmarks.quality.systems import columns, in_leaves, placed
from benchmarks.quality.view import Places, Questions, Relevance
from benchmarks.statistics import Curve, recall_at
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


READ = yaml.safe_load(Path(__file__).with_name("ehi.yaml").read_text())
TABLES = {title: [Row(name, **own) for name, own in rows.items()] for title, rows in READ.items()}
HEAD = ["", "R@100 at 5%", "at 10%", "at 20%", "exact R@10", "new: R@100 at 10%", "new: exact R@10"]
HEAD += ["imbalance", "empty leaves"]
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
        joint = self.collection.joint(self.collection.examples, router, training, seed)
        history = train(joint).history
        now, leaves = joint.snapshot(), joint.router.n_leaves
        document_NM, query_QM = now.document_NM, encode(joint.tower.module, self.test.vector_QM)
        count = min(CANDIDATES, leaves)
        routed_NC = route_all(joint.router, Encoded.of(document_NM), 1 if second is None else count)[0].numpy()
        means_LM = leaf_means(document_NM, routed_NC[:, 0], leaves)
        centroid_LM = spherical_kmeans(document_NM, leaves, seed)
        near_NC, order_QL = nearest(document_NM, centroid_LM, count)[0], nearest(query_QM, centroid_LM, leaves)[0]
        relevance = Relevance(self.questions, query_QM, document_NM)

        def at_shares(leaf_NC: Ints, centroid_LM: Floats, probe: Callable[[int], Ints]) -> dict[str, Any]:
            places = Places(placed(document_NM, leaf_NC, centroid_LM, second), leaves)
            return self.at_shares(Curve.read(columns(in_leaves(places, relevance, probe, lambda _: 0.0))))

        best = best_row(history)
        found = self.judge.values(exact(query_QM, document_NM, self.ids, self.ids, DEPTH))
        return {
            "ehi": at_shares(routed_NC, means_LM, lambda beam: now.leaves(query_QM, beam)),
            "ivf": at_shares(near_NC, centroid_LM, lambda beam: order_QL[:, :beam]),
            "exact": {
                f"{measure}{group}": float(value_Q[own_Q].mean())
                for measure, value_Q in found.items()
                for group, own_Q in self.groups.items()
            },
            "imbalance": best["imbalance"],
            "empty": best["empty"],
            "over_epochs": [[row["epoch"], row["imbalance"], row["dev"]] for row in history],
        }

    def at_shares(self, curve: Curve) -> dict[str, dict[str, float | None]]:
        """R@100 of all queries and of those with new answers at the shares that all visit, interpolated.

        None where the smallest beam visits more.
        """
        visited_PQ = np.repeat(curve.visited_PQ.mean(axis=1, keepdims=True), len(curve.exact_Q), axis=1)
        found = {}
        for group, own_Q in self.groups.items():
            values = recall_at(replace(curve, visited_PQ=visited_PQ).of(own_Q), SHARES)[0].tolist()
            known = [None if np.isnan(value) else value for value in values]
            found[f"R@100{group}"] = dict(zip(map(str, SHARES), known, strict=True))
        return found


def recalls(results: Sequence[dict[str, Any]], system: str, share: float, group: str = "") -> list[float]:
    """R@100 of each seed at a share visited, NaN where it is not known; of a group of queries."""
    values = [result[system][f"R@100{group}"][str(share)] for result in results]
    return [float("nan") if value is None else value for value in values]


def main() -> None:
    """Measure every row, print the tables, write ehi.md and the figures."""
    given = Options("EHI's ablations on SciFact.", "bench-ehi", "seeds", "docs").parse_args()
    set_threads(1)
    bench, report = Bench(given.workdir), clock()
    found: Results = {}
    for title, rows in TABLES.items():
        found[title] = []
        for row in rows:
            found[title].append((row, [bench.row(row, seed) for seed in range(given.seeds)]))
            report(f"{title}: {row.name}")
    plots = draw(found, given.docs / "images")
    print(pages.write(given.docs, "ehi.md", [*markdown(found, given.seeds), "", *plots]))


def markdown(found: Results, seeds: int) -> list[str]:
    """One table, a stretch of it for each table or figure of the paper."""
    lines = [*pages.prose("ehi.md", seeds=seeds), "", *heading(HEAD)]
    for title, rows in found.items():
        lines.append(f"| **{title}** {'| ' * (len(HEAD) - 1)}|")
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


EPOCHS = ("as shipped, 40 leaves", "no intra-leaf loss (λ3 = 0)", "cold start (the paper's)", "160 leaves", "(8, 2)")


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


def bars(axes: Axes, rows: list[tuple[Row, list[dict[str, Any]]]]) -> None:
    """R@100 at 10% visited of every row, ours and IVF's, with every seed."""
    names = []
    for place, (row, results) in enumerate(rows):
        long = len(row.name) >= 16
        names.append(row.name.replace(", ", ",\n", 1).replace(" (", "\n(") if long else row.name)
        for offset, system, color in ((-0.2, "ehi", "C0"), (0.2, "ivf", "0.6")):
            values = recalls(results, system, 0.1)
            label = {"ehi": "EHI", "ivf": "k-means IVF, same vectors"}[system] if place == 0 else None
            axes.bar(place + offset, np.mean(values), 0.38, color=color, label=label)
            axes.plot([place + offset] * len(values), values, "k.", markersize=3)
        if np.isnan(recalls(results, "ehi", 0.1)).any():
            axes.text(place, 0.51, "some seed\nvisits more", fontsize=6, ha="center")
    axes.set_xticks(range(len(rows)), names, fontsize=7)
    axes.set_ylim(bottom=0.5)
    axes.set_ylabel("R@100 at 10% visited")
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=2)


def epochs(axes: Axes, rows: list[tuple[Row, list[dict[str, Any]]]]) -> None:
    """Imbalance after each epoch, mean over seeds."""
    over = {row.name: np.mean([result["over_epochs"] for result in results], axis=0) for row, results in rows}
    named = {name: (own[:, 0], own[:, 1]) for name, own in over.items()}
    pages.curves(axes, named, yscale="log", xlabel="epoch", ylabel="imbalance (1 = even)")
    axes.yaxis.set_major_locator(FixedLocator([1, 1.5, 2, 3, 5, 8]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


if __name__ == "__main__":
    main()
