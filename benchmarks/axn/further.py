"""Rows that docs/axn.md lacks in its tables: `python -m benchmarks.axn.further` writes its section "Further rows".

Budgets that are spent in other ways (half of the calls at first, ten rounds, GAR), settings that are chosen for each
measure from grids with room on both sides, ridge over anchors' scores, and visited leaves judged by answers. The
section is kept in further.md, with which the page ends.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa

from benchmarks import collection, pages
from benchmarks.axn.findings import visited
from benchmarks.axn.rows import ASKED, NDCG, TUNED, Found, Offline, Row, Setting, named, ndcg, recall
from benchmarks.axn.world import World
from benchmarks.commands import Options, clock
from benchmarks.machine import set_threads
from benchmarks.statistics import paired
from benchmarks.tables import table
from rayhier.arrays import Floats, Ints, Values
from rayhier.cluster.kmeans import nearest
from rayhier.dataset.holdout import held_queries
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import whole_scan
from rayhier.scores.call_budget import Asked
from rayhier.scores.estimators import Fit, Ridge

T = TypeVar("T")
TITLE = "Further rows"
SECTION = Path(__file__).with_name("further.md")
BATCH = 16
"""Documents that GAR reads at a time, as in its paper."""
NEAR = 128
"""Neighbours of a document that are found, the most that GAR may take."""
TESTED, HELD = 25, 15
"""Test queries that are measured, and train queries on which settings are chosen: fewer than the page's, for time."""
NEIGHBOURS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
MUS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0)
ANCHOR_MUS = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Scores of anchors are no unit vectors: a penalty of the same effect is larger."""
ONE, TEN, DEEP = (named(*wanted) for wanted in ASKED)
Spend = Literal["rounds", "half", "gar"]
"""Equal rounds; half of the calls in the first round, the others in equal ones; or GAR's batches."""
Key = Literal["lam", "rate", "mu", "neighbours"]


@dataclass(frozen=True)
class System:
    """A row, how it spends its calls, and the setting that is chosen for each measure."""

    row: Row
    spend: Spend = "rounds"
    neighbours: int = 0
    """Of every document that GAR reads."""
    key: Key | None = None
    """What is chosen; None: nothing."""
    values: tuple[float, ...] = ()
    """What is tried, in order."""
    mixed: bool = False
    """Whether vectors are the base's and anchors' scores side by side."""

    def having(self, value: float) -> "System":
        """The system with a value of its setting."""
        match self.key:
            case "neighbours":
                return replace(self, neighbours=int(value))
            case "mu":
                return replace(self, row=replace(self.row, mu=value))
            case "rate":
                return replace(self, row=replace(self.row, rate=value))
            case "lam":
                return replace(self, row=replace(self.row, lam=value))
            case _:
                return self


def sizes(budget: int, rounds: int, *, half: bool = False) -> list[int]:
    """Calls of every round: equal ones, or half of all in the first; the last round has the remainder.

    >>> sizes(103, 5), sizes(100, 5, half=True)
    ([20, 20, 20, 20, 23], [50, 12, 12, 12, 14])
    """
    first = budget // 2 if half else budget // rounds
    each = (budget - first) // max(1, rounds - 1)
    return [first, *[each] * (rounds - 2), budget - first - each * (rounds - 2)] if rounds > 1 else [budget]


def in_rounds(score_P: Values, pool: Asked, calls: Sequence[int]) -> Ints:
    """Rows of a query's pool, best first: those read, in rounds of so many calls, by score; the others by estimate."""
    read_S, estimate_P = np.zeros(0, np.int64), pool.first_P
    for count in calls:
        if len(read_S):
            estimate_P = pool.fit.estimate(read_S, score_P[read_S])
        read_S = np.append(read_S, _unread(estimate_P, read_S)[:count])
    order_S = np.lexsort((read_S, -score_P[read_S]))
    return np.concatenate([read_S[order_S], _unread(estimate_P, read_S)])


