"""BM25 beside vectors, fused, beside both parts: `make bench-hybrid`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.collection import BUILT, SPEC, made, place, run
from benchmarks.commands import Options
from benchmarks.machine import THREADS, set_threads
from benchmarks.statistics import paired
from benchmarks.tables import table
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries, load_split
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


def asked(searcher: Searcher, queries: Queries) -> tuple[Judge, Ranking, Lexical]:
    """What judges some queries, and what an index finds for them by vectors and by BM25."""
    texts, words = list(queries.texts), searcher.reader.words
    assert words is not None
    lexical = words.scan(texts, searcher.model.encode(texts).numpy, K)
    return Judge(queries, (NDCG, RECALL)), searcher.rank(texts, K, mode="dense")[0], lexical


def measured(name: str, workdir: Path) -> tuple[str, list[list[str]]]:
    """A heading, and rows of the table of a collection."""
    overrides = [*place(name, workdir), "search.hybrid={}"]
    run(overrides, stages=(*BUILT, "test"))
    corpus, vectors, held = made(make_plan(load(SPEC, overrides)), "corpus", "vectors", "test")
    searcher = Searcher.open(locate(str(workdir)))
    dev, test = (load_split(split, corpus, vectors, held) for split in ("dev", "test"))
    dev, test = (queries.some(np.arange(len(queries)) < MOST) for queries in (dev, test))
    judge, dense, lexical = asked(searcher, test)
    fusions = {f"sum, weight {HybridSpec().weight:g} (as shipped)": HybridSpec()}
    if dev:
        dev_judge, dev_dense, dev_lexical = asked(searcher, dev)

        def found(weight: float) -> float:
            both = fused(dev_dense, [dev_lexical], K, HybridSpec(weight=weight))
            return float(dev_judge.values(both)[NDCG].mean())

        best = max(WEIGHTS, key=found)  # the smallest of equals
        fusions[f"sum, weight {best:g} (best on dev)"] = HybridSpec(weight=best)
    fusions["rank"] = HybridSpec(fuse="rank")
    rankings = {"vectors": dense, "BM25": lexical.ranking}
    rankings |= {system: fused(dense, [lexical], K, fusion) for system, fusion in fusions.items()}
    values = {system: judge.values(ranking) for system, ranking in rankings.items()}
    rows = []
    for system, own in values.items():
        over = [
            "" if system == other else paired(own[measure], values[other][measure]).shown
            for measure in (NDCG, RECALL)
            for other in ("vectors", "BM25")
        ]
        rows.append([system, f"{own[NDCG].mean():.3f}", f"{own[RECALL].mean():.3f}", *over])
    counts = f"{len(test):,} test queries, {len(dev):,} dev queries"
    return f"{name}: {searcher.manifest.documents:,} documents, {counts}", rows


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
