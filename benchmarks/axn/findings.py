"""All that the page tells of SciFact: rows alone and beside the base, curves, seconds, visited leaves, the gate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import leaf_maps
from benchmarks.axn import rows
from benchmarks.axn.rows import ASKED, LEXICAL, TUNED, Found, Offline, Row, Setting, measured, named
from benchmarks.axn.world import World
from benchmarks.collection import made
from benchmarks.machine import timed
from benchmarks.statistics import Estimate, groups, paired
from rayhier.arrays import Ints
from rayhier.dataset.queries import Queries, load_answers, new_answers
from rayhier.dataset.ranking import Ranking
from rayhier.job.run import run
from rayhier.search.model import Model
from rayhier.search.rerank import Reranker
from rayhier.search.segment import DOC_ID, VECTOR
from rayhier.spec.search import AxnRerank, Rnr
from rayhier.storage import columns
from rayhier.storage.leaf_map import BUILT, LeafMap

GATE = 100
"""Best documents of the base that the gate re-ranks."""
Points = dict[str, list[tuple[float, float]]]
"""Row -> points of its curve in a plot."""


@dataclass(frozen=True)
class Gate:
    """Re-ranking the base's best for all test queries, by group of queries: nDCG@10 and intervals over the base."""

    means: dict[str, dict[str, float]]
    """Group -> system -> nDCG@10."""
    over: dict[str, Estimate]
    """Group -> the cross-encoder beside the base, over the base."""
    alone: dict[str, Estimate]
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
    curves: dict[str, Points]
    """Plot -> row -> points."""
    factors: dict[tuple[str, str], str]
    """First round and measure -> the row of cheap factors that was chosen on held-out queries."""
    leaves: dict[str, dict[str, float]]
    black_box: dict[str, float]
    timing: dict[str, float]
    """Median seconds of a query's 100 calls over all documents, `rounds` (5) or `once`, and of reading these pairs."""
    steps: dict[str, float]
    """Step made ahead -> its seconds."""


def tables(world: World, weight: float, report: Callable[[str], None]) -> tuple[list[Found], list[Found]]:
    """Every row for the cross-encoder alone, and beside the base score."""
    both = []
    for base_weight in (0.0, weight):
        chooses = Setting(world, world.chooses, base_weight, leave_one_out=True)
        tested = Setting(world, world.tested, base_weight, leave_one_out=False)
        outcomes = [rows.exhaustive(tested)]
        for row in rows.ROWS.values():
            outcomes.append(measured(tested, row))
            report(f"beside {base_weight:g}: {row.name}")
        for name, tried in TUNED.items():
            chosen = rows.tuned(chooses, tried)
            own = replace(chosen[0], name=f"{name}, {rows.settings(tried, chosen)}")
            outcomes.append(rows.measured_each(tested, own, chosen))
            report(f"beside {base_weight:g}: {own.name}")
        both.append(outcomes)
    return both[0], both[1]


def chosen_factors(world: World) -> dict[tuple[str, str], str]:
    """First round and measure -> the row of cheap factors that finds most for the held-out queries."""
    chooses, best = Setting(world, world.chooses, 0.0, leave_one_out=True), {}
    for first in ("base", "both"):
        values = {row.name: measured(chooses, row) for row in rows.CHEAP if row.first == first}
        for asked in ASKED[1:]:
            best[first, named(*asked)] = max(values, key=lambda name: values[name].mean(named(*asked)))
    return best


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
    values = {name: rows.ndcg(world, queries, order) for name, order in orders.items()}
    by_group = groups(new_answers(queries, load_answers(world.corpus, "train")))
    return Gate(
        {group: {name: float(own[own_Q].mean()) for name, own in values.items()} for group, own_Q in by_group.items()},
        *(
            {group: paired(values[name][own_Q], values["base"][own_Q]) for group, own_Q in by_group.items()}
            for name in ("cross-encoder beside base", "cross-encoder alone")
        ),
    )


CALLS = (50, 100, 200, 300, 500)
TIMED = 15
"""Queries that are timed."""


