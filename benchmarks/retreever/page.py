"""docs/retreever.md: goals that were set before anything was measured, and tables and plots of every collection."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks import pages
from benchmarks.goals import Goal, lines
from benchmarks.pages import curves, link, plot
from benchmarks.retreever import rows
from benchmarks.retreever.bench import MEASURES, Sized
from benchmarks.retreever.levels import Speeds
from benchmarks.statistics import Curve, compared, recall_at
from benchmarks.tables import UNKNOWN, mean, table
from rayhier.arrays import Values

RECALL, NDCG, DEEP = "R@10", "nDCG@10", "R@100"
SHOWN = (4, 8, 16, 32, 64, 128, 256)
SHARES = (0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True)
class Findings:
    """All that is measured of one collection."""

    name: str
    about: str
    told: Sized
    """Rows at every size."""
    leaves: Mapping[str, Mapping[str, Values]]
    """Tree -> what its best leaf alone finds."""
    curves: Mapping[str, Curve]
    """Tree, or lists of k-means -> recall at documents visited."""
    similarities: Mapping[str, Mapping[str, Values]]
    """Tree -> cosines of documents by the depth of their lowest common ancestor."""
    stored: Mapping[int, Mapping[str, Values]]
    """Level -> what it finds as an index stores it."""
    shortlists: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    """How a shortlist is made -> what it finds."""
    times: Speeds | None = None
    attending: Sized | None = None
    """Splits by attention beside others, of as many steps."""
    distances: Mapping[str, Values] | None = None
    """Cosines of the embeddings of splits by their distance."""
    alike: Sized | None = None
    """A tree and its controls that attend to the same tokens, trained alike, and rows of vectors."""

    @property
    def exact(self) -> Mapping[str, Values]:
        """Measures [s, q] of an exact search by the trained encoder's vectors."""
        return self.told.found[rows.TRAINED.name][self.told.full(rows.TRAINED.name)]


def write_page(found: Sequence[Findings], docs: Path) -> str:
    """Write retreever.md and its plots into a folder; returns the page."""
    goals = [replace(goal, title=f"{own.name}: {goal.title}") for own in found for goal in goals_of(own)]
    titled = [("Goals", lines(goals)), *((own.name, [own.about, *sections(own, docs / "images")]) for own in found)]
    return pages.write(docs, "retreever.md", [*pages.prose("retreever/preface.md"), *pages.sections(titled)])


def sections(found: Findings, images: Path) -> list[str]:
    """Tables and plots of one collection."""
    told, name = found.told, found.name
    shown = (rows.UNTOUCHED, rows.TRAINED, rows.LINEAR, rows.MRL, rows.NO_TREE, rows.SHIPPED, rows.MLP)
    schedules = [row for row in rows.SCHEDULES if row in told.found]
    sized = [
        _plot_sizes(told, [row.name for row in shown], ("R@10", "nDCG@10"), images / f"retreever_sizes_{name}.png"),
        _plot_sizes(told, schedules, ("R@10", "R@100"), images / f"retreever_schedules_{name}.png"),
    ]
    alike = _plot_similarities(found.similarities, images / f"retreever_ancestors_{name}.png")
    titled = [
        ("All numbers", whole(told)),
        ("Few numbers", [*few(told), "", sized[0], "", sized[1]]),
        ("Leaves", leaves(found)),
        ("Ancestors", [*ancestors(found), "", alike]),
        ("A level finished by vectors", shortlists(found) if found.shortlists else []),
    ]
    if found.times is not None:
        titled.append(("Time", [*times(found.times), "", _plot_speeds(found.times, images / "retreever_speed.png")]))
    if found.attending is not None and found.distances is not None:
        apart = _plot_distances(found.distances, images / "retreever_distances.png")
        shared = ["", *told_alike(found.alike)] if found.alike is not None else []
        titled.append(("Attention to tokens", [*attending(found.attending), *shared, "", apart]))
    return pages.sections(titled, 3)


