"""The page that `python -m benchmarks.quality` writes: protocol, tables, figure; goals.py has the goals."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import pages
from benchmarks.goals import verdict
from benchmarks.quality.goals import IVF, LEVELS, SHIPPED, SPILL, SUPERVISED, Outcome, Results, goals
from benchmarks.statistics import reached, recall_at
from benchmarks.tables import mean, table

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
    """All systems, each with its own number of leaves; those with new answers alone; equal ones; then shapes."""
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
    if one.shapes:
        seeds = min(outcome.seeds for outcome in one.shapes.values())
        found += ["", *_titled(f"Taught trees of equal leaf counts, {seeds} seeds:", one.shapes, seeds)]
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
