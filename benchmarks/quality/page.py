"""results/quality.md: protocol, goals, each one's value and interval, what was asked, met or missed; tables, figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks import pages
from benchmarks.statistics import Curve, Estimate, difference, estimate, geometric, ratio, reached, recall_at
from benchmarks.tables import UNKNOWN, mean, table, verdict
from rayhier.arrays import Bools, Values

Cells = tuple[str, str, str, str, str]
"""What is asked, the value, its interval, what it should be, and a word for what came of it."""
LEVELS = (0.9, 0.95, 0.98)
SUPERVISED = ("scifact", "acl_title2abs", "oewn_examples")
BY_COST = ("acl_title2abs", "oewn_examples")
SHIPPED, BY_RULE = "learned_ivf", "learned_ivf@dev"
IVF, SPILL = "faiss_ivf_same_encoder", "faiss_ivf_spill"


@dataclass(frozen=True)
class Outcome:
    """Result of one system: its leaves (0: none), and the mean over seeds."""

    leaves: int
    seeds: int
    curve: Curve
    balances: list[dict[str, float]]


@dataclass(frozen=True)
class Results:
    """What the systems come to on a collection."""

    name: str
    documents: int
    seeds: int
    new_Q: Bools
    """Whether a query has new answers."""
    main: dict[str, Outcome]
    equal: dict[str, Outcome]

    @property
    def asked_anew(self) -> dict[str, Outcome]:
        """Systems of the main table, asked the queries with new answers alone; none where all or no answers are new."""
        if self.new_Q.all() or not self.new_Q.any():
            return {}
        return {name: replace(one, curve=one.curve.of(self.new_Q)) for name, one in self.main.items()}

    @property
    def queries(self) -> int:
        """How many queries are asked."""
        return len(self.main[SHIPPED].curve.exact_Q)


def goals(results: Sequence[Results]) -> list[str]:
    """Lines of every goal: measured value, interval, required value, met or missed."""
    supervised = {one.name: one.main for one in results if one.name in SUPERVISED}
    whole = "" if len(supervised) == len(SUPERVISED) else " The pool is incomplete, and so is every verdict on it."
    about = [
        f"Pooled over {', '.join(supervised) or 'nothing'}.{whole} `learned_ivf` is as shipped; `learned_ivf@dev`",
        "chose its leaves by the controls' own rule and range. Neither more leaves nor the codes: the rows *beside*.",
        "",
    ]
    found: list[Cells] = []
    if supervised:
        for control, most, below in ((IVF, 0.5, 0.67), (SPILL, 0.85, 1.0)):
            for system in (SHIPPED, BY_RULE):
                found += pooled_ratios(supervised, system, control, most, below)
        for name, control in product(BY_COST, (IVF, SPILL)):
            if name in supervised:
                main, title = supervised[name], f"1: {name}, cost for {{}}, of `{control}`"
                ratio_RL = ratio(main[SHIPPED].curve, main[control].curve, LEVELS, "cost")
                found += ratio_rows(title, ratio_RL, "at most 0.7", lambda own: own.value <= 0.7)
        for system in (SHIPPED, BY_RULE):
            found += pooled_differences("2", supervised, system, IVF, {0.01: 5.0, 0.02: 5.0, 0.05: 3.0, 0.1: 1.5})
        for system, control in product((SHIPPED, BY_RULE), (IVF, "scann")):
            found += pooled_differences("3", supervised, system, control, {0.05: 3.0})
        found += learned([one for one in results if one.name in SUPERVISED])
    for one in results:
        if one.name == "cranfield":
            value = estimate(ratio(one.main[SHIPPED].curve, one.main["faiss_ivf"].curve, [0.95])[:, 0])
            title = "6: cranfield, visited for 95%, of `faiss_ivf`"
            found.append(goal(title, value, "at most 0.7", value.value <= 0.7))
    return [*about, *table(["", "value", "95% interval", "asked", ""], found)]


def pooled_ratios(
    supervised: Mapping[str, dict[str, Outcome]], system: str, control: str, most: float, below: float
) -> list[Cells]:
    """Goal 1: documents visited for each level and for their mean, over a control's."""
    each = [ratio(main[system].curve, main[control].curve, LEVELS) for main in supervised.values()]
    title, asked = f"1: `{system}`, visited for {{}}, of `{control}`", f"at most {most}, interval below {below:g}"
    found = ratio_rows(title, geometric(each), asked, lambda value: value.value <= most and value.high < below)
    for name, ratio_RL in zip(supervised, each, strict=True):
        found += ratio_rows(f"  {name}, {{}}", ratio_RL)[:-1]
    return found


