"""What users get: the shipped search beside its parts and the untouched encoder: `make bench-answers`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import cache
from benchmarks.collection import BUILT, SPEC, made, place, run
from benchmarks.commands import Options, clock
from benchmarks.machine import THREADS, set_threads
from benchmarks.statistics import RESAMPLES, Estimate
from benchmarks.tables import mean, spread, table
from rayhier.arrays import Bools, Ints, Values
from rayhier.dataset.documents import load_documents
from rayhier.dataset.families import families
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries, load_answers, load_split, new_answers, relevant
from rayhier.dataset.ranking import ID
from rayhier.dataset.words import words
from rayhier.plan import make_plan
from rayhier.search.exact import exact
from rayhier.search.hybrid import fused
from rayhier.search.searcher import Searcher
from rayhier.spec import load
from rayhier.spec.search import UNTAUGHT_WEIGHT, HybridSpec
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import locate

COLLECTIONS = ("scifact", "acl_title2abs", "oewn_examples", "cranfield")
K, MOST = 100, 2_000
"""Results of a query, and test queries at most."""
NDCG, RECALL = "nDCG@10", "R@100"
SHIPPED, DENSE, BM25 = "as shipped", "by vectors alone", "BM25 alone"
UNTOUCHED, BOTH = "untouched vectors", "untouched vectors and BM25"
SYSTEMS = (SHIPPED, DENSE, BM25, BOTH, UNTOUCHED)
TWIN = 0.5
"""Jaccard similarity of two queries' words from which on one is the other's near-twin."""


@dataclass(frozen=True)
class Measured:
    """Values of one collection's test queries, and what is known of these queries."""

    values: dict[str, list[dict[str, Values]]]
    """System -> for each seed, measure -> value of each query [q]."""
    weights: list[float]
    """BM25's weight of each seed's model."""
    family_Q: Ints
    groups: dict[str, Bools]
    """Name of a group of queries -> which are in it [q]."""
    documents: int

    def mean(self, system: str, measure: str) -> Values:
        """Mean over seeds of each query's value [q]."""
        return np.asarray(np.mean([seed[measure] for seed in self.values[system]], axis=0))

    def seeds(self, system: str, measure: str, own_Q: Bools) -> list[float]:
        """Mean over some queries for each seed."""
        return [float(seed[measure][own_Q].mean()) for seed in self.values[system]]

    def over(self, system: str, control: str, measure: str, own_Q: Bools) -> Estimate:
        """Points by which a system is above a control; resamples draw whole families of queries."""
        difference_Q = 100 * (self.mean(system, measure) - self.mean(control, measure))[own_Q]
        return by_families(difference_Q, self.family_Q[own_Q])


def by_families(difference_Q: Values, family_Q: Ints) -> Estimate:
    """The mean of differences [q] and its 95% interval, from resamples of families with replacement."""
    number_Q = np.unique(family_Q, return_inverse=True)[1]
    sum_F, size_F = np.bincount(number_Q, weights=difference_Q), np.bincount(number_Q)
    drawn_RF = np.random.default_rng(0).multinomial(len(size_F), np.full(len(size_F), 1 / len(size_F)), RESAMPLES)
    low, high = np.percentile(drawn_RF @ sum_F / (drawn_RF @ size_F), (2.5, 97.5))
    return Estimate(float(difference_Q.mean()), float(low), float(high))


def twins(queries: Queries, train: Sequence[str]) -> Bools:
    """Mark the queries [q] half of whose words, and of a train query's, are words of both."""
    known = [set(words(text)) for text in train]
    own = [set(words(text)) for text in queries.texts]
    return np.array([any(len(a & b) >= TWIN * len(a | b) > 0 for b in known) for a in own])