def whole(told: Sized) -> list[str]:
    """Every row at its largest size, with points over the linear adapter."""
    control, body = told.found[rows.LINEAR.name][told.full(rows.LINEAR.name)], []
    for name in told.found:
        own = told.found[name][told.full(name)]
        cells = [compared(own[measure], None if name == rows.LINEAR.name else control[measure]) for measure in MEASURES]
        body.append([told.shown(name), f"{told.full(name):,}", *chain(*cells)])
    return table(["", "numbers", *chain(*((measure, "over linear") for measure in MEASURES))], body)


def few(told: Sized) -> list[str]:
    """R@10 and R@100 at every size, and means of 4 to 32 numbers."""
    body = []
    for name, own in told.found.items():
        if len(own) > 1:
            low = [mean(list(told.coarse(name, measure))) for measure in MEASURES]
            sizes = [
                " / ".join(f"{told.mean(name, size, one):.3f}" for one in ("R@10", "R@100")) if size in own else UNKNOWN
                for size in SHOWN
            ]
            body.append([told.shown(name), *low, *sizes])
    return table(["", *(f"{measure}, mean of 4 to 32" for measure in MEASURES), *map(str, SHOWN)], body)


def leaves(found: Findings) -> list[str]:
    """The best leaf alone, and R@100 at documents visited."""
    best = [
        [name, *_means(own), f"{own['visited'].mean():.2%}", f"{own['ms'][0]:.2f}"]
        for name, own in found.leaves.items()
    ]
    visited = [
        [name, f"{own.exact_Q.mean():.3f}", *(f"{value:.3f}" for value in recall_at(own, SHARES)[0])]
        for name, own in found.curves.items()
    ]
    page = table(["the best leaf, ranked by vectors", *MEASURES, "visited", "ms a query"], best)
    return [*page, "", *table(["R@100", "exact", *(f"{share:.0%} visited" for share in SHARES)], visited)]


def _means(own: Mapping[str, Values]) -> list[str]:
    return [f"{own[measure].mean():.3f}" for measure in MEASURES]


def ancestors(found: Findings) -> list[str]:
    """Cosines by depth."""
    depths = range(len(next(iter(found.similarities.values()))["cosine"]))
    body = [[name, *(f"{value:.3f}" for value in own["cosine"])] for name, own in found.similarities.items()]
    return table(["cosine of two documents, ancestor at depth", *(str(depth) for depth in depths)], body)


def shortlists(found: Findings) -> list[str]:
    """Measures of shortlists, and parts of the exact ones."""
    exact = {measure: found.exact[measure][0] for measure in MEASURES}
    body = [
        [name, *(f"{own[one].mean():.3f} ({own[one].mean() / exact[one].mean():.3f})" for one in MEASURES)]
        for name, own in found.shortlists.items()
    ]
    head = ["64 numbers, documents on the shortlist", *(f"{measure} (part of exact)" for measure in MEASURES)]
    return table(head, [*body, ["exact", *_means(exact)]])


def times(found: Speeds) -> list[str]:
    """Milliseconds of searches and of whole questions."""
    body = [[name, f"{found.batched[name]:.3f}", f"{found.alone[name]:.3f}"] for name in found.batched]
    page = table([f"flat search of {found.documents:,} documents, one thread", "ms, batches of 64", "ms, alone"], body)
    parts = sorted({part for own in found.whole.values() for part in own}, key=["encode", "tree", "search"].index)
    wholes = [
        [name, *(f"{own[part]:.2f}" if part in own else UNKNOWN for part in parts), f"{sum(own.values()):.2f}"]
        for name, own in found.whole.items()
    ]
    return [*page, "", *table(["a whole question, alone, ms", *parts, "all"], wholes)]


def attending(told: Sized) -> list[str]:
    """Attention beside rows that read vectors, with as many steps."""
    body = []
    for name in told.found:
        cells = [mean(list(told.coarse(name, measure))) for measure in MEASURES]
        body.append([name, *cells, *_means(told.found[name][told.full(name)]), f"{told.full(name):,}"])
    head = [*(f"{measure}, 4 to 32" for measure in MEASURES), *(f"{measure}, all" for measure in MEASURES), "numbers"]
    return table(["", *head], body)


