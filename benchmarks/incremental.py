"""Documents that come after training: `make bench-incremental`, the protocol of IncDSI and HCE.

Encoder, leaves and router learn from nine tenths of oewn_examples. Then 10, 100, 1,000 and 10,000 documents that nobody
has seen are added, as `python -m rayhier.index add` does it but for encoding, and after each step the test queries are
asked: those whose answer was there from the start, and those whose answer was added. Beside them an exact search with
the same encoder, and at the end the same index with its leaves and router made anew of all documents.
"""

import argparse
import copy
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import matplotlib as mpl
import numpy as np
import pyarrow as pa
import torch
from matplotlib import pyplot as plt

from quality_collection import Data, Taught, View, encoded
from rayhier.dataset.balance import balance
from rayhier.dataset.documents import Documents
from rayhier.dataset.queries import load_queries
from rayhier.dataset.queries import Queries
from rayhier.index import change
from rayhier.index.assign import Assigner, leaf_counts
from rayhier.index.shards import ranges, write_shard
from rayhier.index.stats import Stats
from rayhier.model.router import route_all
from rayhier.arrays import Ints
from rayhier.search.loaded import LoadedMap
from rayhier.storage import leaf_map, schemas
from rayhier.arrays import Floats
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.train.examples import Examples

ROOT = Path(__file__).parents[1]
NAME, SHARE = "oewn_examples", 0.1
STEPS = (10, 100, 1_000, 10_000)
VISITED, DEPTH = 0.05, 100
BATCH = 4096


@dataclass(frozen=True)
class Row:
    """One state of the index."""

    state: str
    added: int
    milliseconds: float
    """A document, of the last step; adding alone, its encoding apart."""
    visited: float
    old: float
    new: float
    exact_old: float
    exact_new: float
    imbalance: float
    surprise: float
    """Nats that added documents are less probable in their leaf."""


