"""Print AXN's tables: search with a budget of cross-encoder calls, compared with re-ranking, ADACUR and TOUR.

The tables are those of results/axn.md: for the cross-encoder alone, and added to the base score. The truth is the
cross-encoder's score of 100 test queries and 50 held-out train queries with all documents of SciFact. This takes hours
on two cores, and is kept. Systems read scores from the truth, and calls are counted as if they were made. Settings are
chosen for each measure on held-out train queries alone. For a held-out query, learning leaves out its own scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import yaml
from scipy.special import softmax

from benchmarks.cache import keep, kept, key
from benchmarks.collection import ROOT, made, place
from benchmarks.commands import Options, clock
from benchmarks.machine import set_threads
from benchmarks.pages import sections
from benchmarks.statistics import Estimate, paired
from benchmarks.tables import table
from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.documents import load_documents, load_texts
from rayhier.dataset.holdout import held_queries
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries, load_split
from rayhier.dataset.ranking import ID, Ranking, whole_scan
from rayhier.evaluate.calibrate import BESIDES, MEASURE, MOST_RERANKED, reordered
from rayhier.job.plan import make_plan
from rayhier.job.run import run
from rayhier.scores.call_budget import Asked, run_sync, spending
from rayhier.scores.estimators import Fit, Fixed, LeastSquares, Matching, PlusBase, Ridge
from rayhier.scores.factorise import Matrix, base_scores, inductive, mapped, match, residual_bias, transductive
from rayhier.scores.scorer import PairScorer, Settings, open_scorer
from rayhier.search.words.bm25 import Bm25Index
from rayhier.spec import load
from rayhier.spec.cross_encoder import CHOSEN_DEPTH

SPEC = ROOT / "specs" / "scifact-axn.yaml"
MADE = ("corpus", "embed", "test", "cross_encoder")
PART = 512
"""Pairs after which what is scored so far is kept."""
TESTED, HELD, CHOOSE = 100, 50, 25
"""Test queries, train queries that no training sees, and those of the latter on which settings are chosen, at most."""
NDCG = "nDCG@10"
SHOWN = 100
"""First documents of an order that nDCG reads."""
ASKED = ((1, 100), (10, 100), (100, 500))
"""Best documents that are looked for, and calls: Top-1@100, Top-10@100, Top-100@500."""
LEXICAL = 0.3
"""Weight of BM25, divided by the query's best, in an order by base and BM25 together."""
ROUNDS = 5


class Truth:
    """Scores of queries for all documents of a collection, in a folder named by all that they depend on."""

    def __init__(self, folder: Path, scorer: PairScorer, texts: Sequence[str]) -> None:
        """Keep scores below a folder; `texts` are those of all documents, in their order."""
        self.folder, self.scorer, self.texts = folder, scorer, list(texts)

    def known(self, name: str) -> Floats:
        """Scores [n] of the first documents of a query, as many as are kept."""
        there = [path for path in self._places(name) if path.is_file()]
        return np.asarray(np.load(there[0])["scores"]) if there else np.zeros(0, np.float32)

    def scores(self, name: str, query: str) -> Floats:
        """Scores [n] of all documents for a query; what is missing is scored now."""
        done, (whole, part) = self.known(name), self._places(name)
        while len(done) < len(self.texts):
            items = self.texts[len(done) : len(done) + PART]
            done = np.concatenate([done, self.scorer([query] * len(items), items)])
            keep(whole if len(done) == len(self.texts) else part, {"scores": done})
        part.unlink(missing_ok=True)
        return done

    def best(self, name: str, query: str, row_K: Ints) -> Floats:
        """Scores [k] of some documents for a query; where the truth lacks them, they are read and kept."""
        known = self.known(name)
        if len(known) == len(self.texts):
            return np.asarray(known[row_K])
        items = [self.texts[row] for row in row_K.tolist()]
        path = self.folder / "best" / f"{name}-{key(row_K.tolist())}.npz"
        return kept(path, lambda: {"scores": self.scorer([query] * len(items), items)})["scores"]

    def _places(self, name: str) -> tuple[Path, Path]:
        """Files of a query's scores, and of a part of them."""
        return self.folder / f"{name}.npz", self.folder / "parts" / f"{name}.npz"


