"""The page that benchmarks/quality.py writes: protocol, goals, tables, figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from quality_stats import (
    Array,
    Curve,
    Estimate,
    difference,
    estimate,
    geometric,
    mean_known,
    ratio,
    reached,
    recall_at,
    sample,
)

LEVELS = (0.9, 0.95, 0.98)
VISITED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
COSTS = (0.05, 0.1, 0.2)
SUPERVISED = ("scifact", "acl_title2abs", "oewn_examples")
BY_COST = ("acl_title2abs", "oewn_examples")
SHAPES_AT = 0.1
SHIPPED, BY_RULE = "ehi", "ehi@dev"
IVF, SPILL = "faiss_ivf_same_encoder", "faiss_ivf_spill"
DRAWN = {
    SHIPPED: "ehi (shipped)",
    IVF: "k-means IVF, same encoder",
    SPILL: "the same, two lists a document",
    "hnsw": "HNSW",
}

PROTOCOL = """\
# Documents visited against recall

`make bench-quality`. The protocol was fixed before the test queries were read; the results are below it.

## Protocol

**Collections.** scifact, acl_title2abs, oewn_examples, with judged train queries; cranfield, with none: its documents
are the only queries there are to learn from. Vectors of all-MiniLM-L6-v2, with a residual head trained on top. Five
seeds: of the encoder's batches, of k-means, of the router.

**The encoder** is trained by contrast with mined hard negatives and no index, the best epoch on dev is kept; on
cranfield it stays as it came. All systems but `faiss_ivf` (base encoder), `ehi_cold` and `ehi_warm` (encoder and index
trained together) search the very same trained vectors of a seed. So `faiss_ivf_same_encoder` and `scann` are also the
usual system, an encoder trained without an index and then an index of its vectors, and the encoder is its own control.

**Systems.**

| name | what it is |
|---|---|
| `ehi` | as shipped: taught router, everything `auto` from the number of documents alone |
| `ehi@dev` | the same with the number of leaves chosen on dev, as the controls have it |
| `recipe` | taught as `ehi`, all documents in two leaves, every leaf scored in full; leaves chosen on dev |
| `untaught` | `ehi` before teaching: documents as they lie there, leaves by their centroids, the screen |
| `ehi_warm`, `ehi_cold` | the paper's joint training, one leaf a document, from k-means or from a random start |
| `faiss_ivf` | k-means lists over the base encoder's vectors |
| `faiss_ivf_same_encoder` | k-means lists over the trained vectors |
| `faiss_ivf_spill` | the same, every document in a second list that SOAR chooses |
| `scann` | ScaNN's partitioning tree with exact scores, its own defaults, over the trained vectors |
| `hnsw` | faiss's graph (32 links) over the trained vectors, efSearch from 16 on |

**What is counted.** Visited: distinct documents scored, counted for every query. Cost: rows scored (a document in two
searched leaves counts twice) and the router's multiply-adds over the dimension, that is in documents' worth; for lists
the centroids, for HNSW all distances computed. Both as fractions of the corpus. Curves are measured at every beam
1…16, then x1.25, until 40% of the documents are visited (HNSW and ScaNN, which are slow to count: 12.5%). They are
read linearly between points, and say nothing beyond the first and the last: there the tables have a dash, and for
recall that was not reached.

**Number of leaves or lists.** `ehi` takes what `auto` gives. All others choose with seed 0 among powers of two from 16
to N/8 (the joint trainings, which are slow, among 64, 256 and 1024) what costs least for 95% of exact R@100 on dev.
SciFact's dev has 70 queries; there five folds of the train queries choose, each asked of an encoder and a router
that learned from the other four, costs averaged. Cranfield's dev is a tenth of its documents, which look for their
neighbours; all of its 225 queries are its test. The joint trainings run on scifact alone: elsewhere their epochs take
hours on two cores.

**The test split** is read by the final measurement of each configuration, once a seed, and chooses nothing.

