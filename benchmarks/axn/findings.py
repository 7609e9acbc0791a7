"""All that the page tells of SciFact: rows alone and beside the base, curves, seconds, visited leaves, the gate."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.axn.measured import LAMBDAS, RATES, Found, exhaustive, measured, named, ndcg, tuned
from benchmarks.axn.rows import Offline, Row, Setting
from benchmarks.axn.world import World
from rayhier.dataset.queries import load_answers, new_answers
from rayhier.evaluate.significance import Interval, bootstrap
from rayhier.search.rerank import LEXICAL

PER_QUERY, PER_ITEM = Offline("query", 100), Offline("item", 2)
ALL = Offline("query", 1_000_000)
RNR, RNR_BOTH = Row("re-rank: base"), Row("re-rank: base + BM25", first="both")
RIDGE = Row("ridge", fit="ridge")
RIDGE_BOTH = Row("ridge, base + BM25", fit="ridge", first="both")
BIASED = Row("ridge + bias, 2 queries a document", fit="ridge", bias=True, offline=PER_ITEM)
BIASED_BOTH = replace(BIASED, name="ridge + bias, 2 queries a document, base + BM25", first="both")
ADACUR = Row("ADACUR, 50 anchors", fit="lstsq", vectors="anchors", offline=ALL, first="base")
DISTILLED = Row("re-rank: distilled dual encoder", vectors="distilled", offline=PER_QUERY)
TRANSDUCTIVE = Row("ridge, transductive", fit="ridge", vectors="transductive", offline=PER_QUERY)
INDUCTIVE = Row("ridge, inductive", fit="ridge", vectors="inductive", offline=PER_QUERY)
INDUCTIVE_BOTH = replace(INDUCTIVE, name="ridge, inductive, base + BM25", first="both")
GATE = 100
"""Best documents of the base that the gate re-ranks."""

FIXED = (
    RNR,
    Row("re-rank: BM25", first="bm25"),
    RNR_BOTH,
    Row("re-rank: transductive vectors", vectors="transductive", offline=PER_QUERY),
    Row("re-rank: inductive vectors", vectors="inductive", offline=PER_QUERY),
    DISTILLED,
)
PAPER = (
    Row("AXN as printed", fit="lstsq"),
    Row("AXN as printed, transductive", fit="lstsq", vectors="transductive", offline=PER_QUERY),
    Row("AXN as printed, inductive", fit="lstsq", vectors="inductive", offline=PER_QUERY),
)
TOUR = (Row("TOUR, KL", fit="tour-kl"), Row("TOUR, MSE", fit="tour-mse"))
OURS = (
    RIDGE,
    RIDGE_BOTH,
    TRANSDUCTIVE,
    INDUCTIVE,
    INDUCTIVE_BOTH,
    Row("ridge + bias, 100 documents a query", fit="ridge", bias=True, offline=PER_QUERY),
    Row("ridge + bias, 1 query a document", fit="ridge", bias=True, offline=Offline("item", 1)),
    BIASED,
    Row("ridge + bias, 5 queries a document", fit="ridge", bias=True, offline=Offline("item", 5)),
    BIASED_BOTH,
    Row("ridge + bias, 2 queries, transductive", fit="ridge", bias=True, vectors="transductive", offline=PER_ITEM),
)
LAST = (
    Row("ADACUR, 10 anchors", fit="lstsq", vectors="anchors", offline=Offline("query", 1_000_000, 10)),
    ADACUR,
    Row("EXACT: the vector that explains all scores", fit="exact"),
)


@dataclass(frozen=True)
class Gate:
    """Re-ranking the base's best for all test queries, by group of queries: nDCG@10 and intervals over the base."""

    means: dict[str, dict[str, float]]
    """Group -> system -> nDCG@10."""
    over: dict[str, Interval]
    """Group -> the cross-encoder beside the base, over the base."""
    alone: dict[str, Interval]
    """Group -> the cross-encoder alone, over the base."""