class World:
    """SciFact under its base encoder and a trained cross-encoder, with BM25, and the queries that are measured."""

    def __init__(self, workdir: Path, tests: int, keeps: int) -> None:
        """Run the shipped spec up to the cross-encoder where that is missing, and open what it published."""
        if keeps > HELD:
            raise ValueError(f"keeps: got {keeps}; allowed: at most {HELD}, which the cross-encoder never learns from")
        plan = make_plan(load(SPEC, place("scifact", workdir)))
        run(plan, MADE)
        self.corpus, self.vectors, self.split, reads = made(plan, "corpus", "vectors", "test", "cross_encoder")
        self.documents = load_documents(self.corpus, self.vectors)
        self.texts: list[str] = load_texts(self.corpus, self.documents.ids).to_pylist()
        self.words = Bm25Index(self.texts)
        assert plan.spec.cross_encoder is not None
        folder = f"{reads.folder.name}-{self.corpus.folder.name}-{Settings.read(reads).precision}"
        self.truth = Truth(workdir / "truth" / folder, open_scorer(reads, plan.spec.cross_encoder), self.texts)
        train, test = self.queries("train"), self.queries("test")
        trained, test = set(train.texts), test.some(np.isin(test.ids, held_queries(test.ids, tests)))
        self.tested = test.some(np.array([text not in trained for text in test.texts]))
        """The test queries whose truth is known: the first by a hash of their ids, but for texts of train queries."""
        self.held = train.some(np.isin(train.ids, held_queries(train.ids, keeps)))
        """Train queries that nothing learned from: they are ADACUR's anchors."""
        self.chooses = self.held.some(np.arange(len(self.held)) < CHOOSE)
        self.lessons: dict[object, Learned] = {}
        """What systems have learned from the held-out queries' scores."""

    @cached_property
    def weight(self) -> float:
        """Weight of the base score beside the cross-encoder's: the best on dev, over the base's first documents."""
        dev = self.queries("dev")
        dev = dev.some(np.isin(dev.ids, held_queries(dev.ids, MOST_RERANKED)))
        base_QN = self.base(dev)
        row_QK = np.argsort(-base_QN, axis=1, kind="stable")[:, :CHOSEN_DEPTH]
        zero_Q, ids = np.zeros(len(dev), np.int64), pa.table({ID: self.documents.ids})
        base_QK = np.take_along_axis(base_QN, row_QK, axis=1)
        ranking, judge = Ranking(base_QK, row_QK, ids, zero_Q, zero_Q, zero_Q), Judge(dev, [MEASURE])
        each = zip(dev.ids, dev.texts, row_QK, strict=True)
        score_QK = np.stack([self.truth.best(*query) for query in each]).astype(np.float64)
        measured = {weight: judge.mean(reordered(ranking, score_QK, base_QK, weight))[MEASURE] for weight in BESIDES}
        return max(BESIDES, key=lambda weight: (measured[weight], -weight))

    @cached_property
    def held_scores(self) -> Floats:
        """Scores [q, n] of the held-out queries, from which systems learn."""
        return self.known(self.held)

    def queries(self, split: str) -> Queries:
        """All judged queries of a split."""
        return load_split(split, self.corpus, self.vectors, self.split)

    def known(self, queries: Queries) -> Floats:
        """Scores [q, n] of all documents for queries whose truth is kept or now made."""
        return np.stack([self.truth.scores(name, text) for name, text in zip(queries.ids, queries.texts, strict=True)])

    def base(self, queries: Queries) -> Floats:
        """Base scores [q, n] of all documents."""
        return queries.vector_QM @ self.documents.vector_NM.T


@dataclass(frozen=True)
class Offline:
    """Scores computed ahead: some documents of every held-out query, or some queries of every document."""

    per: Literal["query", "item"] = "query"
    count: int = 100
    queries: int = HELD


@dataclass(frozen=True)
class Row:
    """A system: what it knows ahead, and how it spends calls."""

    name: str
    fit: Literal["none", "lstsq", "ridge", "tour-kl", "tour-mse"] = "none"
    vectors: Literal["base", "transductive", "inductive", "anchors"] = "base"
    bias: bool = False
    offline: Offline | None = None
    first: Literal["base", "bm25", "both"] = "base"
    lam: float = 0.0
    mu: float = 1.0
    rate: float = 0.0

    def calls(self, documents: int) -> int:
        """Calls made ahead."""
        off = self.offline
        if off is None:
            return 0
        return off.count * documents if off.per == "item" else off.queries * min(off.count, documents)