**Statistics.** Recall, visited and cost of every query are averaged over seeds point by point. Intervals (95%,
percentiles) come from 2,000 resamples of the queries, within each collection, the same queries for both systems.
Pooled is the geometric mean over the three collections with train queries of ratios, the mean of differences. Where a
control does not reach a recall, its last point stands for it, which favours it. A share of documents at which a curve
says nothing is left out of the pool, and the table says how many collections are left.
"""


@dataclass(frozen=True)
class Measured:
    """One system: its leaves (0: none), and the mean over seeds."""

    leaves: int
    seeds: int
    curve: Curve
    balances: list[dict[str, float]]


@dataclass(frozen=True)
class Results:
    """A collection."""

    name: str
    documents: int
    seeds: int
    main: dict[str, Measured]
    equal: dict[str, Measured]
    shapes: dict[str, Measured]

    @property
    def queries(self) -> int:
        """Queries asked."""
        return len(self.main[SHIPPED].curve.exact_Q)


def write_page(results: Sequence[Results], folder: Path) -> str:
    """Write quality.md and its figure below a folder; returns the page."""
    page = "\n".join([PROTOCOL, "## Results", "", *lines(results), ""])
    (folder / "quality.md").write_text(page)
    supervised = [one for one in results if one.name in SUPERVISED]
    if supervised:
        (folder / "images").mkdir(exist_ok=True)
        draw(supervised, folder / "images" / "quality.png")
    return page


def lines(results: Sequence[Results]) -> list[str]:
    """Goals, then every table."""
    if not results:
        return ["Nothing is complete yet."]
    found = ["![R@100 against documents visited](images/quality.png)", "", *goals(results), *balances(results)]
    for one in results:
        found += collection_tables(one)
    return found


def goals(results: Sequence[Results]) -> list[str]:
    """Every goal: value, interval, what was asked, met or missed."""
    supervised = {one.name: one.main for one in results if one.name in SUPERVISED}
    whole = "" if len(supervised) == len(SUPERVISED) else " The pool is incomplete, and so is every verdict on it."
    found = [
        "### Goals",
        "",
        f"Pooled over {', '.join(supervised) or 'nothing'}.{whole} `ehi` is as shipped; `ehi@dev` chose its",
        "leaves by the controls' own rule and range. Neither more leaves nor the screen: the rows *beside*.",
        "",
        "| | value | 95% interval | asked | |",
        "|---|---:|---:|---|---|",
    ]
    if supervised:
        for control, most, below in ((IVF, 0.5, 0.67), (SPILL, 0.85, 1.0)):
            found += pooled_ratios(supervised, SHIPPED, control, most, below)
            found += pooled_ratios(supervised, BY_RULE, control, most, below)
        for name in BY_COST:
            for control in (IVF, SPILL) if name in supervised else ():
                found += cost_ratios(name, supervised[name], control)
        for system in (SHIPPED, BY_RULE):
            asked = {0.01: 5.0, 0.02: 5.0, 0.05: 3.0, 0.1: 1.5}
            found += pooled_differences("2", supervised, system, IVF, asked)
        for system in (SHIPPED, BY_RULE):
            for control in (IVF, "scann"):
                found += pooled_differences("3", supervised, system, control, {0.05: 3.0})
        found += encoders(supervised)
        found += learned([one for one in results if one.name in SUPERVISED])
    for one in results:
        if one.name == "cranfield":
            value = estimate(ratio(one.main[SHIPPED].curve, one.main["faiss_ivf"].curve, [0.95])[:, 0])
            found.append(
                goal("6: cranfield, visited for 95%, of `faiss_ivf`", value, "at most 0.7", value.value <= 0.7)
            )
        found += shape_goal(one)
    return [*found, ""]


def pooled_ratios(
    supervised: Mapping[str, dict[str, Measured]], system: str, control: str, most: float, below: float
) -> list[str]:
    """Goal 1: documents visited for each level and for their mean, over a control's."""
    each = [ratio(main[system].curve, main[control].curve, LEVELS) for main in supervised.values()]
    pooled_RL = geometric(each)
    found = []
    for title, value_R in columns(pooled_RL):
        value = estimate(value_R)
        met = value.value <= most and value.high < below
        asked = f"at most {most}, interval below {below:g}"
        found.append(goal(f"1: `{system}`, visited for {title}, of `{control}`", value, asked, met))
    for name, ratio_RL in zip(supervised, each, strict=True):
        found += [
            goal(f"  {name}, {title}", estimate(value_R), "", met=None) for title, value_R in columns(ratio_RL)[:-1]
        ]
    return found


def columns(ratio_RL: Array) -> list[tuple[str, Array]]:
    """Ratios of each level, and their geometric mean."""
    each = [(f"{level:.0%}", ratio_RL[:, place]) for place, level in enumerate(LEVELS)]
    return [*each, ("all three (mean)", geometric(list(ratio_RL.T)))]


