"""The whole chain with a cross-encoder, beside the same search without: `make bench-chain`.

The shipped spec with a cross-encoder runs on a collection; then test queries are searched as they are served: trained
vectors, with BM25, and the best of these re-ranked within a budget of calls.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cache
from benchmarks.collection import ROOT, made, place
from benchmarks.commands import Options, clock
from benchmarks.machine import set_threads
from benchmarks.statistics import paired
from benchmarks.tables import table
from rayhier.arrays import Bools, Ints, Values
from rayhier.dataset.families import families
from rayhier.dataset.holdout import held_queries
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries, load_answers, load_split, new_answers, relevant
from rayhier.dataset.words import words
from rayhier.plan import make_plan
from rayhier.run import run
from rayhier.scores.settings import open_scorer
from rayhier.search.rerank import RerankWeight
from rayhier.search.searcher import Searcher
from rayhier.spec import load
from rayhier.spec.search import AxnRerank, Rnr
from rayhier.storage import current
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import locate

SPEC = ROOT / "specs" / "scifact-axn.yaml"
STAGES = ("corpus", "embed", "test", "cross_encoder", "scores", "train", "index", "factors", "calibrate")
COLLECTIONS = {
    "scifact": (),
    "acl_title2abs": ("cross_encoder.train.most_pairs=3000", "cross_encoder.train.epochs=1"),
}
"""Collections, and what their spec changes: of 28,936 pairs a cross-encoder reads 3,000 in the time that there is."""
NDCG, FIRST, RECALL = "nDCG@10", "R@1", "R@100"
K, CALLS, MOST = 100, (50, 100), 200
"""Results of a query, budgets, and test queries at most."""
VECTORS, HYBRID = "trained vectors", "trained vectors and BM25"


@dataclass(frozen=True)
class Chain:
    """Values of one collection's test queries by each system, and what they took."""

    values: dict[str, dict[str, Values]]
    """System -> measure -> value of each query [q]."""
    ms: dict[str, float]
    calls: dict[str, float]
    groups: dict[str, Bools]
    family_Q: Ints
    weight: RerankWeight | None
    documents: int


def measure(name: str, workdir: Path, most: int) -> Chain:
    """Run the spec on a collection, and ask the test queries of what it made."""
    plan = make_plan(load(SPEC, [*place(name, workdir), *COLLECTIONS.get(name, ())]))
    run(plan, STAGES)
    corpus, vectors, test = made(plan, "corpus", "vectors", "test")
    queries = load_split("test", corpus, vectors, test)
    queries = queries.some(np.isin(queries.ids, held_queries(queries.ids, most)))
    searcher = Searcher.open(locate(str(workdir)))
    now = current.read(locate(str(workdir)))
    calibration, cross_encoder = (
        current.artifact(locate(str(workdir)), now, kind) for kind in ("calibration", "cross_encoder")
    )
    path = workdir / "results" / f"{cache.key(calibration.folder.name, most, CALLS)}.npz"
    kept = cache.kept(path, partial(asked, searcher, cross_encoder, queries))
    systems = dict.fromkeys(key.partition(" | ")[0] for key in kept)
    new_Q = new_answers(queries, load_answers(corpus, "train"))
    groups = {"all": np.ones(len(queries), bool)}
    groups |= {"new answers": new_Q} if new_Q.any() and not new_Q.all() else {}
    return Chain(
        {system: {measure: kept[f"{system} | {measure}"] for measure in (NDCG, FIRST, RECALL)} for system in systems},
        {system: float(kept[f"{system} | ms"]) for system in systems},
        {system: float(kept[f"{system} | calls"]) for system in systems},
        groups,
        families([words(text) for text in queries.texts], [relevant(queries.grades[query]) for query in queries.ids]),
        RerankWeight.open(calibration),
        searcher.manifest.documents,
    )


def asked(searcher: Searcher, cross_encoder: Artifact, queries: Queries) -> dict[str, Any]:
    """Each measure of every query by each system, mean milliseconds and calls."""
    judge, texts = Judge(queries, (NDCG, FIRST, RECALL)), list(queries.texts)
    reranker, shipped, spec = searcher.reranker, searcher.rules, searcher.model.spec.cross_encoder
    assert reranker is not None
    assert spec is not None
    found: dict[str, Any] = {}

    def ask(system: str, **how: Any) -> None:
        began = time.perf_counter()
        ranking, _ = searcher.rank(texts, K, **how)
        found[f"{system} | ms"] = 1e3 * (time.perf_counter() - began) / len(texts)
        found[f"{system} | calls"] = 0.0 if ranking.calls_Q is None else float(ranking.calls_Q.mean())
        found.update({f"{system} | {measure}": value_Q for measure, value_Q in judge.values(ranking).items()})

    ask(VECTORS, mode="dense", budget=0)
    ask(HYBRID, mode="hybrid", budget=0)
    for calls in CALLS:
        for rerank in (Rnr(type="rnr", budget=calls), AxnRerank(type="axn", budget=calls)):
            searcher.rules = replace(shipped, search=shipped.search.model_copy(update={"rerank": rerank}))
            for mode, of in (("dense", VECTORS), ("hybrid", HYBRID)):
                if mode == "hybrid" or (rerank.type, calls) == ("rnr", CALLS[-1]):
                    read = open_scorer(cross_encoder, spec)  # a scorer remembers pairs: each system pays for its own
                    searcher.reranker = replace(reranker, spec=rerank, read=read)
                    ask(f"{of}, re-ranked ({rerank.type}, {calls} calls)", mode=mode, budget=calls)
    return found


def lines(name: str, chain: Chain) -> list[str]:
    """A heading and tables of a collection."""
    counted = f"{chain.documents:,} documents, {len(chain.family_Q):,} test queries"
    weight = chain.weight
    chosen = "no dev queries chose a weight"
    if weight is not None:
        best = weight.measured[f"{weight.beside:g}"]
        chosen = (
            f"the search's score counts {weight.beside:g} times: {weight.queries} dev queries found "
            f"{weight.searched:.3f} by the search, {weight.measured['0']:.3f} by the cross-encoder alone, {best:.3f} "
            "with both"
        )
    out = ["", f"## {name}", "", f"{counted}; {chosen}.", ""]
    for group, in_Q in chain.groups.items():
        out += [f"**{group}** ({in_Q.sum():,} queries)", ""]
        head = ["", NDCG, FIRST, RECALL, f"{NDCG} over vectors and BM25, points", "calls", "ms a query"]
        rows = []
        for system, values in chain.values.items():
            over = paired(values[NDCG][in_Q], chain.values[HYBRID][NDCG][in_Q], chain.family_Q[in_Q])
            means = [f"{values[measure][in_Q].mean():.3f}" for measure in (NDCG, FIRST, RECALL)]
            shown = "" if system == HYBRID else over.shown
            rows.append([system, *means, shown, f"{chain.calls[system]:.0f}", f"{chain.ms[system]:,.1f}"])
        out += [*table(head, rows), ""]
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the tables of each collection."""
    parser = Options("The chain of search and cross-encoder beside the search alone.", "chain")
    parser.add_argument("collections", nargs="*", default=list(COLLECTIONS), help="default: scifact acl_title2abs")
    parser.add_argument("--queries", type=int, default=MOST, help="test queries at most")
    given = parser.parse_args(arguments)
    set_threads(1)
    report = clock()
    for name in given.collections:
        chain = measure(name, given.workdir / name, given.queries)
        print("\n".join(lines(name, chain)), flush=True)
        report(name)


if __name__ == "__main__":
    main()