def ratio_rows(
    title: str, ratio_RL: Values, asked: str = "", met: Callable[[Estimate], bool] = lambda _: True
) -> list[Cells]:
    """Rows of the ratios of each level, and of their geometric mean; {} in the title is the level."""
    each = {f"{level:.0%}": ratio_RL[:, place] for place, level in enumerate(LEVELS)}
    each["all three (mean)"] = geometric(list(ratio_RL.T))
    values = {level: estimate(value_R) for level, value_R in each.items()}
    return [goal(title.format(level), value, asked, met(value)) for level, value in values.items()]


def pooled_differences(
    number: str, supervised: Mapping[str, dict[str, Outcome]], system: str, control: str, asked: Mapping[float, float]
) -> list[Cells]:
    """Goals 2 and 3: points of R@100 more than a control at shares visited."""
    each = {
        name: 100 * difference(main[system].curve, main[control].curve, list(asked))
        for name, main in supervised.items()
        if control in main
    }
    if not each:
        return [(f"{number}: `{control}`", UNKNOWN, "", "", verdict(None))]
    found: list[Cells] = []
    for place, (share, least) in enumerate(asked.items()):
        title = f"{number}: `{system}`, R@100 at {share:.0%} visited over `{control}`, points"
        known = {name: estimate(one[:, place]) for name, one in each.items() if not np.isnan(one[0, place])}
        if not known:
            found.append((title, UNKNOWN, "", f"at least +{least:g}", "no curve begins there"))
            continue
        value = estimate(np.mean([each[name][:, place] for name in known], axis=0))
        met = value.value >= least and all(one.high >= 0 for one in known.values())
        title += "" if len(known) == len(each) else f" ({', '.join(known)} alone)"
        found.append(goal(title, value, f"at least +{least:g}", met))
        found += [goal(f"  {name}", one, "not wholly below 0", one.high >= 0) for name, one in known.items()]
    return found


def learned(results: Sequence[Results]) -> list[Cells]:
    """Gain by teaching alone: against the untaught router, and against controls with as many leaves."""
    pairs = {"`untaught`": [(one.main[SHIPPED], one.main["untaught"]) for one in results]}
    for control in (IVF, SPILL):
        pairs[f"`{control}`, equal leaves"] = [(one.equal[SHIPPED], one.equal[control]) for one in results]
    found: list[Cells] = []
    for title, own in pairs.items():
        pooled_RL = geometric([ratio(ours.curve, theirs.curve, LEVELS) for ours, theirs in own])
        found += ratio_rows(f"beside: visited for {{}}, of {title}", pooled_RL)
    return found


def goal(title: str, value: Estimate, asked: str = "", met: bool | None = None) -> Cells:
    """A row of the goals' table; without `asked` a value for comparison."""
    indent = "&nbsp;&nbsp;" if title.startswith("  ") else ""
    interval = f"{value.low:.2f} to {value.high:.2f}"
    return indent + title.strip(), f"{value.value:.2f}", interval, asked, verdict(met) if asked else ""


VISITED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
COSTS = (0.05, 0.1, 0.2)
DRAWN = {
    SHIPPED: "learned_ivf (shipped)",
    IVF: "k-means IVF, same encoder",
    SPILL: "the same, two lists a document",
    "hnsw": "HNSW",
}