def read(name: str, settings: dict[str, Any]) -> Row:
    """A row by its name and settings."""
    return Row(name, **settings | ({"offline": Offline(**settings["offline"])} if "offline" in settings else {}))


READ = yaml.safe_load(Path(__file__).with_name("axn.yaml").read_text())
ROWS = [read(name, settings) for name, settings in READ["measured"].items()]
TUNED = {
    name: [read(name, settings | {key: value}) for key in ("lam", "rate") for value in settings.get(key, ())]
    for name, settings in READ["tuned"].items()
}
"""Rows with a setting that is chosen on the held-out queries, by name: one for each value that is tried."""


@dataclass
class Tour:
    """TOUR: a query vector that takes a step of gradient descent with every round of scores.

    Source: Sung et al., "Optimizing Test-Time Query Representations for Dense Retrieval", ACL 2023.
    """

    vector_PM: Floats
    query_M: Values
    """The base retriever's query vector at first, then the one after the rounds so far."""
    rate: float
    loss: Literal["kl", "mse"] = "kl"
    matching: Matching = field(default_factory=lambda: Matching(0.0, 1.0))

    def estimate(self, read_S: Ints, score_S: Values) -> Values:
        """Estimated scores [p] of all documents, after one further step on those read [s] and their scores [s]."""
        read_SM = self.vector_PM[read_S].astype(np.float64)
        own_S, target_S = read_SM @ self.query_M, self.matching(score_S)
        kl_S, mse_S = softmax(own_S) - softmax(target_S), 2 * (own_S - target_S) / len(read_S)
        self.query_M = self.query_M - self.rate * read_SM.T @ (mse_S if self.loss == "mse" else kl_S)
        score_P = self.vector_PM @ self.query_M.astype(self.vector_PM.dtype)
        return self.matching.undo(np.asarray(score_P, dtype=np.float64))


@dataclass(frozen=True)
class Learned:
    """What was learned ahead about all documents."""

    vector_NM: Floats
    bias_N: Values = field(default_factory=lambda: np.zeros(0))
    slope: float = 0.0
    matching: Matching = field(default_factory=lambda: Matching(0.0, 1.0))
    mapping: Callable[[Floats], Floats] | None = None
    """Map of queries' vectors [q, m]."""

    def query(self, query_M: Floats) -> Floats:
        """The query's vector in the space of the documents' vectors; zeros where these are anchors' scores."""
        if self.mapping is not None:
            return np.asarray(self.mapping(query_M[None])[0])
        wide = self.vector_NM.shape[1]
        return query_M if len(query_M) == wide else np.zeros(wide, np.float32)