@dataclass(frozen=True)
class Findings:
    """What was measured."""

    alone: list[Found]
    beside: list[Found]
    weight: float
    """Weight of the base score beside the cross-encoder's."""
    documents: int
    gate: Gate
    curves: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    """Plot -> row -> points."""
    rounds: list[float] = field(default_factory=list)
    """Time of the fits as a share of a query's, 100 calls in 5 rounds; one number."""
    leaves: dict[str, dict[str, float]] = field(default_factory=dict)
    black_box: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def rows_of(setting: Setting) -> list[Row]:
    """All rows; the settings that are tuned are those that find most on the held-out queries."""
    paper = [tuned(setting, [replace(row, lam=lam) for lam in LAMBDAS], (100, 500)) for row in PAPER]
    paper = [replace(row, name=f"{row.name}, λ {row.lam:g}") for row in paper]
    tour = [tuned(setting, [replace(row, rate=rate) for rate in RATES], (100, 500)) for row in TOUR]
    tour = [replace(row, name=f"{row.name}, rate {row.rate:g}") for row in tour]
    return [*FIXED, *tour, *paper, *OURS, *LAST]


def tables(world: World, weight: float, report: Callable[[str], None]) -> tuple[list[Found], list[Found]]:
    """Every row for the cross-encoder alone, and beside the base score."""
    both = []
    for beside in (0.0, weight):
        held = Setting(world, world.held, beside, leave_one_out=True)
        tested = Setting(world, world.tested, beside, leave_one_out=False)
        found = [exhaustive(tested)]
        for row in rows_of(held):
            found.append(measured(tested, row))
            report(f"beside {beside:g}: {row.name}")
        both.append(found)
    return both[0], both[1]


def gate(world: World, weight: float) -> Gate:
    """Re-rank the base's hundred best for all test queries, the rest of the order as it was."""
    queries = world.queries("test")
    base_QN = world.base(queries).astype(np.float64)
    best_QK = np.argsort(-base_QN, axis=1, kind="stable")[:, :GATE]
    base_QK = np.take_along_axis(base_QN, best_QK, axis=1)
    score_QK = world.best_scores(queries, best_QK).astype(np.float64)
    words_QN = np.stack([world.words.scores(text) for text in queries.texts]).astype(np.float64)
    both_QN = base_QN + LEXICAL * words_QN / np.maximum(words_QN.max(axis=1, keepdims=True), 1e-9)

    def ordered(value_QK: np.ndarray) -> list[np.ndarray]:
        return list(np.take_along_axis(best_QK, np.argsort(-value_QK, axis=1, kind="stable"), axis=1))

    orders = {
        "base": list(best_QK),
        "BM25": list(np.argsort(-words_QN, axis=1, kind="stable")[:, :GATE]),
        "base + BM25": list(np.argsort(-both_QN, axis=1, kind="stable")[:, :GATE]),
        "cross-encoder alone": ordered(score_QK),
        "cross-encoder beside base": ordered(score_QK + weight * base_QK),
    }
    values = {name: ndcg(world, queries, order) for name, order in orders.items()}
    new_Q = new_answers(queries, load_answers(world.corpus, "train"))
    groups = {"all": np.ones(len(new_Q), bool), "new answers": new_Q}
    over, alone = (
        {group: bootstrap((values[name] - values["base"])[own_Q, None])[0] for group, own_Q in groups.items()}
        for name in ("cross-encoder beside base", "cross-encoder alone")
    )
    means = {group: {name: float(own[own_Q].mean()) for name, own in values.items()} for group, own_Q in groups.items()}
    return Gate(means, over, alone)


CALLS = (50, 100, 200, 300, 500)
TIMED = 5
"""Queries that are timed."""


