"""The systems of the benchmark: each orders all documents of a query for a number of calls; and what they find.

Scores come from the truth, so a system costs no call here; calls are counted as if they were made. What learns from
scores learns from those of the held-out train queries; a held-out query that is measured itself is left out of them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
import yaml

from benchmarks.axn.tour import Tour
from benchmarks.axn.world import World
from benchmarks.statistics import Estimate, paired
from benchmarks.training import encode
from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import whole_scan
from rayhier.model.encoder import ResidualHead
from rayhier.scores.call_budget import Asked, run_sync, spending
from rayhier.scores.estimators import Fit, Fixed, LeastSquares, Matching, PlusBase, Ridge
from rayhier.scores.factorise import Matrix, base_scores, inductive, mapped, match, residual_bias, transductive
from rayhier.spec.cross_encoder import FactorsSpec

NDCG = "nDCG@10"
SHOWN = 100
"""First documents of an order that nDCG reads."""
ASKED = ((1, 100), (10, 100), (100, 500))
"""Best documents that are looked for, and calls: Top-1@100, Top-10@100, Top-100@500."""
LEXICAL = 0.3
"""Weight of BM25, divided by the query's best, in an order by base and BM25 together."""
ROUNDS = 5
DISTILL_EPOCHS = 10


@dataclass(frozen=True)
class Offline:
    """Scores computed ahead: some documents of every held-out query, or some queries of every document."""

    per: Literal["query", "item"] = "query"
    count: int = 100
    queries: int = 50


@dataclass(frozen=True)
class Row:
    """A system: what it knows ahead, and how it spends calls."""

    name: str
    fit: Literal["none", "lstsq", "ridge", "tour-kl", "tour-mse", "all-scores"] = "none"
    vectors: Literal["base", "transductive", "inductive", "distilled", "anchors"] = "base"
    bias: bool = False
    offline: Offline | None = None
    first: Literal["base", "bm25", "both", "random"] = "base"
    lam: float = 0.0
    mu: float = 1.0
    rate: float = 0.0
    rounds: int = ROUNDS

    def calls(self, documents: int) -> int:
        """Calls made ahead."""
        off = self.offline
        if off is None:
            return 0
        return off.count * documents if off.per == "item" else off.queries * min(off.count, documents)


def read(name: str, settings: dict[str, Any]) -> Row:
    """A row by its name and settings."""
    return Row(name, **settings | ({"offline": Offline(**settings["offline"])} if "offline" in settings else {}))


READ = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text())
ROWS = {name: read(name, settings) for name, settings in READ["measured"].items()}
RNR, RNR_BOTH = ROWS["re-rank: base"], ROWS["re-rank: base + BM25"]
(RIDGE, RIDGE_BOTH), (INDUCTIVE, INDUCTIVE_BOTH), (BIASED, BIASED_BOTH), (ADACUR, ADACUR_BOTH) = (
    (ROWS[name], ROWS[f"{name}, base + BM25"])
    for name in ("ridge", "ridge, inductive", "ridge + bias, 2 queries a document", "ADACUR, 50 anchors")
)
TRANSDUCTIVE = ROWS["ridge, transductive"]
BEST_VECTOR = ROWS["best query vector, from the scores of all documents"]
CHEAP = [row for row in ROWS.values() if row.fit == "ridge" and row.offline not in (None, Offline("item", 5))]
"""Rows that may stand against ADACUR's: which of them does is chosen on the held-out queries."""
TUNED = {
    name: [read(name, settings | {key: value}) for key in ("lam", "rate") for value in settings.get(key, ())]
    for name, settings in READ["tuned"].items()
}
"""Rows with a setting that is chosen on the held-out queries, by name: one for each value that is tried."""
PAPER = [rows[0] for name, rows in TUNED.items() if name.startswith("AXN")]
FIRST = {"base": (RNR, RIDGE, BIASED, INDUCTIVE), "base + BM25": (RNR_BOTH, RIDGE_BOTH, BIASED_BOTH, INDUCTIVE_BOTH)}
"""First round -> its re-ranking, ridge, ridge with a bias, ridge over inductive vectors."""