def told_alike(told: Sized) -> list[str]:
    """Rows trained alike, and points by which the first, the tree that attends to tokens, is above each other one."""
    first, body = told.rows[0].name, []
    for name in told.found:
        cells = [mean(list(told.coarse(name, measure))) for measure in MEASURES]
        over = [told.coarse_difference(first, name, one).shown if name != first else "" for one in (RECALL, NDCG)]
        body.append([name, *cells, *over, *_means(told.found[name][told.full(name)]), f"{told.full(name):,}"])
    head = [*(f"{one}, 4 to 32" for one in MEASURES), *(f"{one}: the first row over it" for one in (RECALL, NDCG))]
    return table(["one pass", *head, *(f"{measure}, all" for measure in MEASURES), "numbers"], body)


def _plot_sizes(told: Sized, names: Sequence[str], measures: Sequence[str], path: Path) -> str:
    with plot(path, len(measures)) as every:
        for place, (axes, measure) in enumerate(zip(every, measures, strict=True)):
            own = {row: (told.sizes(row), [told.mean(row, size, measure) for size in told.sizes(row)]) for row in names}
            curves(axes, own, fontsize=0 if place else 7, xbase=2, xlabel="numbers of a text", title=measure)
    return link("Measures against the numbers that represent a text", path)


def _plot_similarities(found: Mapping[str, Mapping[str, Values]], path: Path) -> str:
    named = {row: (range(len(own["cosine"])), own["cosine"], 2 * own["error"]) for row, own in found.items()}
    with plot(path) as (axes,):
        curves(axes, named, xlabel="depth of the lowest common ancestor", ylabel="cosine of two documents")
    return link("Cosine of two documents against the depth of their lowest common ancestor", path)


def _plot_distances(found: Mapping[str, Values], path: Path) -> str:
    named = {"": (found["distance"], found["cosine"], found["deviation"])}
    with plot(path) as (axes,):
        curves(axes, named, fontsize=0, xlabel="edges between two splits", ylabel="cosine of their embeddings")
    return link("Cosine of the embeddings of two splits against their distance in the tree", path)


def _plot_speeds(found: Speeds, path: Path) -> str:
    with plot(path) as (axes,):
        for color, (label, own) in enumerate({"batches of 64": found.batched, "alone": found.alone}.items()):
            levels = {int(key.rpartition(" ")[2]): ms for key, ms in own.items() if key.startswith("L1")}
            vectors = [min(ms for key, ms in own.items() if "encoder" in key)] * len(levels)
            curves(axes, {f"L1, {label}": (list(levels), list(levels.values()))}, f"C{color}o-")
            curves(axes, {f"inner product of vectors, {label}": (list(levels), vectors)}, f"C{color}--", xbase=2)
        axes.set(yscale="log", xlabel="numbers of a text", ylabel="milliseconds a query")
        axes.grid(alpha=0.3, which="both")
    return link("Milliseconds of a flat search against its numbers", path)