def _unread(estimate_P: Values, read_S: Ints) -> Ints:
    """Rows not yet read, best estimates first."""
    open_P = estimate_P.astype(np.float64, copy=True)
    open_P[read_S] = -np.inf
    return np.argsort(-open_P, kind="stable")[: len(open_P) - len(read_S)]


def gar(score_N: Values, first_N: Values, near_NK: Ints, budget: int, batch: int = BATCH) -> Ints:
    """Documents of a query, best first, by graph-based adaptive re-ranking: those read by score, then as they were.

    Batches come in turn from the first order and from the neighbours of what was read, `near_NK` [n, k]; a neighbour
    counts as much as the best score among the documents that it is near to. Source: MacAvaney et al., "Adaptive
    Re-Ranking with a Corpus Graph", CIKM 2022, Algorithm 1.
    """
    order: list[int] = np.argsort(-first_N, kind="stable").tolist()
    place, read, frontier, take_frontier = 0, dict[int, float](), dict[int, float](), False
    budget = min(budget, len(order))
    while len(read) < budget:
        count = min(batch, budget - len(read))
        if take_frontier and frontier:
            chosen = sorted(frontier, key=lambda row: (-frontier[row], row))[:count]
        else:
            chosen = []
            while len(chosen) < count and place < len(order):
                if order[place] not in read:
                    chosen.append(order[place])
                place += 1
        for row in chosen:
            read[row] = float(score_N[row])
            frontier.pop(row, None)
        for row in chosen:
            for near in near_NK[row].tolist():
                if near not in read:
                    frontier[near] = max(frontier.get(near, -np.inf), read[row])
        take_frontier = not take_frontier
    best = sorted(read, key=lambda row: (-read[row], row))
    return np.array([*best, *(row for row in order if row not in read)])