@dataclass
class Setting:
    """Queries to be measured, with all that systems may know; scores are those of the truth + base_weight · base."""

    world: World
    queries: Queries
    base_weight: float
    leave_one_out: bool
    """Whether the queries are the held-out ones, each of which is left out of what is learned for it."""
    pool: Callable[[int], Ints] | None = None
    """Rows of the documents that a query may read; None: all."""
    black_box: Callable[[Queries], Floats] | None = None
    """Scores [q, n] of another scorer than the cross-encoder."""
    lessons: "dict[object, Learned] | None" = None
    """What is learned from the held-out queries' scores, kept; None: with that of all settings of the world."""
    scores: Values | None = None
    """Scores [q, n] of the queries; None: the truth."""

    def __post_init__(self) -> None:
        truth = self.black_box or self.world.known
        if self.lessons is None:
            self.lessons = {} if self.black_box else self.world.lessons
        self.base_QN = self.world.base(self.queries).astype(np.float64)
        self.score_QN = (truth(self.queries) if self.scores is None else self.scores) + self.base_weight * self.base_QN
        self.words_QN = np.stack([self.world.words.scores(text) for text in self.queries.texts]).astype(np.float64)

    @cached_property
    def held_scores(self) -> Floats:
        """Scores of the held-out queries, from which systems learn."""
        return (self.black_box or self.world.known)(self.world.held)

    def run(self, row: Row, budget: int) -> list[Ints]:
        """Documents of every query, best first."""
        every, queries = np.arange(self.base_QN.shape[1]), range(len(self.queries))
        pools = [every if self.pool is None else self.pool(query) for query in queries]
        asked = [self.asked(row, query, pool) for query, pool in zip(queries, pools, strict=True)]
        rounds = min(row.rounds if row.fit not in ("none", "all-scores") else 1, budget)

        def score(query_N: Ints, row_N: Ints) -> Values:
            at = [pools[query][place] for query, place in zip(query_N, row_N, strict=True)]
            return np.asarray(self.score_QN[query_N, at], dtype=np.float64)

        spent = run_sync(spending(asked, budget, rounds), lambda pairs: score(*pairs))
        return [pool[own.row_P] for pool, own in zip(pools, spent, strict=True)]

    def asked(self, row: Row, query: int, pool: Ints) -> Asked:
        """One query's pool as a row knows it: the first round's order, and the fit."""
        base_P, words_P = self.base_QN[query, pool], self.words_QN[query, pool]
        both_P = base_P + LEXICAL * words_P / max(float(words_P.max(initial=0)), 1e-9)
        chance_P = np.random.default_rng(query).random(len(pool))
        first_P = {"base": base_P, "bm25": words_P, "both": both_P, "random": chance_P}[row.first]
        learned, known_P = self.learned(row, query), self.base_weight * base_P
        vector_PM = learned.vector_NM[pool]
        own_M = learned.query(self.queries.vector_QM[query])
        if row.vectors != "base" and row.fit == "none":
            first_P = learned.matching.undo((vector_PM @ own_M).astype(np.float64)) + known_P
        fit: Fit
        match row.fit:
            case "none":
                fit = Fixed(first_P)
            case "all-scores":
                # The query vector that explains the scores of all documents: no budget's fit can know more.
                every = np.arange(len(pool))
                first_P = PlusBase(LeastSquares(vector_PM), known_P).estimate(every, self.score_QN[query, pool])
                fit = Fixed(first_P)
            case "lstsq":
                fit = LeastSquares(vector_PM, own_M.astype(np.float64), row.lam, learned.matching)
                fit = PlusBase(fit, known_P)
            case "ridge":
                prior_P = both_P if row.first == "both" else base_P
                if row.bias:
                    prior_P = learned.slope * prior_P + learned.bias_N[pool] + known_P
                fit = Ridge(prior_P, vector_PM, row.mu)
            case "tour-kl" | "tour-mse":
                loss: Literal["kl", "mse"] = "kl" if row.fit == "tour-kl" else "mse"
                fit = PlusBase(Tour(vector_PM, own_M.astype(np.float64), row.rate, loss, learned.matching), known_P)
        return Asked(first_P, fit)

    def learned(self, row: Row, query: int) -> "Learned":
        """What a row learns from scores ahead, without those of the query itself."""
        left_out = query if self.leave_one_out and row.offline is not None else None
        key = (row.vectors, row.offline, row.rate if row.vectors == "distilled" else 0, left_out)
        assert self.lessons is not None
        if key not in self.lessons:
            self.lessons[key] = self._learn(row, left_out)
        return self.lessons[key]

    def _learn(self, row: Row, left_out: int | None) -> "Learned":
        held, item_NM = self.world.held, self.world.documents.vector_NM
        if row.offline is None:
            return Learned(item_NM)
        matrix = sampled(row.offline, self.held_scores, held.vector_QM @ item_NM.T, left_out)
        base_X = base_scores(matrix, held.vector_QM, item_NM)
        matching, (bias_N, slope) = match(matrix, base_X), residual_bias(matrix, base_X, len(item_NM))
        lessons = matrix, matching(matrix.score_X), held.vector_QM, item_NM
        match row.vectors:
            case "transductive":
                vector_NM = transductive(*lessons, FactorsSpec(vectors="transductive"), 0)
            case "inductive":
                queries, items = inductive(*lessons, FactorsSpec(vectors="inductive"), 0)
                own = partial(mapped, queries)
                return Learned(mapped(items, item_NM), bias_N, slope, matching, own)
            case "distilled":
                head = distilled(matrix, held.vector_QM, item_NM, row.rate)
                vector_NM = encode(head, item_NM)
                product_X = base_scores(matrix, encode(head, held.vector_QM), vector_NM)
                return Learned(vector_NM, bias_N, slope, match(matrix, product_X), partial(encode, head))
            case "anchors":
                rows = np.unique(matrix.query_X)
                vector_NM = np.ascontiguousarray(self.held_scores[rows].T.astype(np.float64))
                matching = Matching(0.0, 1.0)
            case _:
                vector_NM = item_NM
        return Learned(vector_NM, bias_N, slope, matching)


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


