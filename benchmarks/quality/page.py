"""Write results/quality.md: preface, figure, comparisons with baselines, and a table for each collection."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks import pages
from benchmarks.statistics import Curve, difference, estimate, geometric, ratio, reached, recall_at
from benchmarks.tables import UNKNOWN, mean, table
from rayhier.arrays import Bools, Values

LEVELS = (0.9, 0.95, 0.98)
SUPERVISED = ("scifact", "acl_title2abs", "oewn_examples")
BY_COST = ("acl_title2abs", "oewn_examples")
SHIPPED, BY_RULE = "learned_ivf", "learned_ivf@dev"
IVF, SPILL = "faiss_ivf_same_encoder", "faiss_ivf_spill"
VISITED = (0.01, 0.02, 0.05, 0.1)
"""Shares of documents visited at which recall is shown and compared."""
POOL = "**pooled**"


@dataclass(frozen=True)
class Outcome:
    """Result of one system: its leaves (0: none), and the mean over seeds."""

    leaves: int
    seeds: int
    curve: Curve
    balances: list[dict[str, float]]


@dataclass(frozen=True)
class Results:
    """Outcomes of all systems on a collection."""

    name: str
    documents: int
    seeds: int
    new_Q: Bools
    """Whether a query has new answers."""
    main: dict[str, Outcome]
    equal: dict[str, Outcome]

    @property
    def with_new_answers(self) -> dict[str, Outcome]:
        """Systems of the main table by the queries with new answers alone. Empty if all answers are new, or none is."""
        if self.new_Q.all() or not self.new_Q.any():
            return {}
        return {name: replace(one, curve=one.curve.of(self.new_Q)) for name, one in self.main.items()}

    @property
    def queries(self) -> int:
        """Number of test queries."""
        return len(self.main[SHIPPED].curve.exact_Q)


def comparisons(results: Sequence[Results]) -> list[str]:
    """Tables of documents visited, cost and recall, each compared with baselines."""
    learned = [one for one in results if one.name in SUPERVISED]
    main = {one.name: one.main for one in learned}
    found = []
    for baseline, system in product((IVF, SPILL), (SHIPPED, BY_RULE)):
        ratios = {name: ratio(one[system].curve, one[baseline].curve, LEVELS) for name, one in main.items()}
        found += rows(f"visited, `{system}` / `{baseline}`", {POOL: geometric(list(ratios.values()))} | ratios)
    for baseline in (IVF, SPILL):
        ratios = {
            name: ratio(main[name][SHIPPED].curve, main[name][baseline].curve, LEVELS, "cost") for name in BY_COST
        }
        found += rows(f"cost, `{SHIPPED}` / `{baseline}`", ratios)
    pairs = {"`untaught`": [(one.main[SHIPPED], one.main["untaught"]) for one in learned]}
    for baseline in (IVF, SPILL):
        pairs[f"`{baseline}`, equal leaves"] = [(one.equal[SHIPPED], one.equal[baseline]) for one in learned]
    for title, own in pairs.items():
        pooled = geometric([ratio(ours.curve, theirs.curve, LEVELS) for ours, theirs in own])
        found += rows(f"visited, `{SHIPPED}` / {title}", {POOL: pooled})
    gained = []
    for system in (SHIPPED, BY_RULE):
        gains = {name: 100 * difference(one[system].curve, one[IVF].curve, VISITED) for name, one in main.items()}
        gained += rows(f"`{system}` less `{IVF}`", {POOL: np.mean(list(gains.values()), axis=0)} | gains)
    return [
        "Ratios for a share of exact R@100. Below 1, the index visits fewer documents or costs less.",
        "",
        *table(["", "", *(f"{level:.0%}" for level in LEVELS)], found),
        "",
        "Points of R@100 at equal shares of documents visited:",
        "",
        *table(["", "", *(f"{share:.0%} visited" for share in VISITED)], gained),
    ]


def rows(title: str, values: Mapping[str, Values]) -> list[list[str]]:
    """Return a row for each collection and the pool: values of resamples (R, L) as estimates with intervals."""
    return [[title, name, *(_cell(value_R) for value_R in value_RL.T)] for name, value_RL in values.items()]


def _cell(value_R: Values) -> str:
    if np.isnan(value_R).any():
        return UNKNOWN
    found = estimate(value_R)
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


DRAWN = {
    SHIPPED: "learned_ivf (shipped)",
    IVF: "k-means IVF, same encoder",
    SPILL: "the same, two lists per document",
    "hnsw": "HNSW",
}


def write_page(results: Sequence[Results], folder: Path) -> str:
    """Write quality.md and its figure into a folder, and return the page.

    The preface names a version and some figures: change them after a new run.
    """
    supervised, figure = [one for one in results if one.name in SUPERVISED], ["Nothing is complete yet."]
    titled = [(one.name, collection_tables(one)) for one in results]
    if supervised:
        draw(supervised, folder / "images" / "quality.png")
        figure = ["![R@100 against documents visited](images/quality.png)"]
        titled.insert(0, ("Balance of the shipped index, worst seed", balances(results)))
    if len(supervised) == len(SUPERVISED):
        titled.insert(0, ("Compared with baselines", comparisons(results)))
    return pages.write(folder, "quality.md", [*pages.prose("quality/preface.md"), "", *figure, *pages.sections(titled)])


def balances(results: Sequence[Results]) -> list[str]:
    """Return a table: how evenly the leaves of the shipped index hold its rows."""
    found = []
    for one in results:
        balances = one.main[SHIPPED].balances
        leaves, imbalance, empty = (max(row[name] for row in balances) for name in ("leaves", "imbalance", "empty"))
        cells = [f"{one.documents:,}", str(leaves), f"{one.documents / leaves:.1f}", f"{imbalance:.2f}", str(empty)]
        found.append([one.name, *cells])
    return table(["", "documents", "leaves", "documents per leaf", "imbalance", "empty leaves"], found)


def collection_tables(one: Results) -> list[str]:
    """Tables of all systems: each with its chosen number of leaves, by new answers alone, and with equal leaves."""
    base = one.main["faiss_ivf"].curve.exact_Q.mean()
    found = [
        f"{one.documents:,} documents, {one.queries:,} queries, {one.seeds} seeds. Exact R@100 of the untouched",
        f"encoder is {base:.3f}. Visited and cost are % of the corpus, for 90 / 95 / 98% of exact R@100.",
        *_titled("", one.main, one.seeds),
        "",
    ]
    if one.with_new_answers:
        title = f"The {one.new_Q.sum():,} queries with new answers, which are answers of no train query:"
        found += [*_titled(title, one.with_new_answers, one.seeds), ""]
    return found + _titled("With equal numbers of leaves:", one.equal, one.equal[SHIPPED].seeds)


def _titled(title: str, systems: Mapping[str, Outcome], seeds: int) -> list[str]:
    """Return a row for each system, below a title."""
    first, *shares = VISITED
    head = ["", "leaves", "exact R@100", "visited %", "cost %"]
    head += [f"R@100 at {first:.0%} visited", *(f"{share:.0%}" for share in shares)]
    found = []
    for name, outcome in systems.items():
        curve = outcome.curve
        own = f"`{name}`" + (f" (seeds: {outcome.seeds})" if outcome.seeds != seeds else "")
        at = (100 * reached(curve, LEVELS, axis)[0] for axis in ("visited", "cost"))
        cells = [" / ".join(mean([value], "3g") for value in value_L) for value_L in at]
        cells += [mean([value]) for value in recall_at(curve, VISITED)[0]]
        found.append([own, str(outcome.leaves or ""), f"{curve.exact_Q.mean():.3f}", *cells])
    return [*([title] if title else []), "", *table(head, found)]


def draw(supervised: Sequence[Results], path: Path) -> None:
    """Draw R@100 against documents visited, one panel per collection."""
    with pages.plot(path, len(supervised), (4.4 * len(supervised), 3.8)) as panels:
        for axes, one in zip(panels, supervised, strict=True):
            for number, (name, label) in enumerate(DRAWN.items()):
                visited_P, recall_P = (one.main[name].curve.visited_PQ, one.main[name].curve.recall_PQ)
                axes.plot(100 * visited_P.mean(axis=1), recall_P.mean(axis=1), label=label, color=f"C{number}")
            exact = one.main[SHIPPED].curve.exact_Q.mean()
            axes.axhline(exact, color="0.4", linestyle=":", label="exact, same encoder")
            axes.set_title(f"{one.name}: {one.documents:,} documents", fontsize=10)
            axes.set(xscale="log", xlabel="documents visited, %")
        panels[0].set_ylabel("R@100")
        panels[-1].legend(fontsize=8, loc="lower right")