def cost_ratios(name: str, main: dict[str, Measured], control: str) -> list[str]:
    """Goal 1, by total cost, on one collection."""
    ratio_RL = ratio(main[SHIPPED].curve, main[control].curve, LEVELS, "cost")
    found = []
    for title, value_R in columns(ratio_RL):
        value = estimate(value_R)
        found.append(goal(f"1: {name}, cost for {title}, of `{control}`", value, "at most 0.7", value.value <= 0.7))
    return found


def pooled_differences(
    number: str,
    supervised: Mapping[str, dict[str, Measured]],
    system: str,
    control: str,
    asked: Mapping[float, float],
) -> list[str]:
    """Goals 2 and 3: points of R@100 more than a control at shares visited."""
    mains = {name: main for name, main in supervised.items() if control in main}
    if not mains:
        return [f"| {number}: `{control}` | - | | | not measured |"]
    each = {
        name: 100 * difference(main[system].curve, main[control].curve, list(asked)) for name, main in mains.items()
    }
    pooled_RS = mean_known(list(each.values()))
    found = []
    for place, (share, least) in enumerate(asked.items()):
        title = f"{number}: `{system}`, R@100 at {share:.0%} visited over `{control}`, points"
        known = {name: estimate(one[:, place]) for name, one in each.items() if not np.isnan(one[0, place])}
        if not known:
            found.append(f"| {title} | - | | at least +{least:g} | no curve begins there |")
            continue
        value = estimate(pooled_RS[:, place])
        met = value.value >= least and all(one.high >= 0 for one in known.values())
        title += "" if len(known) == len(each) else f" ({', '.join(known)} alone)"
        found.append(goal(title, value, f"at least +{least:g}", met))
        found += [goal(f"  {name}", one, "not wholly below 0", one.high >= 0) for name, one in known.items()]
    return found


def encoders(supervised: Mapping[str, dict[str, Measured]]) -> list[str]:
    """Exact R@100 of the encoders trained with an index less that of contrast alone."""
    found = []
    for name, main in supervised.items():
        for system in (name for name in ("ehi_warm", "ehi_cold") if name in main):
            contrast, own = main[SHIPPED].curve.exact_Q, main[system].curve.exact_Q
            points = 100 * (own.mean() - contrast.mean())
            found.append(f"| control: {name}, exact R@100 of `{system}` over contrast, points | {points:+.1f} | | | |")
    return found


def learned(results: Sequence[Results]) -> list[str]:
    """What is neither more leaves nor the screen: against the same before teaching, and controls of as many leaves."""
    pairs = {"`untaught`": [(one.main[SHIPPED], one.main["untaught"]) for one in results]}
    for control in (IVF, SPILL):
        pairs[f"`{control}`, equal leaves"] = [(one.equal[SHIPPED], one.equal[control]) for one in results]
    found = []
    for title, own in pairs.items():
        pooled_RL = geometric([ratio(ours.curve, theirs.curve, LEVELS) for ours, theirs in own])
        found += [
            goal(f"beside: visited for {level}, of {title}", estimate(value_R), "", met=None)
            for level, value_R in columns(pooled_RL)
        ]
    return found


def shape_goal(one: Results) -> list[str]:
    """Goal 4: trees of equal leaf counts, R@100 at 10% visited."""
    if not one.shapes:
        return []
    at = {shape: at_shares(measured, [SHAPES_AT])[0] for shape, measured in one.shapes.items()}
    width = 100 * (max(at.values()) - min(at.values()))
    title = f"4: {one.name}, R@100 at 10% visited of {', '.join(at)}, widest difference, points"
    cell = "met" if width <= 2 else "MISSED"
    return [f"| {title} | {width:.1f} | | at most 2 | {cell} |"]


def goal(title: str, value: Estimate, asked: str, met: bool | None) -> str:
    """A row."""
    verdict = "" if met is None else "met" if met else "MISSED"
    indent = "&nbsp;&nbsp;" if title.startswith("  ") else ""
    return (
        f"| {indent}{title.strip()} | {value.value:.2f} | {value.low:.2f} to {value.high:.2f} | {asked} | {verdict} |"
    )