def distilled(matrix: Matrix, query_QM: Floats, item_NM: Floats, rate: float) -> ResidualHead:
    """A head of the dual encoder that learns the scores' softmax over each query's documents."""
    head = ResidualHead(query_QM.shape[1])
    optimizer = torch.optim.AdamW(head.parameters(), lr=rate)
    query, item = torch.from_numpy(query_QM), torch.from_numpy(item_NM)
    groups = [np.flatnonzero(matrix.query_X == query) for query in np.unique(matrix.query_X)]
    for epoch in range(DISTILL_EPOCHS):
        for number in np.random.default_rng(epoch).permutation(len(groups)):
            rows = groups[number]
            target = torch.from_numpy(matrix.score_X[rows]).float().softmax(0)
            own = head(item[matrix.item_X[rows]]) @ head(query[matrix.query_X[rows[:1]]])[0]
            loss = -(target * (20 * own).log_softmax(0)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return head.eval()


def recall(order: Sequence[Ints], score_QN: Values, k: int) -> Values:
    """Share [q] of the k documents that score best that are the first k of each query's order."""
    best_QK = np.argsort(-score_QN, axis=1, kind="stable")[:, :k]
    return np.array([len(np.intersect1d(own[:k], best)) / k for own, best in zip(order, best_QK, strict=True)])


def ndcg(world: World, queries: Queries, order: Sequence[Ints]) -> Values:
    """NDCG@10 [q] of each query's order."""
    row_QK = np.full((len(order), SHOWN), -1)
    for query, own in enumerate(order):
        row_QK[query, : len(own[:SHOWN])] = own[:SHOWN]
    place_QK = np.broadcast_to(-np.arange(SHOWN, dtype=np.float32), row_QK.shape)
    ids = pa.array(world.documents.results, pa.string())
    return Judge(queries, (NDCG,)).values(whole_scan(place_QK, row_QK, ids, 0))[NDCG]


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


def measured(setting: Setting, row: Row, asked: Iterable[tuple[int, int]] = ASKED) -> Found:
    """Measure a row for some numbers of best documents and calls; nDCG at each number of calls."""
    values: dict[str, Values] = {}
    for calls in dict.fromkeys(calls for _, calls in asked):
        order = setting.run(row, calls)
        for k, own in asked:
            if own == calls:
                values[named(k, calls)] = recall(order, setting.score_QN, k)
        values[f"{NDCG}@{calls}"] = ndcg(setting.world, setting.queries, order)
    return Found(row, values)


def exhaustive(setting: Setting) -> Found:
    """The order by the scores of all documents, which no budget reaches."""
    order = list(np.argsort(-setting.score_QN, axis=1, kind="stable"))
    values = {named(k, calls): np.ones(len(order)) for k, calls in ASKED}
    values |= {f"{NDCG}@{calls}": ndcg(setting.world, setting.queries, order) for _, calls in ASKED}
    return Found(Row("every document scored"), values)


def tuned(chooses: Setting, tried: Sequence[Row]) -> list[Row]:
    """For each measure, the row of several that finds most for the held-out queries, the first of equals."""
    outcomes = [measured(chooses, row) for row in tried]
    return [tried[int(np.argmax([own.mean(named(*asked)) for own in outcomes]))] for asked in ASKED]


def settings(tried: Sequence[Row], chosen: Sequence[Row]) -> str:
    """Settings that were chosen for each measure; `*` marks an end of those tried that is no end of all there are."""
    sign, name = ("λ", "lam") if tried[0].lam != tried[-1].lam else ("rate", "rate")
    values = [getattr(row, name) for row in tried]
    ends = {min(values), max(values)} - ({0.0, 1.0} if sign == "λ" else set())
    return f"{sign} " + " / ".join(
        f"{value:g}{'*' * (value in ends)}" for value in (getattr(row, name) for row in chosen)
    )


def measured_each(setting: Setting, row: Row, chosen: Sequence[Row]) -> Found:
    """Measure a row in settings chosen for each measure; nDCG at 100 calls is that of the one for Top-10@100."""
    values: dict[str, Values] = {}
    for own, asked in zip(chosen, ASKED, strict=True):
        values |= measured(setting, own, [asked]).values
    return Found(row, values)
