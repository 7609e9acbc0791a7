"""Documents that come after training: `make bench-incremental`, the protocol of IncDSI and HCE."""

import copy
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import cache, leaf_maps
from benchmarks.collection import ROOT, Collection
from benchmarks.commands import Options
from benchmarks.machine import set_threads
from benchmarks.pages import plot
from benchmarks.quality.view import Index, View
from benchmarks.tables import UNKNOWN
from benchmarks.tables import table as markdown
from benchmarks.training import encode
from rayhier.arrays import Ints
from rayhier.cluster.kmeans import nearest
from rayhier.dataset.balance import balance
from rayhier.dataset.documents import Documents
from rayhier.dataset.queries import relevant
from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.index.stats import Stats
from rayhier.model.encoded import Encoded
from rayhier.model.router import route_all
from rayhier.search.lists import LeafLists
from rayhier.search.segment import read_segment
from rayhier.spec.train import ContrastTraining, HceTraining
from rayhier.storage.leaf_map import LeafMap
from rayhier.train.examples import Examples

NAME, SHARE = "oewn_examples", 0.1
STEPS = (10, 100, 1_000, 10_000)
VISITED, DEPTH = 0.05, 100
BATCH, SHARDS = 4096, 8
TRAININGS = {
    "contrast": ContrastTraining(type="contrast"),
    "hce": HceTraining(type="hce", objective="supervised"),
}
"""Trainings of the encoder, by name."""


@dataclass(frozen=True)
class Row:
    """One state of the index."""

    state: str
    added: int
    milliseconds: float
    """Time of adding a document in the last step, its encoding apart."""
    visited: float
    old: float
    new: float
    exact_old: float
    exact_new: float
    imbalance: float
    surprise: float
    """Nats that added documents are less probable in their leaf."""


class Growth:
    """The collection in two parts, a model of the first, and a leaf map that grows."""

    def __init__(self, name: str, quality: Path, workdir: Path, seed: int, encoder: str) -> None:
        self.collection = Collection(name, quality / name)
        self.spec = self.collection.spec = self.collection.spec.model_copy(update={"train": TRAININGS[encoder]})
        documents = self.collection.documents
        self.ids, n = np.array(documents.ids, dtype=object), len(documents.ids)
        order = np.random.default_rng([seed, 7]).permutation(n)
        self.new, self.old = order[: round(SHARE * n)], np.sort(order[round(SHARE * n) :])
        first, shipped = self._first(), self.spec.model_dump(mode="json", include={"encoder", "train"})
        self.view = View(first, first.examples, seed, workdir / cache.key(name, shipped, seed))
        head, queries = self.view.encoder.tower.module, self.collection.queries("test")
        self.vector_NM, self.query_QM = encode(head, documents.vector_NM), encode(head, queries.vector_QM)
        self.index = self.view.index(self.spec)
        row_of = {name: row for row, name in enumerate(documents.ids)}
        self.answer_Q = np.array([row_of[relevant(queries.grades[one])[0]] for one in queries.ids])
        """The row of each query's first answer."""
        self.root = workdir / f"map-{name}-{encoder}-{seed}"

    def _first(self) -> Collection:
        """The collection without what comes later."""
        data, examples = self._of(self.collection, self.old), self.collection.examples
        place_N = np.full(len(self.ids), -1)
        place_N[self.old] = np.arange(len(self.old))
        there = place_N[examples.pair_P2[:, 1]] >= 0
        kept, query_P = np.unique(examples.pair_P2[there, 0], return_inverse=True)
        pair_P2 = np.stack([query_P, place_N[examples.pair_P2[there, 1]]], axis=1)
        data.examples = Examples(examples.query_QM[kept], data.documents.vector_NM, pair_P2)
        data.dev = data.dev.about(set(data.documents.ids))
        return data

    def _of(self, collection: Collection, rows: Ints) -> Collection:
        """A collection with other documents, some of all there are."""
        data = copy.copy(collection)
        data.documents = Documents(self.ids[rows].tolist(), self.collection.documents.vector_NM[rows])
        return data

    def documents(self, rows: Ints) -> pa.Table:
        """Some documents as they are added."""
        ids = self.ids[rows].tolist()
        return leaf_maps.texts(ids, ids)

    def build(self, index: Index, rows: Ints) -> LeafMap:
        """A leaf map of some documents, written anew."""
        shutil.rmtree(self.root, ignore_errors=True)
        return leaf_maps.write(self.root, index.router, self.spec, self.documents(rows), self.vector_NM[rows], SHARDS)

    def measure(self, state: str, there: LeafMap, index: Index, rows: Ints, beam: int, milliseconds: float) -> Row:
        """Recall of old and of new queries, and how the leaves are."""
        segment, kept = read_segment(there, there.manifest.shards)
        leaves_QB = route_all(index.router, Encoded.of(self.query_QM), beam)[0].numpy()
        lists = LeafLists([segment.lists])
        found = lists.scan(self.query_QM, leaves_QB, DEPTH)[1]
        names = np.array(kept["doc_id"].to_pylist(), dtype=object)
        answers = zip(self.ids[self.answer_Q], found, strict=True)
        hit_Q = np.array([answer in set(names[own[own >= 0]]) for answer, own in answers])
        exact = rows[nearest(self.query_QM, np.ascontiguousarray(self.vector_NM[rows]), DEPTH)[0]]
        exact_Q = (exact == self.answer_Q[:, None]).any(axis=1)
        old_Q, new_Q = np.isin(self.answer_Q, self.old), np.isin(self.answer_Q, np.setdiff1d(rows, self.old))
        stats = Stats.of(there.manifest)
        return Row(
            state,
            len(rows) - len(self.old),
            milliseconds,
            float(lists.count(leaves_QB)[0].mean()) / len(rows),
            mean(hit_Q[old_Q]),
            mean(hit_Q[new_Q]),
            mean(exact_Q[old_Q]),
            mean(exact_Q[new_Q]),
            balance(np.array(there.manifest.counts))["imbalance"],
            0.0 if stats.added_log_prob is None else stats.log_prob - stats.added_log_prob,
        )

    def grow(self) -> list[Row]:
        """Add documents step by step, as many as there are; a row for every state."""
        there, rows, assign = self.build(self.index, self.old), self.old, Assigner(self.index.router, self.spec)
        manifest = there.manifest
        beam = max(1, round(VISITED * len(manifest.counts) * manifest.documents / manifest.rows))
        """Leaves that hold about so many of the documents."""
        found = [self.measure("trained on", there, self.index, rows, beam, 0.0)]
        for step in (step for step in STEPS if step <= len(self.new)):
            fresh = self.new[len(rows) - len(self.old) : step]
            parts = [fresh[begin : begin + BATCH] for begin in range(0, len(fresh), BATCH)]
            batches = ((self.documents(part), Encoded.of(self.vector_NM[part])) for part in parts)
            began = time.perf_counter()
            there = change.add(self.root, assign, batches, self.spec.index.max_leaf_factor)
            spent = 1e3 * (time.perf_counter() - began) / len(fresh)
            rows = np.concatenate([rows, fresh])
            found.append(self.measure("and added", there, self.index, rows, beam, spent))
        # Leaves and router of all these documents, the first ones in front, under the same encoder.
        data, first = self._of(self.view.collection, rows), self.view.examples
        data.examples = Examples(first.query_QM, data.documents.vector_NM, first.pair_P2)
        index = self.view.over(data).index(self.spec)
        return [*found, self.measure("made anew", self.build(index, rows), index, rows, beam, 0.0)]