def middle_best(values: Sequence[float]) -> int:
    """Place of the best of several values; of equal ones the middle, so that an end is chosen where it alone is best.

    >>> middle_best([0.5, 0.7, 0.7, 0.7]), middle_best([0.5, 0.4])
    (2, 0)
    """
    best = np.flatnonzero(np.asarray(values) >= max(values) - 1e-12)
    return int(best[len(best) // 2])


class Orders:
    """Orders of documents by systems, for the queries of a setting."""

    def __init__(self, setting: Setting, near_NK: Ints) -> None:
        """Take what is searched, and the nearest documents of every document [n, k]."""
        self.setting, self.near_NK = setting, near_NK
        self.every = np.arange(setting.base_QN.shape[1])

    def __call__(self, system: System, budget: int) -> list[Ints]:
        """Documents of every query, best first, for a number of calls."""
        return [self._order(system, query, budget) for query in range(len(self.setting.queries))]

    def _order(self, system: System, query: int, budget: int) -> Ints:
        row, score_N = system.row, self.setting.score_QN[query]
        pool = self.setting.asked(row, query, self.every)
        if system.spend == "gar":
            return gar(score_N, pool.first_P, self.near_NK[:, : system.neighbours], budget)
        if system.mixed and isinstance(pool.fit, Ridge):
            pool = replace(pool, fit=self._mixed(pool.fit, row))
        rounds = 1 if row.fit in ("none", "all-scores") else min(row.rounds, budget)
        return in_rounds(score_N, pool, sizes(budget, rounds, half=system.spend == "half"))

    def _mixed(self, fit: Ridge, row: Row) -> Fit:
        """A ridge over base vectors and anchors' scores, the latter of the same mean square as the former."""
        centred_NA = fit.vector_PM - fit.vector_PM.mean(axis=0)
        scaled_NA = centred_NA / max(float(np.sqrt((centred_NA**2).sum(axis=1).mean())), 1e-9)
        return Ridge(fit.prior_P, np.hstack([self.setting.world.documents.vector_NM, scaled_NA]), row.mu)

    def measured(self, system: System, wanted: Sequence[tuple[int, int]] = ASKED) -> Found:
        """Measure a system for some numbers of best documents and calls; nDCG at each number of calls."""
        values: dict[str, Values] = {}
        for calls in dict.fromkeys(calls for _, calls in wanted):
            order = self(system, calls)
            values |= {named(k, most): recall(order, self.setting.score_QN, k) for k, most in wanted if most == calls}
            values[f"{NDCG}@{calls}"] = ndcg(self.setting.world, self.setting.queries, order)
        return Found(system.row, values)


@dataclass(frozen=True)
class Chosen:
    """A setting that was chosen for a measure, and what each value tried found for the held-out queries."""

    system: System
    measure: str
    means: tuple[float, ...]

    @property
    def place(self) -> int:
        """Place of the chosen value."""
        return middle_best(self.means)

    @property
    def value(self) -> float:
        """The chosen value."""
        return self.system.values[self.place]


def choose(orders: Orders, system: System) -> list[Chosen]:
    """The setting of a system for each measure, by the held-out queries."""
    tried = [orders.measured(system.having(value)) for value in system.values]
    return [Chosen(system, measure, tuple(result.mean(measure) for result in tried)) for measure in (ONE, TEN, DEEP)]


@dataclass(frozen=True)
class Measured:
    """What a system found, and how its setting was chosen."""

    system: System
    result: Found
    chosen: Sequence[Chosen] = ()


def measured_all(
    systems: Sequence[System], chooses: Orders, tested: Orders, report: Callable[[str], None]
) -> Iterator[Measured]:
    """Measure systems, each in the settings that the held-out queries chose for each measure."""
    for system in systems:
        chosen = choose(chooses, system) if system.key else []
        values: dict[str, Values] = {}
        if chosen:
            for setting, wanted in zip(chosen, ASKED, strict=True):
                values |= tested.measured(system.having(setting.value), [wanted]).values
        else:
            values = tested.measured(system).values
        report(system.row.name)
        yield Measured(system, Found(system.row, values), chosen)


def systems(held: int) -> list[System]:
    """All rows, those of the page's tables that they are compared with first."""
    two, anchors = Offline("item", 2, held), Offline("query", 1_000_000, held)
    ridge, both = Row("ridge", "ridge"), Row("ridge, base + BM25", "ridge", first="both")
    biased = Row("ridge + bias, 2 queries a document", "ridge", bias=True, offline=two)
    adacur = Row(f"ADACUR, {held} anchors", "lstsq", "anchors", offline=anchors)
    over = Row("ridge over anchors' scores", "ridge", "anchors", offline=anchors)
    over_biased = replace(over, name="ridge + bias over anchors' scores", bias=True)
    plain = [System(row) for row in (Row("re-rank: base"), Row("re-rank: base + BM25", first="both"))]
    plain += [System(row) for row in (ridge, both, biased, adacur)]
    axn, *tuned = (_tuned(name, held) for name in TUNED)

    def called(row: Row, what: str, **changed: int) -> Row:
        return replace(row, name=f"{row.name}; {what}", rounds=changed.get("rounds", row.rounds))

    return [
        *plain,
        *(System(called(row, "half of the calls first"), "half") for row in (ridge, both, biased, adacur)),
        *(System(called(row, "μ by measure"), key="mu", values=MUS) for row in (ridge, both, biased)),
        System(Row("GAR"), "gar", key="neighbours", values=NEIGHBOURS),
        System(Row("GAR, base + BM25", first="both"), "gar", key="neighbours", values=NEIGHBOURS),
        *(System(row, key="mu", values=ANCHOR_MUS) for row in (over, over_biased)),
        System(replace(over, name="ridge over vectors and anchors' scores"), key="mu", values=MUS, mixed=True),
        *(System(called(row, "ten rounds", rounds=10)) for row in (ridge, both, biased, adacur)),
        replace(axn, row=called(axn.row, "ten rounds", rounds=10)),
        axn,
        *tuned,
    ]


def _tuned(name: str, held: int) -> System:
    """A row of the page whose setting is chosen, learning from so many held-out queries."""
    rows = TUNED[name]
    key: Key = "lam" if rows[0].lam != rows[-1].lam else "rate"
    values = tuple(getattr(row, key) for row in rows)
    offline = rows[0].offline
    row = replace(rows[0], name=name, offline=None if offline is None else replace(offline, queries=held))
    return System(row, key=key, values=values)


def shown_rows(every: Sequence[Measured], documents: int) -> list[str]:
    """A table of what systems find, over re-ranking and ridge in the same first order."""
    by_name = {measured.result.row.name: measured.result for measured in every}
    head = ["", ONE, TEN, DEEP]
    head += [f"{measure} over {control}" for control in ("re-ranking", "ridge") for measure in (TEN, DEEP)]
    lines = []
    for result in by_name.values():
        both = result.row.first == "both"
        controls = (
            by_name["re-rank: base + BM25" if both else "re-rank: base"],
            by_name[f"ridge{', base + BM25' * both}"],
        )
        cells = [f"{result.mean(measure):.3f}" for measure in (ONE, TEN, DEEP)]
        for control in controls:
            cells += ["" if result is control else result.over(control, name).shown for name in (TEN, DEEP)]
        ahead = result.row.calls(documents)
        lines.append([result.row.name, *cells, f"{result.mean(f'{NDCG}@100'):.3f}", f"{ahead:,}" if ahead else ""])
    return table([*head, f"{NDCG}, 100 calls", "calls ahead"], lines)


SIGNS: dict[Key, str] = {"lam": "λ", "rate": "rate", "mu": "μ", "neighbours": "neighbours"}


def shown_grids(every: Sequence[Measured]) -> list[str]:
    """A table of the settings that were chosen: what they and both ends of the grid find for the held-out queries."""
    lines = []
    for chosen in (chosen for measured in every for chosen in measured.chosen):
        tried, means = chosen.system.values, chosen.means
        end = chosen.place in (0, len(tried) - 1) and not (chosen.system.key == "lam" and chosen.value in (0, 1))
        lines.append(
            [
                chosen.system.row.name,
                chosen.measure,
                f"{SIGNS[chosen.system.key or 'mu']} {chosen.value:g}{'*' * end}",
                *(f"{value:g}: {mean:.3f}" for value, mean in zip(tried[:2], means[:2], strict=True)),
                f"{means[chosen.place]:.3f}",
                *(f"{value:g}: {mean:.3f}" for value, mean in zip(tried[-2:], means[-2:], strict=True)),
            ]
        )
    return table(["", "measure", "chosen", "first", "second", "found by the chosen", "last but one", "last"], lines)


ANSWERS = ("R@1", NDCG)
FIRST = 100
"""Documents that are re-ranked."""
TIMES = (4, 8, 16)
"""Documents that visited leaves hold, at least, as multiples of those."""


def by_answers(world: World, queries: Queries, weight: float) -> Iterator[list[str]]:
    """Lines on visited leaves: the first hundred in them re-ranked, and judged by answers against those of all.

    The cross-encoder orders the hundred alone, and beside the base: by its score + weight · base.
    """
    base_QN, judge = world.base(queries).astype(np.float64), Judge(queries, ANSWERS)
    ids = pa.array(world.documents.results, pa.string())
    orders = {"the base": (1.0, 0.0), "the cross-encoder alone": (0.0, 1.0), "both": (weight, 1.0)}

    def judged(row_QK: Ints) -> dict[str, dict[str, Values]]:
        base_QK, values = np.take_along_axis(base_QN, row_QK, axis=1), {}
        score_QK = world.best_scores(queries, row_QK).astype(np.float64)
        place_QK = np.broadcast_to(-np.arange(row_QK.shape[1], dtype=np.float32), row_QK.shape)
        for name, (base, score) in orders.items():
            order_QK = np.argsort(-(base * base_QK + score * score_QK), axis=1, kind="stable")
            ordered = whole_scan(place_QK, np.take_along_axis(row_QK, order_QK, axis=1), ids, 0)
            values[name] = judge.values(ordered)
        return values

    def lines(title: str, share: float, judged_as: dict[str, dict[str, Values]], *, over: bool) -> Iterator[list[str]]:
        for order, values in judged_as.items():
            means = [f"{values[name].mean():.3f}" for name in ANSWERS]
            points = [paired(values[name], everywhere[order][name]).shown if over else "" for name in ANSWERS]
            yield [f"{title}, by {order}", f"{share:.1%}", *means, *points]

    everywhere = judged(np.argsort(-base_QN, axis=1, kind="stable")[:, :FIRST])
    yield from lines("all documents", 1.0, everywhere, over=False)
    for times in TIMES:
        pools = visited(world, queries, times * FIRST)
        inside_QK = np.stack(
            [
                pool[np.argsort(-base_N[pool], kind="stable")[:FIRST]]
                for base_N, pool in zip(base_QN, pools, strict=True)
            ]
        )
        share = float(np.mean([len(pool) for pool in pools])) / len(world.texts)
        yield from lines(f"leaves with {times} times {FIRST} documents", share, judged(inside_QK), over=True)


def shown_answers(lines: dict[str, list[list[str]]]) -> list[str]:
    """A table of visited leaves, by collection."""
    head = ["", "documents in visited leaves", *ANSWERS, *(f"{name} over all documents, points" for name in ANSWERS)]
    return table(head, [[f"{name}: {title}", *cells] for name, rows in lines.items() for title, *cells in rows])


SMALL = {"train": 300, "dev": 20, "test": 60}
"""Queries of acl_title2abs that are read, of each split the first by a hash of their ids."""
DOCUMENTS = 4000
"""Documents of acl_title2abs that are searched: the answers of these queries, and others by a hash of their ids."""
OTHER = "acl_title2abs"


def part_of(name: str, place: Path) -> Path:
    """A part of a collection, written as a collection into a folder: some queries, their answers, other documents."""
    whole = collection.folder(name)
    judged: dict[str, list[tuple[str, str, str]]] = {}
    for split, count in SMALL.items():
        lines = [line.split("\t") for line in (whole / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]]
        pairs = [(query, document, grade) for query, document, grade in lines]
        queries = set(held_queries(sorted({query for query, _, _ in pairs}), count))
        judged[split] = [pair for pair in pairs if pair[0] in queries]
    read = [pair for pairs in judged.values() for pair in pairs]
    queried, answers = {query for query, _, _ in read}, {document for _, document, _ in read}
    documents = collection.rows(whole / "corpus.jsonl")
    others = sorted({row["_id"] for row in documents} - answers)
    kept = answers | set(held_queries(others, DOCUMENTS - len(answers)))
    (place / "qrels").mkdir(parents=True, exist_ok=True)
    for file, rows, ids in (
        ("corpus.jsonl", documents, kept),
        ("queries.jsonl", collection.rows(whole / "queries.jsonl"), queried),
    ):
        (place / file).write_text("".join(f"{json.dumps(row)}\n" for row in rows if row["_id"] in ids))
    for split, pairs in judged.items():
        lines_of = ["\t".join(pair) for pair in pairs]
        (place / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines_of]) + "\n")
    return place