@dataclass
class Setting:
    """Queries to be measured; scores are those of the truth + base_weight · base."""

    world: World
    queries: Queries
    base_weight: float
    leave_one_out: bool
    """True: the queries are held-out ones, each of which is left out of what is learned for it."""

    def __post_init__(self) -> None:
        self.base_QN = self.world.base(self.queries).astype(np.float64)
        self.score_QN = self.world.known(self.queries) + self.base_weight * self.base_QN
        self.words_QN = np.stack([self.world.words.scores(text) for text in self.queries.texts]).astype(np.float64)

    def run(self, row: Row, budget: int) -> list[Ints]:
        """Documents of every query, best first."""
        asked = [self.asked(row, query) for query in range(len(self.queries))]
        rounds = spending(asked, budget, 1 if row.fit == "none" else min(ROUNDS, budget))
        spent = run_sync(rounds, lambda pairs: np.asarray(self.score_QN[pairs], dtype=np.float64))
        return [own.row_P for own in spent]

    def asked(self, row: Row, query: int) -> Asked:
        """All documents for a query as a row knows them: the first round's order, and the fit."""
        base_N, words_N = self.base_QN[query], self.words_QN[query]
        both_N = base_N + LEXICAL * words_N / max(float(words_N.max(initial=0)), 1e-9)
        first_N = {"base": base_N, "bm25": words_N, "both": both_N}[row.first]
        learned, known_N = self.learned(row, query), self.base_weight * base_N
        vector_NM, own_M = learned.vector_NM, learned.query(self.queries.vector_QM[query]).astype(np.float64)
        if row.vectors != "base" and row.fit == "none":
            first_N = learned.matching.undo(vector_NM @ own_M) + known_N
        fit: Fit = Fixed(first_N)
        match row.fit:
            case "lstsq":
                fit = PlusBase(LeastSquares(vector_NM, own_M, row.lam, learned.matching), known_N)
            case "ridge":
                prior_N = both_N if row.first == "both" else base_N
                if row.bias:
                    prior_N = learned.slope * prior_N + learned.bias_N + known_N
                fit = Ridge(prior_N, vector_NM, row.mu)
            case "tour-kl" | "tour-mse":
                loss: Literal["kl", "mse"] = "kl" if row.fit == "tour-kl" else "mse"
                fit = PlusBase(Tour(vector_NM, own_M, row.rate, loss, learned.matching), known_N)
        return Asked(first_N, fit)

    def learned(self, row: Row, query: int) -> Learned:
        """What a row learns from scores ahead, without those of the query itself."""
        left_out = query if self.leave_one_out and row.offline is not None else None
        name = row.vectors, row.offline, left_out
        if name not in self.world.lessons:
            self.world.lessons[name] = self._learn(row, left_out)
        return self.world.lessons[name]

    def _learn(self, row: Row, left_out: int | None) -> Learned:
        held, item_NM = self.world.held, self.world.documents.vector_NM
        if row.offline is None:
            return Learned(item_NM)
        score_HN = self.world.held_scores
        matrix = sampled(row.offline, score_HN, held.vector_QM @ item_NM.T, left_out)
        base_X = base_scores(matrix, held.vector_QM, item_NM)
        matching, (bias_N, slope) = match(matrix, base_X), residual_bias(matrix, base_X, len(item_NM))
        lessons = matrix, matching(matrix.score_X), held.vector_QM, item_NM
        match row.vectors:
            case "transductive":
                item_NM = transductive(*lessons, "transductive", 0)
            case "inductive":
                queries, items = inductive(*lessons, "inductive", 0)
                return Learned(mapped(items, item_NM), bias_N, slope, matching, partial(mapped, queries))
            case "anchors":
                anchors = score_HN[np.unique(matrix.query_X)].T.astype(np.float64)
                item_NM, matching = np.ascontiguousarray(anchors), Matching(0.0, 1.0)
        return Learned(item_NM, bias_N, slope, matching)


def sampled(offline: Offline, score_HN: Floats, base_HN: Floats, left_out: int | None) -> Matrix:
    """The sparse matrix of a setting: the base's best documents of each query, or best queries of each document."""
    rows = np.array([row for row in range(len(score_HN)) if row != left_out])[: offline.queries]
    if offline.per == "query":
        item_HK = np.argsort(-base_HN[rows], axis=1, kind="stable")[:, : offline.count]
        query_X, item_X = np.repeat(rows, item_HK.shape[1]), item_HK.reshape(-1)
    else:
        best_KN = rows[np.argsort(-base_HN[rows], axis=0, kind="stable")[: offline.count]]
        query_X, item_X = best_KN.reshape(-1), np.tile(np.arange(base_HN.shape[1]), len(best_KN))
    return Matrix(query_X, item_X, score_HN[query_X, item_X].astype(np.float64))


@dataclass(frozen=True)
class Found:
    """What a row found for every query [q], by measure, for instance Top-100@500."""

    row: Row
    values: dict[str, Values]

    def mean(self, measure: str) -> float:
        """Mean over the queries; NaN where it was not measured."""
        return float(self.values[measure].mean()) if measure in self.values else float("nan")

    def over(self, other: "Found", measure: str) -> Estimate:
        """Points by which the row is above another, with their 95% interval."""
        return paired(self.values[measure], other.values[measure])


def named(k: int, calls: int) -> str:
    """Name of a measure."""
    return f"Top-{k}@{calls}"


def measured(setting: Setting, row: Row, asked: Sequence[tuple[int, int]] = ASKED) -> Found:
    """Measure a row for some numbers of best documents and calls; nDCG at each number of calls."""
    values: dict[str, Values] = {}
    for calls in dict.fromkeys(calls for _, calls in asked):
        order = setting.run(row, calls)
        values |= {named(k, calls): recall(order, setting.score_QN, k) for k, own in asked if own == calls}
        values[f"{NDCG}@{calls}"] = ndcg(setting, order)
    return Found(row, values)


def recall(order: Sequence[Ints], score_QN: Values, k: int) -> Values:
    """Share [q] of the k documents that score best that are the first k of each query's order."""
    best_QK = np.argsort(-score_QN, axis=1, kind="stable")[:, :k]
    return np.array([len(np.intersect1d(own[:k], best)) / k for own, best in zip(order, best_QK, strict=True)])