def curves(world: World) -> dict[str, Points]:
    """Points of the plots, for the cross-encoder alone."""
    tested = Setting(world, world.tested, 0.0, leave_one_out=False)
    paper = rows.PAPER[0]
    found: dict[str, Points] = {name: {} for name in ("calls", "calls10", "rounds", "λ", "λ1", "μ")}
    ours = (rows.RIDGE, rows.RIDGE_BOTH, rows.BIASED, rows.BIASED_BOTH)
    for row in (rows.RNR, rows.RNR_BOTH, paper, *ours, rows.ADACUR, rows.BEST_VECTOR):
        own = measured(tested, row, [(k, calls) for calls in CALLS for k in (10, 100) if calls >= k])
        found["calls"][row.name] = [(calls, own.mean(named(100, calls))) for calls in CALLS if calls >= 100]
        found["calls10"][row.name] = [(calls, own.mean(named(10, calls))) for calls in CALLS]

    def across(row: Row, key: str, values: Sequence[object], asked: tuple[int, int] = (100, 500)) -> list[float]:
        own = [replace(row, **{key: value}) for value in values]  # type: ignore[arg-type]
        return [measured(tested, changed, [asked]).mean(named(*asked)) for changed in own]

    lambdas, mus, rounds = (0, 0.2, 0.5, 0.8, 1), (0.01, 0.1, 1, 10, 100), (2, 3, 5, 10, 20)
    for row in (paper, rows.RIDGE, rows.RIDGE_BOTH, rows.BIASED, rows.ADACUR):
        found["rounds"][row.name] = list(zip(rounds, across(row, "rounds", rounds), strict=True))
    for row in rows.PAPER:
        found["λ"][row.name] = list(zip(lambdas, across(row, "lam", lambdas), strict=True))
        found["λ1"][row.name] = list(zip(lambdas, across(row, "lam", lambdas, (1, 100)), strict=True))
    for row in (rows.RIDGE, rows.RIDGE_BOTH, rows.BIASED):
        found["μ"][row.name] = list(zip(mus, across(row, "mu", mus), strict=True))

    # Top-100@500 against calls made ahead, by what is learned from them.
    ridge, anchors = Row("", fit="ridge"), Row("", fit="lstsq", vectors="anchors")
    ahead = {
        "queries a document": [Offline("item", count) for count in (1, 2, 5, 10)],
        "documents a query": [Offline("query", count) for count in (100, 200, 500)],
    }
    kinds = {
        f"{name}, {what}": [replace(row, offline=offline) for offline in made]
        for name, row in (
            ("bias", replace(ridge, bias=True)),
            ("transductive", replace(ridge, vectors="transductive")),
            ("inductive", replace(ridge, vectors="inductive")),
        )
        for what, made in ahead.items()
    }
    counts = (5, 10, 25, 50)
    kinds["ADACUR"] = [replace(anchors, offline=Offline("query", 1_000_000, count)) for count in counts]
    found["offline"] = {
        name: [(row.calls(len(world.texts)), measured(tested, row, [(100, 500)]).mean(named(100, 500))) for row in made]
        for name, made in kinds.items()
    }
    return found


def timing(world: World) -> dict[str, float]:
    """Time the product's own re-ranker, and the reading of pairs, over all documents."""
    queries, every = world.tested, world.documents
    known = dict(zip(queries.texts, world.known(queries), strict=True))
    row_of = {text: row for row, text in enumerate(world.texts)}

    def read(asked: Sequence[str], items: Sequence[str]) -> np.ndarray:
        return np.array([known[query][row_of[item]] for query, item in zip(asked, items, strict=True)])

    table = pa.table(
        {
            DOC_ID: pa.array(every.ids, pa.string()),
            "title": [""] * len(every.ids),
            "text": world.texts,
            VECTOR: columns.vector_column(every.vector_NM, pa.float32()),
        }
    )
    specs: dict[str, AxnRerank | Rnr] = {
        "rounds": AxnRerank(type="axn", budget=100, rounds=5),
        "once": Rnr(type="rnr", budget=100),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ("rounds", "once", "read_rounds", "read_once")}
    for query in range(min(TIMED, len(queries))):
        text, base_N = queries.texts[query], world.base(queries)[query]
        row_1K = np.argsort(-base_N, kind="stable")[None]
        zero_Q = np.zeros(1, np.int64)
        found = Ranking(base_N[row_1K], row_1K, table, zero_Q, zero_Q, zero_Q)
        for name, spec in specs.items():
            reranker = Reranker(spec, read)
            seconds[name].append(timed(lambda: reranker([text], queries.vector_QM[[query]], found, 100)))  # noqa: B023
        items = [world.texts[row] for row in row_1K[0, :100]]
        for name, size in (("read_rounds", 20), ("read_once", 100)):
            # Texts that were not read before: the scorer keeps what it has read.
            asked = f"{text} {name}"
            parts = [items[start : start + size] for start in range(0, 100, size)]
            seconds[name].append(timed(lambda: [world.truth.scorer([asked] * size, part) for part in parts]))  # noqa: B023
    return {name: float(np.median(own)) for name, own in seconds.items()}


def black_box(world: World) -> dict[str, float]:
    """Top-10@100 where BM25 is the scorer: no transformer, and no vectors of its own."""

    def words(queries: Queries) -> np.ndarray:
        return np.stack([world.words.scores(text) for text in queries.texts])

    setting = Setting(world, world.tested, 0.0, leave_one_out=False, black_box=words)
    asked = (rows.RNR, rows.RIDGE, rows.BIASED)
    return {row.name: measured(setting, row, [(10, 100)]).mean(named(10, 100)) for row in asked}


