"""docs/hce.md: goals, and tables of every collection, each row with its paired interval to a control."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.hce import goals, plots, visited
from benchmarks.hce.bench import Row
from benchmarks.hce.findings import Comparison, Findings
from benchmarks.hce.rows import PLAIN, UNTOUCHED
from benchmarks.tables import table

USUAL = ("nDCG@10", "R@100")
MEASURES = {"acl_title2abs": ("R@1", "R@100"), "oewn_examples": ("nDCG@10", "R@1", "R@100")}
FIGURE_4 = ("R@1", "R@5", "R@10", "R@100")

INTRODUCTION = """# HCE, measured

`train: {type: hce}` teaches the encoder by a tree over the documents ("Hierarchical Corpus Encoder: Fusing
Generative Retrieval and Dense Indices"): spherical k-means puts N documents below N/8 nodes, these below N/64,
up to one root. A query learns to tell the nodes above its answer from their siblings, by trained centroids, and
the answer from documents beside it. **S** learns from judged queries, **U** from titles and spans of the
documents alone, **J** from both. *As printed* is the paper's loss (`form: paper`) and optimizer; *as shipped*
differs by one contrast with two mined negatives a query, a hierarchy that weighs .1, an anchor that keeps
documents where the base encoder has them, and for U and J a head that starts whitened: directions in which
titles and spans differ from their documents count less.

`make bench-hce`: a head on all-MiniLM-L6-v2's vectors, exact search. Means over seeds ± half their range;
points above the control with 95% intervals from paired resamples of the queries. *New answers* are queries none
of whose answers is judged for a train query. Settings were chosen on folds of SciFact's and oewn_examples'
train queries ([LOG.md](LOG.md)); Cranfield's are SciFact's; dev picked the epochs; the test queries were read
once a row, but for the rows as printed, whose learning rate was too low at first, and for nodes as leaves, which
were mended on dev after a first reading.

**What the tables say.** Most of the gain is contrast's, once it has steps enough, two mined negatives a query and
an anchor. The tree adds little that as many negatives do not: S is a point of nDCG@10 above contrast on SciFact
and level with it on the two larger collections, and without its hierarchy or its siblings it is as good. Titles
and spans beside judged queries (J) add one to two points on SciFact and acl_title2abs, with a tree or without.
Documents alone (U) bring Cranfield a point and a half, SciFact half a point. Queries with new answers keep their
nDCG@10; on SciFact they lose one or two of 108 answers among the first hundred, on oewn_examples they gain as much
as all queries. The last layer, an hour of training, gives U what a head gives in seconds, and S less. Nodes are
good leaves once rounds of k-means have moved them to their documents, and no better than the lists of k-means.
""".splitlines()


def write_page(found: Sequence[Findings], docs: Path) -> str:
    """Write hce.md and its plots into a folder; returns the page."""
    page = [*INTRODUCTION, "", "## Goals", "", *goals.lines({one.name: one for one in found})]
    for one in found:
        page += ["", f"## {one.name}", "", one.about, "", *sections(one, docs / "images")]
    text = "\n".join(page) + "\n"
    (docs / "hce.md").write_text(text)
    return text


def sections(found: Findings, images: Path) -> list[str]:
    """Tables and plots of one collection."""
    page: list[str] = []
    if found.judged is not None:
        page += ["### Trained by judged pairs", "", *tables(found.judged, PLAIN, MEASURES.get(found.name, USUAL)), ""]
    if found.alone is not None:
        page += ["### Trained by documents alone", "", *tables(found.alone, UNTOUCHED), ""]
    if found.layered is not None:
        page += ["### The last layer trained", "", *tables(found.layered, UNTOUCHED), ""]
    if found.branchings is not None:
        page += ["### Branching", "", *lines(found.branchings, PLAIN, FIGURE_4), ""]
        page += [plots.branchings(found.branchings, images), ""]
    if found.visits is not None:
        page += ["### Documents visited", "", *visited.lines(found.visits), "", plots.visits(found.visits, images), ""]
    return page[:-1]


def tables(told: Comparison, control: Row, measures: Sequence[str] = USUAL) -> list[str]:
    """A table of all queries, and one of those with new answers."""
    found: list[str] = []
    seeds = f"{told.seeds} seeds" if told.seeds > 1 else "one seed"
    for group, own_Q in told.groups.items():
        found += [f"**{group}** ({own_Q.sum()} queries, {seeds})", ""]
        found += [*lines(told, control, measures, group), ""]
    return found[:-1]


def lines(told: Comparison, control: Row, measures: Sequence[str], group: str = "all") -> list[str]:
    """A table of rows: each measure, and points above the control with their interval."""
    head = ["", *(cell for measure in measures for cell in (measure, f"over {control.name.partition(',')[0]}"))]
    return table(head, [[row.name, *_cells(told, row, control, measures, group)] for row in told.rows])


def _cells(told: Comparison, row: Row, control: Row, measures: Sequence[str], group: str) -> list[str]:
    cells = []
    for measure in measures:
        several = row.train and group == "all" and told.seeds > 1
        spread = f" ± {told.spread[row.name][measure]:.3f}" if several else ""
        cells.append(f"{told.mean(row.name, measure, group):.3f}{spread}")
        if row.name == control.name:
            cells.append("")
        else:
            value, low, high = told.difference(row.name, control.name, measure, group)
            cells.append(f"{value:+.1f} [{low:+.1f}, {high:+.1f}]")
    return cells