def measure(name: str, workdir: Path, seeds: int) -> Measured:
    """Run the shipped spec on a collection with each seed, and ask the test queries of what it made."""
    base = place(name, workdir)
    values: dict[str, list[dict[str, Values]]] = {system: [] for system in SYSTEMS}
    weights, documents = [], 0
    for seed in range(seeds):
        overrides = [*base, f"evaluate.seeds=[{seed}]"]
        run(overrides, stages=(*BUILT, "test"))
        plan = make_plan(load(SPEC, overrides))
        if plan.spec.calibrates:
            run(overrides, stages=("calibrate",))
        corpus, vectors, held = made(plan, "corpus", "vectors", "test")
        searcher = Searcher.open(locate(str(workdir)))
        queries = load_split("test", corpus, vectors, held)
        queries = queries.some(np.arange(len(queries)) < MOST)
        weights.append(searcher.rules.search.hybrid.chosen if searcher.rules.usual_mode == "hybrid" else 0.0)
        documents = searcher.manifest.documents
        path = workdir / "results" / f"{cache.key(plan.step('index', seed).fingerprint, weights[-1], len(queries))}.npz"
        kept = cache.kept(path, partial(asked, searcher, queries, (corpus, vectors)))
        for system in SYSTEMS:
            values[system].append({one: kept[f"{system} {one}"] for one in (NDCG, RECALL)})
    new_Q = new_answers(queries, load_answers(corpus, "train"))
    train = load_split("train", corpus, vectors, held)
    groups = {"all": np.ones(len(queries), bool)}
    if new_Q.any() and not new_Q.all():
        groups |= {"new answers": new_Q}
    near_Q = twins(queries, list(train.texts)) if len(train) < MOST else np.zeros(len(queries), bool)
    if near_Q.any():
        groups |= {"near-twins of train queries": near_Q, "no near-twin": ~near_Q}
    family_Q = families([words(text) for text in queries.texts], [relevant(queries.grades[one]) for one in queries.ids])
    return Measured(values, weights, family_Q, groups, documents)


def asked(searcher: Searcher, queries: Queries, base: tuple[Artifact, Artifact]) -> dict[str, Values]:
    """Each measure of every query by each system."""
    judge, texts = Judge(queries, (NDCG, RECALL)), list(queries.texts)
    documents = load_documents(*base)
    ids = pa.array(documents.ids, pa.string())
    untouched = exact(queries.vector_QM, documents.vector_NM, ids, ids, K)
    lexical = searcher.reader.words
    assert lexical is not None
    listed = lexical.scan(texts, searcher.model.encode(texts).numpy, K, needs="ids")
    found = listed.ranking.ids
    row = {one: place for place, one in enumerate(documents.ids)}
    row_N = np.array([row[one] for one in found.tolist()] + [0])
    base_QK = np.vecdot(documents.vector_NM[row_N[listed.ranking.row_QK]], queries.vector_QM[:, None])
    base_QK = np.where(listed.ranking.row_QK < 0, -np.inf, base_QK).astype(np.float32)
    near, far = replace(untouched, documents=untouched.documents.select([ID])), replace(listed, base_QK=base_QK)
    both = fused(near, [far], K, HybridSpec(weight=UNTAUGHT_WEIGHT), K)
    rankings = {
        SHIPPED: searcher.rank(texts, K)[0],
        DENSE: searcher.rank(texts, K, mode="dense")[0],
        BM25: searcher.rank(texts, K, mode="bm25")[0],
        BOTH: both,
        UNTOUCHED: untouched,
    }
    return {f"{name} {one}": value for name, own in rankings.items() for one, value in judge.values(own).items()}


def _seeds(count: int) -> str:
    return f"{count} seeds" if count > 1 else "one seed"


def lines(name: str, found: Measured) -> list[str]:
    """A heading and a table of a collection."""
    head = ["", NDCG, RECALL, f"{NDCG} of shipped over it, points", f"{RECALL} of shipped over it"]
    chosen = ", ".join(f"{weight:g}" for weight in found.weights)
    counted = f"{found.documents:,} documents, {len(found.family_Q):,} test queries"
    asked_by = f"{len(set(found.family_Q.tolist())):,} families, {_seeds(len(found.weights))}"
    told = [f"## {name}", "", f"{counted} in {asked_by}; BM25's weight {chosen}.", ""]
    for group, own_Q in found.groups.items():
        rows = []
        for system in SYSTEMS:
            seeds = [found.seeds(system, one, own_Q) for one in (NDCG, RECALL)]
            cells = [spread(own) if len(own) > 1 else mean(own) for own in seeds]
            more = (
                ["", ""]
                if system == SHIPPED
                else [found.over(SHIPPED, system, one, own_Q).shown for one in (NDCG, RECALL)]
            )
            rows.append([system, *cells, *more])
        told += [f"**{group}** ({own_Q.sum():,} queries)", "", *table(head, rows), ""]
    return told


def main(arguments: Sequence[str] | None = None) -> None:
    """Build what is missing, and print a table for each collection."""
    parser = Options("What users get.", "answers", "seeds")
    parser.add_argument("collections", nargs="*", default=COLLECTIONS, help=f"default: {' '.join(COLLECTIONS)}")
    given, tell = parser.parse_args(arguments), clock()
    set_threads(THREADS)
    for name in given.collections:
        found = measure(name, given.workdir / name, given.seeds)
        tell(name)
        print("\n".join(["", *lines(name, found)]), flush=True)


if __name__ == "__main__":
    main()