def steps(world: World, pair: float) -> dict[str, float]:
    """Seconds of every step made ahead: the pairs, each of which takes `pair` seconds, and what is learned of them."""
    tested = Setting(world, world.tested, 0.0, leave_one_out=False, lessons={})
    _ = tested.held_scores
    documents, found = len(world.texts), {}
    for row, what in ((rows.TRANSDUCTIVE, "100 documents of 50 queries"), (rows.BIASED, "2 queries of every document")):
        calls = row.calls(documents)
        found[f"pairs: {what}, {calls:,}"] = pair * calls
    found[f"pairs: 100 documents of 1,000 queries, {PAPER_CALLS:,}"] = pair * PAPER_CALLS
    found[f"pairs: ADACUR's 50 anchors, {rows.ADACUR.calls(documents):,}"] = pair * rows.ADACUR.calls(documents)
    learned = {
        "bias, from 2 queries a document": rows.BIASED,
        "transductive vectors, from 100 documents a query": rows.TRANSDUCTIVE,
        "inductive vectors, from 100 documents a query": rows.INDUCTIVE,
        "distilled head, from 100 documents a query": TUNED["re-rank: distilled head of the dual encoder"][1],
    }
    return found | {name: timed(lambda: tested.learned(row, 0)) for name, row in learned.items()}  # noqa: B023


PAPER_CALLS = 100_000
"""Calls that the paper makes ahead at most: 100 documents of each of 1,000 queries."""
BUDGET, TIMES = 100, (4, 8, 16)
"""Calls of a query, and documents that visited leaves hold, at least, as multiples of these."""
OTHER, QUERIES = "acl_title2abs", 100
"""The larger collection, and its test queries that are asked."""


def visited(world: World, queries: Queries, least: int) -> list[Ints]:
    """Rows of the documents in the leaves that each query visits: the fewest leaves that hold as many documents."""
    run(world.plan, ("train", "index"))
    seed = world.plan.spec.evaluate.seeds[0]
    index, trained = made(world.plan, "index", "model", seed=seed)
    model, leaf_map = Model.open(trained, world.plan.spec), LeafMap.open(index.root, BUILT)
    row_of = {name: row for row, name in enumerate(world.documents.ids)}
    held: dict[int, list[int]] = {}
    for name, leaf in zip(*leaf_maps.rows(leaf_map), strict=True):
        held.setdefault(int(leaf), []).append(row_of[name])
    encoded = model.encode_stored(queries.vector_QM, lambda: queries.texts)
    leaves_QB, _ = model.route(encoded, model.router.n_leaves)
    found = []
    for leaves in leaves_QB.tolist():
        inside: set[int] = set()
        for leaf in leaves:
            inside.update(held.get(leaf, []))
            if len(inside) >= least:
                break
        found.append(np.array(sorted(inside)))
    return found


def beside_all(world: World) -> dict[str, dict[str, float]]:
    """SciFact: Top-10@100 of rows over all documents, and in the visited leaves alone, of the best over all."""
    shown, asked = (rows.RNR, rows.RIDGE, rows.RIDGE_BOTH, rows.BIASED, rows.BIASED_BOTH), [(10, BUDGET)]
    everywhere = Setting(world, world.tested, 0.0, leave_one_out=False)
    over_all = {row.name: measured(everywhere, row, asked).mean(named(10, BUDGET)) for row in shown}
    found = {}
    for times in TIMES:
        pools = visited(world, world.tested, times * BUDGET)
        inside = Setting(world, world.tested, 0.0, leave_one_out=False, pool=pools.__getitem__)
        share = float(np.mean([len(pool) for pool in pools])) / len(world.texts)
        for row in shown:
            own = measured(inside, row, asked).mean(named(10, BUDGET))
            found[f"{row.name}; {times} times the calls"] = {"all": over_all[row.name], "leaves": own, "visited": share}
    return found


def elsewhere(workdir: Path, trained: Path) -> dict[str, float]:
    """acl_title2abs: Top-1@100 and Top-10@100 in the visited leaves, every document of which is scored.

    Texts are encoded as far as pairs are read, 128 tokens, which is twice as fast.
    """
    none = [f"{part}=null" for part in ("cross_encoder.train", "scores", "factors", "search.rerank")]
    more = [f"cross_encoder.model={trained}", "cross_encoder.beside=0", "encoder.max_length=128", *none]
    world = World(workdir, OTHER, more)
    queries = world.queries("test")
    queries = queries.some(np.arange(len(queries)) < QUERIES)
    pools = visited(world, queries, TIMES[0] * BUDGET)
    score_QN = np.full((QUERIES, len(world.texts)), -np.inf)
    for query, pool in enumerate(pools):
        score_QN[query, pool] = world.best_scores(queries.some(np.arange(QUERIES) == query), pool[None])[0]
    setting = Setting(world, queries, 0.0, leave_one_out=False, pool=pools.__getitem__, scores=score_QN)
    found = {"visited": float(np.mean([len(pool) for pool in pools])) / len(world.texts)}
    for row in (rows.RNR, rows.RIDGE, rows.RIDGE_BOTH):
        order = setting.run(row, BUDGET)
        found |= {f"{row.name}: Top-{k}@{BUDGET}": float(rows.recall(order, score_QN, k).mean()) for k in (1, 10)}
    return found