def goals_of(found: Findings) -> Iterator[Goal]:
    """Goals of one collection."""
    told = found.told
    whole = {name: {one: told.mean(name, told.full(name), one) for one in MEASURES} for name in told.found}
    for measure in (RECALL, NDCG):
        ratio = whole[rows.SHIPPED.name][measure] / whole[rows.LINEAR.name][measure]
        yield Goal(f"1,024 numbers over the linear adapter, {measure}", ratio, 0.98)
        yield Goal(f"1,024 numbers over the linear adapter, {measure} (the stretch)", ratio, 1.0)
        points = told.difference(rows.SHIPPED.name, rows.NO_TREE.name, measure).value
        yield Goal(f"1,024 numbers over no tree, {measure}, points", points, -1.0)
    if found.name == "oewn_examples":
        points = told.difference(rows.SHIPPED.name, rows.UNTOUCHED.name, RECALL).value
        yield Goal(f"1,024 numbers over the untouched encoder, {RECALL}, points", points, 6.0)
    for measure in (RECALL, NDCG):
        best = max(told.coarse(row.name, measure).mean() for row in told.rows if row.kind == "matryoshka")
        for name in (rows.SHIPPED.name, rows.MLP.name):
            ratio = told.coarse(name, measure).mean() / best
            yield Goal(f"{name}: mean of 4 to 32 numbers over the best MRL adapter, {measure}", float(ratio), 0.90)
            yield Goal(f"{name}: 4 to 32 numbers over the best MRL adapter, {measure} (the stretch)", float(ratio), 1.0)
    pairs = {
        "": (rows.STOCHASTIC.name, rows.CONSTANT.name),
        " from a random start, one seed": (rows.RANDOM_STOCHASTIC.name, rows.RANDOM_CONSTANT.name),
        " by the paper's total variation, one seed": (
            "tree, stochastic, total variation",
            "tree, constant, total variation",
        ),
    }
    for start, (stochastic, constant) in pairs.items():
        if stochastic not in told.found:
            continue
        for measure in MEASURES:
            ratio = told.coarse(stochastic, measure).mean() / told.coarse(constant, measure).mean()
            least = None if measure == DEEP else 1.4
            yield Goal(f"mean of 4 to 32 numbers, stochastic over constant{start}, {measure}", float(ratio), least)
    points = told.difference(rows.CONSTANT.name, rows.STOCHASTIC.name, RECALL).value
    yield Goal("1,024 numbers, constant over stochastic, R@10, points", points, -0.5)
    for name in (rows.KMEANS.name, rows.MIXTURES.name):
        share = found.leaves[name][RECALL].mean() / whole[rows.SHIPPED.name][RECALL]
        least = 0.5 if found.name == "oewn_examples" else 0.0
        yield Goal(f"{name}, best leaf: what it misses of the tree's R@10, as a part", float(1 - share), least)
    for name in (rows.SHIPPED.name, rows.VARIATION.name):
        cosine, error = (found.similarities[name][one] for one in ("cosine", "error"))
        yield Goal(f"{name}: cosine of documents, depth 10 over depth 0", float(cosine[-1] - cosine[0]), 0.05)
        rise = np.diff(cosine) / np.hypot(error[1:], error[:-1])
        yield Goal(f"{name}: least rise between neighbouring depths, standard errors", float(rise.min()), -2.0)
    for level, stored in found.stored.items():
        change = abs(float(stored[RECALL].mean() - told.seeds(rows.SHIPPED.name, 2**level, RECALL)[0]))
        yield Goal(f"float16 of level {level}, 1 - change of R@10", 1 - change, 0.998)
    yield from shortlist_goals(found)
    yield from speed_goals(found)
    yield from attention_goals(found)


def shortlist_goals(found: Findings) -> Iterator[Goal]:
    """Parts of an exact search that a shortlist of level 6 keeps."""
    least = {"tree, cosine, 300": (0.98, 0.93), "tree, L1, 1,000": (0.97, 0.90)}
    for name, asked in least.items():
        if name in found.shortlists:
            for measure, share in zip((RECALL, DEEP), asked, strict=True):
                value = found.shortlists[name][measure].mean() / found.exact[measure][0].mean()
                yield Goal(f"level 6 finished by vectors, {name}, part of the exact {measure}", float(value), share)


def speed_goals(found: Findings) -> Iterator[Goal]:
    """How many times as fast few numbers are; inner products by what is faster, faiss or a matrix product."""
    if found.times is None:
        return
    for batch, ms, least in (("batches of 64", found.times.batched, 20.0), ("alone", found.times.alone, 15.0)):
        few = ms["L1, 32"]
        yield Goal(f"L1 of 32 over L1 of 1,024 numbers, {batch}, times as fast", ms["L1, 1024"] / few, least)
        vectors = min(value for name, value in ms.items() if "encoder" in name)
        yield Goal(f"L1 of 32 numbers over the encoder's inner products, {batch}", vectors / few, 5)


def attention_goals(found: Findings) -> Iterator[Goal]:
    """Attention beside the Matryoshka adapter of as many steps, as the paper claims it for few numbers."""
    if found.attending is None:
        return
    for measure in (RECALL, NDCG):
        tree, adapter = (
            found.attending.coarse(name, measure).mean()
            for name in (rows.ATTENDING.name, rows.BESIDE_ATTENDING[-1].name)
        )
        title = f"attention, mean of 4 to 32 numbers over the MRL adapter of as many steps, {measure}"
        yield Goal(title, float(tree / adapter), 1.0)
