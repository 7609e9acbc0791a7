"""Streams of changes that need compaction, maintenance, training, or nothing: `python -m benchmarks.drift`.

An index of 8,000 documents of a collection, with its shipped leaves, gets each stream. The table shows the numbers by
which `rayhier index stats` advises, and what they are to predict: documents visited for 95% of the exact best ten, over
those of an index made anew of the same documents, and the share of the exact best that is found by the smallest beam
that found 95% before the stream; for all queries, and for those whose best document is new.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import leaf_maps
from benchmarks.collection import Collection
from benchmarks.commands import Options, clock
from benchmarks.tables import table
from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import nearest, spherical_kmeans
from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.index.stats import Stats
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import route_all
from rayhier.search.lists import LeafLists
from rayhier.search.segment import read_segment

NAME, OTHERS = "oewn_examples", ("acl_title2abs", "scifact")
BASE, BATCH, SHARDS, QUERIES, FEWEST, K, GOAL, TOPICS = 8_000, 2_000, 4, 1_000, 30, 10, 0.95, 10
BEAMS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]


@dataclass(frozen=True)
class Stream:
    """Documents of the first version, those that are added to it, those that are deleted, and queries, as vectors."""

    name: str
    base_NM: Floats
    added_NM: Floats
    deleted: Ints
    """Numbers of deleted documents, of the base and then of the added ones."""
    query_QM: Floats


def streams(collections: Sequence[Collection]) -> Iterator[Stream]:
    """Make the streams from collections under the same encoder: the first is the index's own."""
    base_all_NM, query_QM = collections[0].documents.vector_NM, collections[0].queries("train").vector_QM
    order = np.random.default_rng(0).permutation(len(base_all_NM))
    none, base_NM, later_NM = np.zeros(0, np.int64), base_all_NM[order[:BASE]], base_all_NM[order[BASE:]]
    query_QM = query_QM[np.random.default_rng(1).permutation(len(query_QM))[:QUERIES]]
    for share in (0.2, 0.6, 1.0, 2.0):
        yield Stream(f"{share:.0%} more of the same", base_NM, later_NM[: round(share * BASE)], none, query_QM)
    for share in (0.1, 0.4):
        yield Stream(f"{share:.0%} deleted", base_NM, base_NM[:0], np.arange(round(share * BASE)), query_QM)
    for other in collections[1:]:
        name, other_NM = other.name, other.documents.vector_NM[: round(0.2 * BASE)]
        asked_QM = np.concatenate([query_QM, other.queries("train").vector_QM[: QUERIES // 5]])
        yield Stream(f"{len(other_NM) / BASE:.0%} of {name}", base_NM, other_NM, none, asked_QM)
    centroid_TM = spherical_kmeans(base_all_NM, TOPICS, 0)
    topic_N = nearest(base_all_NM[order], centroid_TM, 1)[0][:, 0]
    for count in (1, 3):
        late = np.argsort(np.bincount(topic_N, minlength=TOPICS))[-count:]
        late_NM, early_NM = (
            base_all_NM[order[np.isin(topic_N, late)]],
            base_all_NM[order[~np.isin(topic_N, late)]][:BASE],
        )
        for share in (0.2, 0.6):
            name = f"{share:.0%} of {count} new topic{'s' if count > 1 else ''}"
            yield Stream(name, early_NM, late_NM[: round(share * BASE)], none, query_QM)


class Index:
    """A leaf map of a stream's documents, and the router that places them."""

    def __init__(self, root: Path, vector_NM: Floats, router: LearnedIvfRouter | None = None) -> None:
        """Put documents [n, m], named by their numbers, into leaves made of them, or into those of a router."""
        shutil.rmtree(root, ignore_errors=True)
        self.root, self.spec = root, leaf_maps.job("drift", root)
        self.router = router or leaf_maps.settled(self.spec, vector_NM, len(vector_NM))
        ids = [str(number) for number in range(len(vector_NM))]
        self.there = leaf_maps.write(root, self.router, self.spec, leaf_maps.texts(ids, ids), vector_NM, SHARDS)

    def change(self, stream: Stream) -> None:
        """Add and delete a stream's documents."""
        assign, first = Assigner(self.router, self.spec), len(stream.base_NM)
        for begin in range(0, len(stream.added_NM), BATCH):
            some_NM = stream.added_NM[begin : begin + BATCH]
            ids = [str(first + begin + number) for number in range(len(some_NM))]
            batches = [(leaf_maps.texts(ids, ids), Encoded.of(some_NM))]
            self.there = change.add(self.root, assign, batches, self.spec.index.max_leaf_factor)
        if len(stream.deleted):
            self.there = change.delete(self.root, [str(number) for number in stream.deleted])

    def curve(self, query_QM: Floats) -> tuple[list[float], list[float]]:
        """Share of the exact best ten that each beam finds, and mean number of documents that it visits."""
        segment, _ = read_segment(self.there, self.there.manifest.shards)
        lists = LeafLists([segment.lists])
        everywhere_QB = np.tile(np.arange(self.router.n_leaves), (len(query_QM), 1))
        best_Q = lists.scan(query_QM, everywhere_QB, K)[0][:, -1:]
        leaves_QB = route_all(self.router, Encoded.of(query_QM), BEAMS[-1])[0].numpy()
        recalls, costs = [], []
        for beam in BEAMS:
            score_QK = lists.scan(query_QM, leaves_QB[:, :beam], K)[0]
            recalls.append(float((score_QK >= best_Q - 1e-5).mean()))
            costs.append(float(lists.count(leaves_QB[:, :beam])[0].mean()))
        return recalls, costs


def row(stream: Stream, changed: Index, workdir: Path) -> list[str]:
    """A row of the table: the numbers that advise, the advice, and costs over those of an index made anew."""
    promised = int(np.searchsorted(changed.curve(stream.query_QM[:QUERIES])[0], GOAL))
    changed.change(stream)
    all_NM = np.concatenate([stream.base_NM, stream.added_NM])
    kept_NM = np.delete(all_NM, stream.deleted, axis=0)
    anew = Index(workdir / "anew", kept_NM)
    stats = Stats.of(changed.there.manifest, changed.spec)
    is_new_Q = nearest(stream.query_QM, np.ascontiguousarray(all_NM), 1)[0][:, 0] >= len(stream.base_NM)
    ratios, recalls = list[str](), list[str]()
    for query_QM in (stream.query_QM, stream.query_QM[is_new_Q]):
        if len(query_QM) < FEWEST:
            ratios, recalls = [*ratios, "-"], [*recalls, "-"]
            continue
        now, then = changed.curve(query_QM), anew.curve(query_QM)
        cost, least = (float(np.interp(GOAL, *curve)) for curve in (now, then))
        ratios, recalls = [*ratios, f"{cost / least:.2f}"], [*recalls, f"{now[0][promised]:.3f}"]
    gap = 0.0 if stats.added_log_prob is None else stats.log_prob - stats.added_log_prob
    automatic = anew.router.n_leaves / changed.router.n_leaves
    sizes = f"{stats.imbalance:.2f}", f"{Stats.of(anew.there.manifest).imbalance:.2f}", f"{automatic:.2f}"
    shares = f"{stats.void:.0%}", f"{stats.added:.0%}"
    return [
        stream.name,
        *shares,
        *sizes,
        f"{gap:.2f}",
        *ratios,
        *recalls,
        "; ".join(line.partition(" (")[0] for line in stats.advice()) or "-",
    ]


HEAD = ["stream", "void", "added", "imbalance", "anew", "leaves anew / leaves", "nats"]
HEAD += ["visited / anew, all queries", "with a new best document", "recall, all", "new best", "advice"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every stream and print the table."""
    parser = Options("Streams of changes, and what drift's numbers say of each.", "drift", "quality")
    options = parser.parse_args(arguments)
    report, rows = clock(), []
    collections = [Collection(name, options.quality / name) for name in (NAME, *OTHERS)]
    report("read")
    base_NM, router = np.zeros((0, 0), np.float32), None
    for stream in streams(collections):
        router = router if stream.base_NM is base_NM else None
        changed, base_NM = Index(options.workdir / "changed", stream.base_NM, router), stream.base_NM
        router = changed.router
        rows.append(row(stream, changed, options.workdir))
        report("  ".join(rows[-1]))
    print("\n".join(["", *table(HEAD, rows)]), flush=True)


if __name__ == "__main__":
    main()