def curves(world: World) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Points of the plots, for the cross-encoder alone."""
    tested = Setting(world, world.tested, 0.0, leave_one_out=False)
    paper = PAPER[0]
    compared = (RNR, RNR_BOTH, paper, RIDGE, RIDGE_BOTH, BIASED, BIASED_BOTH, ADACUR)
    found: dict[str, dict[str, list[tuple[float, float]]]] = {
        "calls": {},
        "calls10": {},
        "rounds": {},
        "λ": {},
        "μ": {},
    }
    for row in compared:
        own = measured(tested, row, [(k, calls) for calls in CALLS for k in (10, 100) if calls >= k])
        found["calls"][row.name] = [(calls, own.mean(named(100, calls))) for calls in CALLS if calls >= 100]
        found["calls10"][row.name] = [(calls, own.mean(named(10, calls))) for calls in CALLS]
    one = [(100, 500)]
    for row in (paper, RIDGE, RIDGE_BOTH, BIASED, ADACUR):
        found["rounds"][row.name] = [
            (rounds, measured(tested, replace(row, rounds=rounds), one).mean(named(100, 500)))
            for rounds in (2, 3, 5, 10, 20)
        ]
    for row in PAPER:
        found["λ"][row.name] = [
            (lam, measured(tested, replace(row, lam=lam), one).mean(named(100, 500))) for lam in (0, 0.2, 0.5, 0.8, 1)
        ]
    for row in (RIDGE, RIDGE_BOTH, BIASED):
        found["μ"][row.name] = [
            (mu, measured(tested, replace(row, mu=mu), one).mean(named(100, 500))) for mu in (0.01, 0.1, 1, 10, 100)
        ]
    return found | {"offline": _offline(tested, len(world.texts))}


def _offline(tested: Setting, documents: int) -> dict[str, list[tuple[float, float]]]:
    """Top-100@500 against calls made ahead, by what is learned from them."""
    kinds: dict[str, Sequence[Row]] = {
        "bias, queries a document": [
            Row("", fit="ridge", bias=True, offline=Offline("item", count)) for count in (1, 2, 5, 10)
        ],
        "bias, documents a query": [
            Row("", fit="ridge", bias=True, offline=Offline("query", count)) for count in (100, 200, 500)
        ],
        "transductive, documents a query": [
            Row("", fit="ridge", vectors="transductive", offline=Offline("query", count)) for count in (100, 200, 500)
        ],
        "transductive, queries a document": [
            Row("", fit="ridge", vectors="transductive", offline=Offline("item", count)) for count in (1, 2, 5)
        ],
        "inductive, documents a query": [
            Row("", fit="ridge", vectors="inductive", offline=Offline("query", count)) for count in (100, 200, 500)
        ],
        "ADACUR": [
            Row("", fit="lstsq", vectors="anchors", offline=Offline("query", 1_000_000, count))
            for count in (5, 10, 25, 50)
        ],
    }
    return {
        name: [(row.calls(documents), measured(tested, row, [(100, 500)]).mean(named(100, 500))) for row in rows]
        for name, rows in kinds.items()
    }


def rounds_share(world: World) -> tuple[float, float, float]:
    """Median seconds of the fits of a query (100 calls in 5 rounds) and of reading its 100 pairs; their share."""
    tested = Setting(world, world.tested, 0.0, leave_one_out=False)
    timed, fits = range(min(TIMED, len(world.tested))), []
    for query in timed:
        fit = tested.asked(RIDGE, query, np.arange(len(world.texts))).fit
        began = time.perf_counter()
        for round_ in range(1, 6):
            read_S = np.argsort(-tested.base_QN[query])[: 20 * round_]
            fit.estimate(read_S, tested.score_QN[query, read_S].astype(np.float64))
        fits.append(time.perf_counter() - began)
    reads = []
    for query in timed:
        rows = np.argsort(-tested.base_QN[query])[:100]
        began = time.perf_counter()
        # A scorer of its own: the truth's keeps what it has read.
        world.fresh_scorer([world.tested.texts[query]] * 100, [world.texts[row] + f" {query}" for row in rows])
        reads.append(time.perf_counter() - began)
    fitting, reading = float(np.median(fits)), float(np.median(reads))
    return fitting, reading, fitting / (fitting + reading)


def black_box(world: World) -> dict[str, float]:
    """Top-10@100 where BM25 is the scorer: no transformer, and no vectors of its own."""

    def words(queries: object) -> np.ndarray:
        return np.stack([world.words.scores(text) for text in queries.texts])  # type: ignore[attr-defined]

    setting = Setting(world, world.tested, 0.0, leave_one_out=False, black_box=words)
    rows = (RNR, RIDGE, BIASED)
    return {row.name: measured(setting, row, [(10, 100)]).mean(named(10, 100)) for row in rows}


def steps(world: World) -> dict[str, float]:
    """Seconds of every step made ahead, but of the scores, which cost their number times that of a pair."""
    tested = Setting(world, world.tested, 0.0, leave_one_out=False)
    _ = tested.held_scores
    named_rows = {
        "bias, from 2 queries a document": BIASED,
        "transductive vectors, from 100 documents a query": TRANSDUCTIVE,
        "inductive vectors, from 100 documents a query": INDUCTIVE,
        "distilled head, from 100 documents a query": DISTILLED,
    }
    found = {}
    for name, row in named_rows.items():
        began = time.perf_counter()
        Setting(world, world.tested, 0.0, leave_one_out=False, scores=tested.score_QN, held=tested.held_scores).learned(
            row, 0
        )
        found[name] = time.perf_counter() - began
    return found