def other_answers(workdir: Path, scifact: World, more: Sequence[str]) -> list[list[str]]:
    """Lines on visited leaves of a part of acl_title2abs, by SciFact's cross-encoder that its train pairs taught on."""
    reads = scifact.plan.spec.cross_encoder
    assert reads is not None
    overrides = [
        *more,
        f"corpus.path={part_of(OTHER, workdir / 'part')}",
        # Texts are encoded as far as pairs are read, which is faster.
        f"encoder.max_length={reads.max_length}",
        f"cross_encoder.model={scifact.cross_encoder.local('model')}",
        "cross_encoder.train={epochs: 1, groups: {base: 2, bm25: 1, others: 0}}",
        "cross_encoder.beside=0",
        *(f"{part}=null" for part in ("scores", "factors", "search.rerank")),
    ]
    world = World(workdir, OTHER, overrides)
    return list(by_answers(world, world.queries("test"), world.beside))


def two_tables(world: World, base_weight: float, report: Callable[[str], None]) -> tuple[list[str], list[str]]:
    """Tables of all rows and of the settings that were chosen, for score + base_weight · base."""
    vector_NM: Floats = world.documents.vector_NM
    near_NK = np.asarray(nearest(vector_NM, vector_NM, 1 + NEAR)[0])[:, 1:]
    chooses = Orders(Setting(world, world.chooses, base_weight, leave_one_out=True), near_NK)
    tested = Orders(Setting(world, world.tested, base_weight, leave_one_out=False), near_NK)
    every = list(measured_all(systems(len(world.held)), chooses, tested, report))
    return shown_rows(every, len(world.texts)), shown_grids(every)