class Grown:
    """The collection in two parts, a model of the first, and a leaf map that grows."""

    def __init__(self, workdir: Path, seed: int) -> None:
        self.data = Data(NAME, ROOT / "runs" / "quality", "test")
        self.spec = self.data.spec
        n = len(self.data.documents.ids)
        order = np.random.default_rng([seed, 7]).permutation(n)
        self.new, self.old = order[: round(SHARE * n)], np.sort(order[round(SHARE * n) :])
        first = self._first()
        self.view = View(first, first.examples, seed, workdir / f"seed-{seed}")
        head = self.view.contrast.tower.module
        self.vector_NM = encoded(head, self.data.documents.vector_NM)
        self.taught = self.view.taught(self.spec)
        queries = load_queries(self.data.corpus, self.data.vectors, "test")
        self.query_QM, self.answer_Q = encoded(head, queries.vector_QM), self._answers(queries)
        self.root = workdir / f"map-{seed}"

    def _first(self) -> Data:
        """The collection without what comes later."""
        data, documents = copy.copy(self.data), self.data.documents
        data.documents = Documents([documents.ids[row] for row in self.old], documents.vector_NM[self.old])
        place_N = np.full(len(documents.ids), -1)
        place_N[self.old] = np.arange(len(self.old))
        examples = self.data.examples
        there = place_N[examples.pair_P2[:, 1]] >= 0
        asked, query_P = np.unique(examples.pair_P2[there, 0], return_inverse=True)
        pair_P2 = np.stack([query_P, place_N[examples.pair_P2[there, 1]]], axis=1)
        data.examples = Examples(examples.query_QM[asked], data.documents.vector_NM, pair_P2)
        known = set(data.documents.ids)
        answered = [row for row, one in enumerate(data.dev.ids) if known & data.dev.grades[one].keys()]
        ids = [data.dev.ids[row] for row in answered]
        grades = {one: {name: grade for name, grade in data.dev.grades[one].items() if name in known} for one in ids}
        data.dev = Queries(ids, data.dev.vector_QM[answered], grades)
        return data

    def _answers(self, queries: Queries) -> Ints:
        """The row of each query's first answer."""
        row_of = {name: row for row, name in enumerate(self.data.documents.ids)}
        return np.array([row_of[next(name for name, g in queries.grades[one].items() if g > 0)] for one in queries.ids])

    def documents(self, rows: Ints) -> tuple[pa.Table, Floats]:
        """Some documents as they are added."""
        ids = [self.data.documents.ids[row] for row in rows]
        return pa.table([ids, [""] * len(ids), ids], schema=schemas.DOCUMENTS), self.vector_NM[rows]

    def build(self, taught: Taught, rows: Ints) -> LeafMap:
        """A leaf map of some documents, written anew."""
        shutil.rmtree(self.root, ignore_errors=True)
        assign, leaves = Assigner(taught.router, self.spec), taught.router.n_leaves
        table = assign(*self.documents(rows))
        counts = leaf_counts(table["leaf"].to_numpy(), leaves)
        shards = []
        for number, (first, last) in enumerate(ranges(counts, 8)):
            inside = pa.compute.and_(
                pa.compute.greater_equal(table["leaf"], first), pa.compute.less(table["leaf"], last)
            )
            name = f"data/shard-{number:05d}.parquet"
            shards.append(write_shard(self.root, name, [table.filter(inside)], range(first, last), counts))
        manifest = Manifest(
            version=1,
            parent=None,
            model="incremental",
            dimension=self.vector_NM.shape[1],
            metric="inner_product",
            vectors=self.spec.index.vectors,
            documents=len(rows),
            leaves_per_document=2,
            counts=counts,
            shards=shards,
        )
        leaf_map.publish(self.root, manifest)
        return LeafMap.open(self.root)

    def measure(self, state: str, there: LeafMap, taught: Taught, rows: Ints, beam: int, milliseconds: float) -> Row:
        """Recall of old and of new queries, and how the leaves are."""
        loaded = LoadedMap.read(there, texts=False)
        leaves_QB = route_all(taught.router, torch.from_numpy(self.query_QM), beam)[0].numpy()
        found = loaded.lists.search(self.query_QM, leaves_QB, DEPTH)[1]
        names = np.array(loaded.table["doc_id"].to_pylist(), dtype=object)
        answers = np.array([self.data.documents.ids[row] for row in self.answer_Q], dtype=object)
        hit_Q = np.array([answer in set(names[own[own >= 0]]) for answer, own in zip(answers, found, strict=True)])
        index = faiss.IndexFlatIP(self.vector_NM.shape[1])
        index.add(np.ascontiguousarray(self.vector_NM[rows]))
        exact = rows[index.search(self.query_QM, DEPTH)[1]]
        exact_Q = (exact == self.answer_Q[:, None]).any(axis=1)
        old_Q, new_Q = np.isin(self.answer_Q, self.old), np.isin(self.answer_Q, np.setdiff1d(rows, self.old))
        stats = Stats.of(there.manifest)
        gap = 0.0 if stats.added_log_prob is None else stats.log_prob - stats.added_log_prob
        return Row(
            state,
            len(rows) - len(self.old),
            milliseconds,
            float(loaded.lists.visited(leaves_QB).mean()) / len(rows),
            *(mean(values[asked]) for values in (hit_Q, exact_Q) for asked in (old_Q, new_Q)),
            balance(np.array(there.manifest.counts))["imbalance"],
            gap,
        )

    def beam(self, there: LeafMap) -> int:
        """Leaves that hold about so many of the documents."""
        return max(1, round(VISITED * len(there.manifest.counts) * there.manifest.documents / there.manifest.rows))

    def grow(self) -> list[Row]:
        """Every step."""
        there, rows = self.build(self.taught, self.old), self.old
        beam, assign = self.beam(there), Assigner(self.taught.router, self.spec)
        found = [self.measure("trained on", there, self.taught, rows, beam, 0.0)]
        for step in STEPS:
            fresh = self.new[len(rows) - len(self.old) : step]
            batches = (self.documents(fresh[begin : begin + BATCH]) for begin in range(0, len(fresh), BATCH))
            began = time.perf_counter()
            there = change.add(self.root, assign, batches, self.spec.index.max_leaf_factor)
            spent = 1e3 * (time.perf_counter() - began) / len(fresh)
            rows = np.concatenate([rows, fresh])
            found.append(self.measure("and added", there, self.taught, rows, beam, spent))
        return [*found, self._anew(rows, beam)]

    def _anew(self, rows: Ints, beam: int) -> Row:
        """Leaves and router of all these documents, the first ones in front, under the same encoder."""
        data, first = copy.copy(self.view.data), self.view.examples
        base_NM = self.data.documents.vector_NM[rows]
        data.documents = Documents([self.data.documents.ids[row] for row in rows], base_NM)
        data.examples = Examples(first.query_QM, base_NM, first.pair_P2)
        taught = View(data, data.examples, self.view.seed, self.view.folder).taught(self.spec)
        return self.measure("made anew", self.build(taught, rows), taught, rows, beam, 0.0)