def write_page(results: Sequence[Results], folder: Path) -> str:
    """Write quality.md and its figure below a folder; returns the page."""
    supervised, page = [one for one in results if one.name in SUPERVISED], ["Nothing is complete yet."]
    if supervised:
        draw(supervised, folder / "images" / "quality.png")
    if results:
        titled = [("Goals", goals(results)), ("Balance of the shipped index, worst seed", balances(results))]
        titled += [(one.name, collection_tables(one)) for one in results]
        page = ["![R@100 against documents visited](images/quality.png)", *pages.sections(titled, 3)]
    return pages.write(folder, "quality.md", [*pages.prose("quality/preface.md"), "", "## Results", "", *page])


def balances(results: Sequence[Results]) -> list[str]:
    """Goal 4: how evenly the shipped index holds its rows, worst seed."""
    rows = []
    for one in results:
        balances = one.main[SHIPPED].balances
        leaves, imbalance, empty = (max(row[name] for row in balances) for name in ("leaves", "imbalance", "empty"))
        met = imbalance <= 1.5 and (empty == 0 or one.documents / leaves < 50)
        cells = [f"{one.documents:,}", str(leaves), f"{one.documents / leaves:.1f}", f"{imbalance:.2f}", str(empty)]
        rows.append([one.name, *cells, verdict(met)])
    head = ["", "documents", "leaves", "documents a leaf", "imbalance", "empty leaves", ""]
    asked = "Asked: imbalance at most 1.5; no empty leaf where a leaf has 50 documents or more."
    return [asked, "", *table(head, rows)]


def collection_tables(one: Results) -> list[str]:
    """All systems, each with its own number of leaves; those with new answers alone; equal ones."""
    base, beside = one.main["faiss_ivf"].curve.exact_Q.mean(), one.equal[SHIPPED].seeds
    found = [
        f"{one.documents:,} documents, {one.queries:,} queries, {one.seeds} seeds. Exact R@100 of the base encoder",
        f"{base:.3f}. Visited and cost: % of the corpus for 90 / 95 / 98% of the exact R@100 of each own encoder;",
        "imbalance: worst seed.",
        *_titled("", one.main, one.seeds),
        "",
    ]
    if one.asked_anew:
        title = f"The {one.new_Q.sum():,} queries with new answers, none of which is judged for a train query:"
        found += [*_titled(title, one.asked_anew, one.seeds), ""]
    found += _titled(f"At equal leaf counts, {beside} seeds:", one.equal, beside)
    return found


def _titled(title: str, systems: Mapping[str, Outcome], seeds: int) -> list[str]:
    """A row a system, below a line of what they are."""
    (first, *shares), (cost, *costs) = VISITED, COSTS
    head = ["", "leaves", "imbalance", "exact R@100", "visited %", "cost %"]
    head += [f"R@100 at {first:.0%}", *(f"{share:.0%}" for share in shares)]
    head += [f"at cost {cost:.0%}", *(f"{share:.0%}" for share in costs)]
    rows = []
    for name, outcome in systems.items():
        curve = outcome.curve
        own = f"`{name}`" + (f" (seeds: {outcome.seeds})" if outcome.seeds != seeds else "")
        imbalance = f"{max(row['imbalance'] for row in outcome.balances):.2f}" if outcome.balances else ""
        cells = [own, str(outcome.leaves or ""), imbalance, f"{curve.exact_Q.mean():.3f}"]
        at = (100 * reached(curve, LEVELS, axis)[0] for axis in ("visited", "cost"))
        cells += [" / ".join(mean([value], "3g") for value in value_L) for value_L in at]
        values = [*recall_at(curve, VISITED)[0], *recall_at(curve, COSTS, "cost")[0]]
        rows.append([*cells, *(mean([value]) for value in values)])
    return [*([title] if title else []), "", *table(head, rows)]


def draw(supervised: Sequence[Results], path: Path) -> None:
    """R@100 against documents visited, a panel a collection."""
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