def mean(values: np.ndarray) -> float:
    """The mean; NaN where there is no value."""
    return float(values.mean()) if len(values) else float("nan")


def table(rows: Sequence[Row]) -> str:
    """The page's table."""
    head = ["index", "documents added", "ms a document", "visited", "R@100, old queries", "of exact"]
    head += ["R@100, new queries", "of exact", "imbalance", "nats"]
    lines = []
    for row in rows:
        new = [UNKNOWN, UNKNOWN] if np.isnan(row.new) else [f"{row.new:.3f}", f"{row.new / row.exact_new:.3f}"]
        cells = [row.state, f"{row.added:,}", f"{row.milliseconds:.2f}", f"{row.visited:.1%}"]
        cells += [f"{row.old:.3f}", f"{row.old / row.exact_old:.3f}", *new]
        lines.append([*cells, f"{row.imbalance:.2f}", f"{row.surprise:.2f}"])
    return "\n".join(markdown(head, lines))


def draw(grown: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Recall, as a part of an exact search's, against documents added; a panel an encoder."""
    with plot(path, len(grown), (5 * len(grown), 4)) as panels:
        for axes, (encoder, rows) in zip(panels, grown.items(), strict=True):
            shown = [row for row in rows if row.added and row.state != "made anew"]
            added, last = [row.added for row in shown], rows[-1]
            for kind, name, marker in (("old", "old", "o"), ("new", "added", "s")):
                values = [getattr(row, kind) / getattr(row, f"exact_{kind}") for row in [*shown, last]]
                (line,) = axes.plot(added, values[:-1], marker=marker, label=f"queries for {name} documents")
                color = line.get_color()
                axes.scatter(last.added, values[-1], marker="*", s=120, zorder=3, color=color, edgecolor="black")
            axes.set(title=f"encoder: {encoder}", xscale="log", xlabel="documents added after training")
            axes.set_ylim(0.8, 1.01)
        panels[0].set_ylabel("R@100, of an exact search's")
        panels[-1].legend(title="stars: leaves and router made anew", loc="lower right")


def main() -> None:
    """Measure every seed; the table shows means."""
    parser = Options("Documents that come after training.", "incremental", "seeds", "quality")
    parser.add_argument("--collection", default=NAME)
    parser.add_argument("--encoders", nargs="+", choices=list(TRAININGS), default=list(TRAININGS))
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "images" / "incremental.png")
    given = parser.parse_args()
    set_threads(2)
    grown: dict[str, list[Row]] = {}
    for encoder in given.encoders:
        found = [
            Growth(given.collection, given.quality, given.workdir, seed, encoder).grow() for seed in range(given.seeds)
        ]
        grown[encoder] = []
        for states in zip(*found, strict=True):  # means over seeds
            (state, *_), (added, *_), *values = zip(*map(astuple, states), strict=True)
            grown[encoder].append(Row(state, added, *np.mean(values, axis=1).tolist()))
        print(f"{given.collection}, encoder {encoder}, {given.seeds} seeds, {VISITED:.0%} visited at first\n")
        print(table(grown[encoder]), "\n", flush=True)
    draw(grown, given.figure)


if __name__ == "__main__":
    main()
