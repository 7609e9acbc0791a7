"""BM25 beside vectors, fused, beside both parts: `make bench-hybrid`.

The shipped spec builds an index of each collection; judged test queries search it as shipped, by vectors, by BM25, and
by both: the weighted sum with the shipped weight and with the one that is best for nDCG@10 on dev, and reciprocal rank
fusion. Differences are in points, with 95% intervals of paired resamples of the queries.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.collection import BUILT, SPEC, made, place, run
from benchmarks.commands import Options
from benchmarks.machine import THREADS, set_threads
from benchmarks.statistics import paired
from benchmarks.tables import table
from rayhier.arrays import Values
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries, load_queries
from rayhier.dataset.ranking import Ranking
from rayhier.plan import make_plan
from rayhier.search.hybrid import Lexical, fused
from rayhier.search.searcher import Searcher
from rayhier.spec import load
from rayhier.spec.search import HybridSpec
from rayhier.storage.paths import locate

COLLECTIONS = ("scifact", "cranfield", "acl_title2abs")
WEIGHTS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
K, MOST = 100, 1_000
"""Results of a query, and queries of a split at most."""
NDCG, RECALL = "nDCG@10", "R@100"
HEAD = ["", NDCG, RECALL, f"{NDCG} over vectors, points", "over BM25", f"{RECALL} over vectors", "over BM25"]


class Asked:
    """Judged queries and what both parts find for them."""

    def __init__(self, searcher: Searcher, queries: Queries) -> None:
        """Search an index for the queries by vectors and by BM25."""
        self.judge, texts = Judge(queries, (NDCG, RECALL)), list(queries.texts)
        self.dense: Ranking = searcher.rank(texts, K, mode="dense")[0]
        words = searcher.reader.words
        assert words is not None
        self.lexical: Lexical = words.scan(texts, searcher.model.encode(texts).numpy, K)

    def by(self, fusion: HybridSpec) -> dict[str, Values]:
        """Measures [q] of both as one."""
        return self.judge.values(fused(self.dense, [self.lexical], K, fusion))


def measured(name: str, workdir: Path) -> tuple[str, list[list[str]]]:
    """A heading, and rows of the table of a collection."""
    overrides = [*place(name, workdir), "search.hybrid={}"]
    run(overrides, stages=BUILT)
    corpus, vectors = made(make_plan(load(SPEC, overrides)), "corpus", "vectors")
    searcher = Searcher.open(locate(str(workdir)))
    dev, test = (first(load_queries(corpus, vectors, split)) for split in ("dev", "test"))
    asked = Asked(searcher, test)
    systems = {
        "vectors": asked.judge.values(asked.dense),
        "BM25": asked.judge.values(asked.lexical.ranking),
        f"sum, weight {HybridSpec().weight:g} (as shipped)": asked.by(HybridSpec()),
    }
    if dev:
        weight = best_weight(Asked(searcher, dev))
        systems[f"sum, weight {weight:g} (best on dev)"] = asked.by(HybridSpec(weight=weight))
    systems["rank"] = asked.by(HybridSpec(fuse="rank"))
    told = f"{name}: {searcher.manifest.documents:,} documents, {len(test):,} test queries, {len(dev):,} dev queries"
    return told, [cells(system, systems) for system in systems]


def first(queries: Queries) -> Queries:
    """The first queries of a split."""
    return queries.some(np.arange(len(queries)) < MOST)


def best_weight(dev: Asked) -> float:
    """The weight of BM25 that is best for dev queries; the smallest of equals."""
    return max(WEIGHTS, key=lambda weight: dev.by(HybridSpec(weight=weight))[NDCG].mean())


def cells(name: str, systems: dict[str, dict[str, Values]]) -> list[str]:
    """A row of the table."""
    own = systems[name]
    over = [
        "" if name == other else paired(own[measure], systems[other][measure]).shown
        for measure in (NDCG, RECALL)
        for other in ("vectors", "BM25")
    ]
    return [name, f"{own[NDCG].mean():.3f}", f"{own[RECALL].mean():.3f}", *over]


def main(arguments: Sequence[str] | None = None) -> None:
    """Build what is missing, and print a table for each collection."""
    parser = Options("BM25 and vectors, fused.", "hybrid")
    parser.add_argument("collections", nargs="*", default=COLLECTIONS, help=f"default: {' '.join(COLLECTIONS)}")
    given = parser.parse_args(arguments)
    set_threads(THREADS)
    for name in given.collections:
        told, rows = measured(name, given.workdir / name)
        print("\n".join(["", told, "", *table(HEAD, rows)]), flush=True)


if __name__ == "__main__":
    main()
