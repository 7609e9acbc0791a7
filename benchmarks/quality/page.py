"""The page that `python -m benchmarks.quality` writes: protocol, tables, figure; goals.py has the goals."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.quality.goals import IVF, LEVELS, SHIPPED, SPILL, SUPERVISED, Outcome, Results, at_shares, goals
from benchmarks.statistics import reached, sample
from benchmarks.tables import UNKNOWN
from benchmarks.tables import table as markdown

VISITED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
COSTS = (0.05, 0.1, 0.2)
DRAWN = {
    SHIPPED: "learned_ivf (shipped)",
    IVF: "k-means IVF, same encoder",
    SPILL: "the same, two lists a document",
    "hnsw": "HNSW",
}

PROTOCOL = """\
# Documents visited against recall

`make bench-quality`. The protocol was fixed before the test queries were read; the results are below it.

## Protocol

**Collections.** scifact, acl_title2abs, oewn_examples, with judged train queries; cranfield, with none: its documents
are the only queries there are to learn from. Vectors of all-MiniLM-L6-v2, with a residual head trained on top. Three
seeds: of the encoder's batches, of k-means, of the router.

**The encoder** is trained as shipped (`train: {type: contrast}`): with mined hard negatives and no index, to the last
epoch that is behind dev's best by chance alone; on cranfield it stays untrained. All systems but `faiss_ivf` (base
encoder), `ehi_cold` and `ehi_warm` (encoder and index trained together) search the very same trained vectors of a seed.
So `faiss_ivf_same_encoder` and `scann` are also the usual system, an encoder trained without an index and then an index
of its vectors, and the encoder is its own control.

**Systems.**

| name | what it is |
|---|---|
| `learned_ivf` | as shipped: k-means leaves, taught router, everything `auto` from the number of documents alone |
| `learned_ivf@dev` | the same with the number of leaves chosen on dev, as the controls have it |
| `recipe` | taught as `learned_ivf`, all documents in two leaves, every leaf scored in full; leaves chosen on dev |
| `untaught` | `learned_ivf` before teaching: documents as they lie there, leaves by their centroids, the screen |
| `ehi_warm`, `ehi_cold` | the paper's joint training, one leaf a document, from k-means or from a random start |
| `faiss_ivf` | k-means lists over the base encoder's vectors |
| `faiss_ivf_same_encoder` | k-means lists over the trained vectors |
| `faiss_ivf_spill` | the same, every document in a second list that SOAR chooses |
| `scann` | ScaNN's partitioning tree with exact scores, its own defaults, over the trained vectors |
| `hnsw` | faiss's graph (32 links) over the trained vectors, efSearch from 16 on |

**What is counted.** Visited: distinct documents scored, counted for every query. Cost: rows scored (a document in two
searched leaves counts twice) and the router's multiply-adds over the dimension: dot products per query. For lists
routing is the centroids, for HNSW cost is all distances computed. Both are shares of the corpus. Curves are measured at
every beam 1…16, then x1.25, until 40% of the documents are visited (HNSW and ScaNN, which are slow to count: 12.5%).
They are read linearly between points, and say nothing beyond the first and the last: there the tables have a dash, and
for recall that was not reached.

**Number of leaves or lists.** `learned_ivf` takes what `auto` gives. All others choose with seed 0 among powers of two
from 16 to N/8 (the joint trainings, which are slow, among 64, 256 and 1024) what costs least for 95% of exact R@100 on
dev. SciFact's dev has 70 queries; there five folds of the train queries choose, each asked of an encoder and a router
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
        *new_answers(one),
        f"At equal leaf counts, {one.equal[SHIPPED].seeds} seeds:",
        "",
        *table(one.equal, one.equal[SHIPPED].seeds),
        "",
    ]
    if one.shapes:
        found += [f"Taught trees of equal leaf counts, {min(m.seeds for m in one.shapes.values())} seeds:", ""]
        found += [*table(one.shapes, min(m.seeds for m in one.shapes.values())), ""]
    return found


def new_answers(one: Results) -> list[str]:
    """All systems, asked the queries with new answers alone."""
    if not one.asked_anew:
        return []
    title = f"The {one.new_Q.sum():,} queries with new answers, none of which is judged for a train query:"
    return [title, "", *table(one.asked_anew, one.seeds), ""]


def table(systems: Mapping[str, Outcome], seeds: int) -> list[str]:
    """A row a system."""
    (first, *shares), (cost, *costs) = VISITED, COSTS
    head = ["", "leaves", "imbalance", "exact R@100", "visited %", "cost %"]
    head += [f"R@100 at {first:.0%}", *(f"{share:.0%}" for share in shares)]
    head += [f"at cost {cost:.0%}", *(f"{share:.0%}" for share in costs)]
    rows = []
    for name, outcome in systems.items():
        curve = outcome.curve
        title = f"`{name}`" + (f" (seeds: {outcome.seeds})" if outcome.seeds != seeds else "")
        imbalance = f"{max(row['imbalance'] for row in outcome.balances):.2f}" if outcome.balances else ""
        cells = [title, str(outcome.leaves or ""), imbalance, f"{curve.exact_Q.mean():.3f}"]
        for axis in ("visited", "cost"):
            value_L = reached(curve, sample(len(curve.exact_Q)), LEVELS, axis)[0]
            cells.append(" / ".join(shown(100 * value, lambda x: f"{x:.3g}") for value in value_L))
        values = [*at_shares(outcome, VISITED), *at_shares(outcome, COSTS, "cost")]
        rows.append([*cells, *(shown(value, lambda x: f"{x:.3f}") for value in values)])
    return markdown(head, rows)


def shown(value: float, form: Callable[[float], str]) -> str:
    """A number, or a dash."""
    return UNKNOWN if np.isnan(value) else form(float(value))


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