def ndcg(setting: Setting, order: Sequence[Ints]) -> Values:
    """NDCG@10 [q] of each query's order."""
    row_QK = np.stack([own[:SHOWN] for own in order])
    place_QK = np.broadcast_to(-np.arange(SHOWN, dtype=np.float32), row_QK.shape)
    ids = pa.array(setting.world.documents.results, pa.string())
    return Judge(setting.queries, (NDCG,)).values(whole_scan(place_QK, row_QK, ids, 0))[NDCG]


def exhaustive(setting: Setting) -> Found:
    """The order by the scores of all documents, which no budget reaches."""
    order = list(np.argsort(-setting.score_QN, axis=1, kind="stable"))
    values = {named(k, calls): np.ones(len(order)) for k, calls in ASKED}
    values |= {f"{NDCG}@{calls}": ndcg(setting, order) for _, calls in ASKED}
    return Found(Row("every document scored"), values)


def tuned(chooses: Setting, tested: Setting, name: str) -> Found:
    """Measure a row in the setting that finds most for the held-out queries, which each measure chooses for itself.

    `*` in its name marks an end of those tried that is no end of all there are.
    """
    tried = TUNED[name]
    found = [measured(chooses, row) for row in tried]
    chosen = [tried[int(np.argmax([own.mean(named(*asked)) for own in found]))] for asked in ASKED]
    sign, attribute = ("λ", "lam") if tried[0].lam != tried[-1].lam else ("rate", "rate")
    values = [getattr(row, attribute) for row in tried]
    ends = {min(values), max(values)} - ({0.0, 1.0} if sign == "λ" else set())
    told = " / ".join(f"{value:g}{'*' * (value in ends)}" for value in (getattr(row, attribute) for row in chosen))
    best: dict[str, Values] = {}
    for row, asked in zip(chosen, ASKED, strict=True):
        best |= measured(tested, row, [asked]).values
    return Found(replace(chosen[0], name=f"{name}, {sign} {told}"), best)


def lines(found: Sequence[Found], documents: int) -> list[str]:
    """A table of rows, with points above re-ranking in the row's own first order."""
    one, ten, deep = (named(*asked) for asked in ASKED)
    by_name = {own.row.name: own for own in found}
    over = [f"{ten} over re-ranking", f"{deep} over re-ranking, points"]
    head = ["", one, ten, deep, *over, f"{NDCG}, 100 calls", f"{NDCG}, 500 calls", "calls ahead"]
    rows = []
    for own in found:
        base = by_name["re-rank: base + BM25" if own.row.first == "both" else "re-rank: base"]
        cells = [f"{own.mean(measure):.3f}" for measure in (one, ten, deep)]
        cells += ["" if own is base else own.over(base, measure).shown for measure in (ten, deep)]
        cells += [f"{own.mean(f'{NDCG}@{calls}'):.3f}" for calls in (100, 500)]
        ahead = own.row.calls(documents)
        rows.append([own.row.name, *cells, f"{ahead:,}" if ahead else ""])
    return table(head, rows)


def main() -> None:
    """Measure, and print the table of the cross-encoder alone, and that beside the base score."""
    parser = Options("Measure search with a budget of cross-encoder calls.", "papers/axn")
    parser.add_argument("--tests", type=int, default=TESTED, help="number of test queries")
    parser.add_argument("--keeps", type=int, default=HELD, help="number of held-out train queries")
    given, report = parser.parse_args(), clock()
    set_threads(2)
    world = World(given.workdir, given.tests, given.keeps)
    for queries in (world.held, world.tested):
        world.known(queries)
        report(f"the truth of {len(queries)} queries is there")
    titled = []
    for weight, title in ((0.0, "The cross-encoder alone"), (world.weight, "Beside the base: score + {:g} · base")):
        chooses = Setting(world, world.chooses, weight, leave_one_out=True)
        tested = Setting(world, world.tested, weight, leave_one_out=False)
        found = [exhaustive(tested)]
        for row in ROWS:
            found.append(measured(tested, row))
            report(f"beside {weight:g}: {row.name}")
        for name in TUNED:
            found.append(tuned(chooses, tested, name))
            report(f"beside {weight:g}: {name}")
        titled.append((title.format(weight), lines(found, len(world.texts))))
    print("\n".join(sections(titled)))


if __name__ == "__main__":
    main()