def mean(values: np.ndarray) -> float:
    """NaN where there is none."""
    return float(values.mean()) if len(values) else float("nan")


def table(rows: Sequence[Row]) -> str:
    """As the page has it."""
    head = ["index", "documents added", "ms a document", "visited", "R@100, old queries", "of exact"]
    head += ["R@100, new queries", "of exact", "imbalance", "nats"]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for row in rows:
        new = ("-", "-") if np.isnan(row.new) else (f"{row.new:.3f}", f"{row.new / row.exact_new:.3f}")
        lines.append(
            f"| {row.state} | {row.added:,} | {row.milliseconds:.2f} | {row.visited:.1%} | {row.old:.3f} | "
            f"{row.old / row.exact_old:.3f} | {new[0]} | {new[1]} | {row.imbalance:.2f} | {row.surprise:.2f} |"
        )
    return "\n".join(lines)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Recall, as a part of an exact search's, against documents added."""
    mpl.use("Agg")
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    grown = [row for row in rows if row.added and row.state != "made anew"]
    added = [row.added for row in grown]
    axes.plot(added, [row.old / row.exact_old for row in grown], marker="o", label="queries for old documents")
    axes.plot(added, [row.new / row.exact_new for row in grown], marker="s", label="queries for added documents")
    last = rows[-1]
    axes.scatter([last.added] * 2, [last.old / last.exact_old, last.new / last.exact_new], marker="*", s=120, zorder=3)
    axes.set(
        xscale="log", xlabel="documents added after training", ylabel="R@100, of an exact search's", ylim=(0.8, 1.01)
    )
    axes.legend(title="stars: leaves and router made anew", loc="lower right")
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> int:
    """Every seed; the table shows means."""
    parser = argparse.ArgumentParser(description="Documents that come after training.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workdir", type=Path, default=ROOT / "runs" / "incremental")
    given = parser.parse_args()
    torch.set_num_threads(2)
    faiss.omp_set_num_threads(2)
    found = [Grown(given.workdir.absolute(), seed).grow() for seed in range(given.seeds)]
    rows = [over_seeds(same) for same in zip(*found, strict=True)]
    print(f"{NAME}, {given.seeds} seeds, {VISITED:.0%} visited at first\n")
    print(table(rows))
    draw(rows, ROOT / "docs" / "images" / "incremental.png")
    return 0


def over_seeds(rows: Sequence[Row]) -> Row:
    """Means of what was measured."""
    values: list[Any] = [getattr(rows[0], name) for name in ("state", "added")]
    names = [name for name in rows[0].__dataclass_fields__ if name not in ("state", "added")]
    return Row(*values, *(float(np.mean([getattr(row, name) for row in rows])) for name in names))


if __name__ == "__main__":
    sys.exit(main())