def balances(results: Sequence[Results]) -> list[str]:
    """Goal 4: how evenly the shipped index holds its rows, worst seed."""
    found = [
        "### Balance of the shipped index, worst seed",
        "",
        "Asked: imbalance at most 1.5; no empty leaf where a leaf has 50 documents or more.",
        "",
        "| | documents | leaves | documents a leaf | imbalance | empty leaves | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for one in results:
        rows = one.main[SHIPPED].balances
        leaves, imbalance, empty = (max(row[name] for row in rows) for name in ("leaves", "imbalance", "empty"))
        met = imbalance <= 1.5 and (empty == 0 or one.documents / leaves < 50)
        cells = f"{one.documents:,} | {leaves} | {one.documents / leaves:.1f} | {imbalance:.2f} | {empty}"
        found.append(f"| {one.name} | {cells} | {'met' if met else 'MISSED'} |")
    return [*found, ""]


def collection_tables(one: Results) -> list[str]:
    """All systems, each with its own number of leaves; then equal ones; then shapes."""
    base = one.main["faiss_ivf"].curve.exact_Q.mean()
    found = [
        f"### {one.name}",
        "",
        f"{one.documents:,} documents, {one.queries:,} queries, {one.seeds} seeds. Exact R@100 of the base encoder",
        f"{base:.3f}. Visited and cost: % of the corpus for 90 / 95 / 98% of the exact R@100 of each own encoder;",
        "imbalance: worst seed.",
        "",
        *table(one.main, one.seeds),
        "",
        f"At equal leaf counts, {one.equal[SHIPPED].seeds} seeds:",
        "",
        *table(one.equal, one.equal[SHIPPED].seeds),
        "",
    ]
    if one.shapes:
        found += [f"Taught trees of equal leaf counts, {min(m.seeds for m in one.shapes.values())} seeds:", ""]
        found += [*table(one.shapes, min(m.seeds for m in one.shapes.values())), ""]
    return found


def table(systems: Mapping[str, Measured], seeds: int) -> list[str]:
    """A row a system."""
    heads = " | ".join(f"{share:.0%}" for share in VISITED)
    costs = " | ".join(f"{share:.0%}" for share in COSTS)
    found = [
        f"| | leaves | imbalance | exact R@100 | visited % | cost % | R@100 at {heads} | at cost {costs} |",
        f"|---|---:|---:|---:|---:|---:|{'---:|' * (len(VISITED) + len(COSTS))}",
    ]
    for name, measured in systems.items():
        curve = measured.curve
        title = f"`{name}`" + (f" (seeds: {measured.seeds})" if measured.seeds != seeds else "")
        imbalance = f"{max(row['imbalance'] for row in measured.balances):.2f}" if measured.balances else ""
        cells = [title, str(measured.leaves or ""), imbalance, f"{curve.exact_Q.mean():.3f}"]
        for axis in ("visited", "cost"):
            value_L = reached(curve, sample(len(curve.exact_Q)), LEVELS, axis)[0]
            cells.append(" / ".join(shown(100 * value, lambda x: f"{x:.3g}") for value in value_L))
        values = [*at_shares(measured, VISITED), *at_shares(measured, COSTS, "cost")]
        cells += [shown(value, lambda x: f"{x:.3f}") for value in values]
        found.append(f"| {' | '.join(cells)} |")
    return found


def at_shares(measured: Measured, shares: Sequence[float], axis: str = "visited") -> Array:
    """R@100 [s] at shares visited, or at costs."""
    curve = measured.curve
    return np.asarray(recall_at(curve, sample(len(curve.exact_Q)), shares, axis)[0])


def shown(value: float, form: Callable[[float], str]) -> str:
    """A number, or a dash."""
    return "-" if np.isnan(value) else form(float(value))


def draw(supervised: Sequence[Results], path: Path) -> None:
    """R@100 against documents visited, a panel a collection."""
    figure = Figure(figsize=(4.4 * len(supervised), 3.8), layout="constrained")
    for axes, one in zip(figure.subplots(1, len(supervised), squeeze=False)[0], supervised, strict=True):
        for number, (name, label) in enumerate(DRAWN.items()):
            curve = one.main[name].curve
            axes.plot(
                100 * curve.visited_PQ.mean(axis=1), curve.recall_PQ.mean(axis=1), label=label, color=f"C{number}"
            )
        axes.axhline(one.main[SHIPPED].curve.exact_Q.mean(), color="0.4", linestyle=":", label="exact, same encoder")
        axes.set_xscale("log")
        axes.set_title(f"{one.name}: {one.documents:,} documents", fontsize=10)
        axes.set_xlabel("documents visited, %")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("R@100")
    figure.axes[-1].legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=110)