def once(path: Path, make: Callable[[], T]) -> T:
    """What JSON can hold, made now or kept from an earlier run."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(make()))
    kept: T = json.loads(path.read_text())
    return kept


def main() -> None:
    """Measure, write the section, put it into the page and print it."""
    parser = Options("Further rows of budgeted search.", "axn", "docs")
    parser.add_argument("--tests", type=int, default=TESTED, help="test queries that are measured")
    parser.add_argument("--keeps", type=int, default=HELD, help="held-out train queries that settings are chosen on")
    parser.add_argument("--weight", type=float, help="weight of the base beside; without it dev queries choose")
    parser.add_argument("--set", action="append", default=[], help="override of the spec, such as cluster.train.cpus=1")
    parser.add_argument("--large", action="store_true", help=f"a part of {OTHER} too")
    options = parser.parse_args()
    set_threads(1)
    report = clock()
    world = World(options.workdir, more=options.set, tests=options.tests, keeps=options.keeps)
    for queries in (world.held, world.tested):
        world.truth.fill(dict(zip(queries.ids, queries.texts, strict=True)))
    weight = world.beside if options.weight is None else options.weight
    place, sample = (
        options.workdir / "further",
        f"{world.cross_encoder.folder.name}-{len(world.tested)}-{len(world.held)}",
    )
    parts: list[tuple[str, list[str]]] = []
    for base_weight, title in (
        (0.0, "The cross-encoder alone"),
        (weight, f"Beside the base: score + {weight:g} · base"),
    ):
        rows, grids = once(
            place / f"rows-{sample}-{base_weight:g}.json", partial(two_tables, world, base_weight, report)
        )
        parts += [(title, rows), (f"Settings that were chosen: {title[0].lower()}{title[1:]}", grids)]
    answers = {
        "scifact": once(
            place / f"scifact-{sample}-{weight:g}.json", lambda: list(by_answers(world, world.tested, weight))
        )
    }
    if options.large:
        other = place / f"{OTHER}-{world.cross_encoder.folder.name}.json"
        answers[OTHER] = once(other, lambda: other_answers(options.workdir / OTHER, world, options.set))
    parts.append(("Visited leaves, judged by answers", shown_answers(answers)))
    told = pages.prose("axn/further_preface.md", tests=len(world.tested), keeps=len(world.held))
    SECTION.write_text("\n".join(["", f"## {TITLE}", "", *told, *pages.sections(parts, 3)]) + "\n")
    page = options.docs / "axn.md"
    page.write_text(page.read_text().split(f"\n## {TITLE}\n")[0] + SECTION.read_text())
    print(SECTION.read_text())


if __name__ == "__main__":
    main()
