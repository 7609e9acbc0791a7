"""docs/retreever.md: goals, and tables and plots of every collection."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.quality.statistics import Curve
from benchmarks.retreever import goals, plots
from benchmarks.retreever.bench import MEASURES
from benchmarks.retreever.findings import Findings, Sized
from benchmarks.retreever.leaves import SHARES, recalls
from benchmarks.retreever.rows import (
    ADAPTERS,
    MLP,
    MRL,
    NO_TREE,
    SCHEDULES,
    SHIPPED,
    TRAINED,
    UNTOUCHED,
)
from benchmarks.retreever.speed import Speeds
from benchmarks.tables import UNKNOWN, mean, spread, table

SHOWN = (4, 8, 16, 32, 64, 128, 256, 1024)
INTRODUCTION = """# ReTreever's levels, measured

`train: {type: retreever}` ("ReTreever: Tree-based Coarse-to-Fine Representations for Retrieval") puts a frozen encoder
under a perfect binary tree, here of 1,024 leaves; the probabilities of the 2^h nodes of level h represent a text. The
encoder is all-MiniLM-L6-v2 with a head that contrast has trained. *As shipped*, splits are hyperplanes that start at
the directions of a Matryoshka (MRL) adapter; all levels learn at once, by the cosine of 2^h p - 1; documents ask for
their neighbours beside the judged queries; an anchor holds the cosines of the deepest level to the encoder's. *As
printed* are the paper's similarity (total variation), rate, batch and bounds of the scale, with linear splits: training
from our start only lost by them, so dev keeps that start in both rows. An adapter is a matrix of 384 x 384 over the
same vectors, with the same batches, steps and tuning; *MRL* ones learn at 4, 8, 16, ... of its outputs.

`make bench-retreever`: exact flat searches of the test queries. Three seeds down to *MLP splits* and one below it;
means over seeds ± half their range; points above the linear adapter with 95% intervals from paired resamples of the
queries. Settings were chosen on dev ([LOG.md](LOG.md)), which also picks the epoch.

**What the tables say.** *All numbers*: the encoder has learned these pairs already. A linear adapter finds what its
start finds, and 1,024 numbers of the tree find as much, within half a point. *Few numbers*: total variation and a start
that knows nothing, as in the paper, are far behind an MRL adapter. The shipped linear tree comes within two to five per
cent of the best one, and an MLP, which cannot hold the encoder's cosines and has no anchor, within one to six. The
numbers of a level sum to one, so a tree has one direction fewer than an adapter; one of 2^h - 1 numbers loses more than
that (LOG). Attention to tokens reaches what the paper claims: at 4 to 32 numbers it finds 1.6 times what an MRL adapter
of as many steps finds, and with 256 numbers more than the encoder's own 384, since it reads tokens anew. Its price is a
pass over every token for each split. *Schedules*: the leaves alone (constant) are as good at 1,024 numbers and useless
at few; stochastic is 1.6 to 2.3 times as good there; all levels at once is better than both. *Leaves*: these trees are
no good inverted lists. Their distributions are flat by design: at a hundredth visited, lists of plain k-means find four
times as much. Search by a level instead. *Ancestors*: documents are more alike the deeper their common ancestor in a
tree trained by total variation. In the shipped one they are only in the same leaf, as its splits are directions in the
order of what they tell, each a small part of a cosine. *Time*: 32 numbers are scanned over 30 times as fast as 1,024,
and alone a dozen times as fast as 384; in batches a matrix product of the 384 is less than four times as slow. Of a
whole question, encoding it takes most.
""".splitlines()


def write_page(found: Sequence[Findings], docs: Path) -> str:
    """Write retreever.md and its plots into a folder; returns the page."""
    page = [*INTRODUCTION, "", "## Goals", "", *goals.lines({one.name: one for one in found})]
    for one in found:
        page += ["", f"## {one.name}", "", one.about, "", *sections(one, docs / "images")]
    text = "\n".join(page) + "\n"
    (docs / "retreever.md").write_text(text)
    return text


def sections(found: Findings, images: Path) -> list[str]:
    """Tables and plots of one collection."""
    told, name = found.told, found.name
    compared = [UNTOUCHED.name, TRAINED.name, ADAPTERS[0].name, MRL.name, NO_TREE.name, SHIPPED.name, MLP.name]
    page = ["### All numbers", "", *whole(told), ""]
    page += ["### Few numbers", "", *few(told), ""]
    page += [plots.sizes(told, compared, ("R@10", "nDCG@10"), images, f"retreever_sizes_{name}.png"), ""]
    schedules = [row for row in SCHEDULES if row in told.found]
    page += [plots.sizes(told, schedules, ("R@10", "R@100"), images, f"retreever_schedules_{name}.png"), ""]
    page += ["### Leaves", "", *leaves(found), "", *curves(found.curves), ""]
    page += ["### Ancestors", "", *ancestors(found), ""]
    page += [plots.similarities(found.similarities, images, f"retreever_ancestors_{name}.png"), ""]
    if found.shortlists:
        page += ["### A level finished by vectors", "", *shortlists(found), ""]
    if found.times is not None:
        page += ["### Time", "", *times(found.times), "", plots.speeds(found.times, images, "retreever_speed.png"), ""]
    if found.attending is not None and found.distances is not None:
        page += ["### Attention to tokens", "", *attending(found.attending), ""]
        page += [plots.distances(found.distances, images, "retreever_distances.png"), ""]
    return page[:-1]


def whole(told: Sized) -> list[str]:
    """Every row at its largest size, with points over the linear adapter."""
    control, rows = ADAPTERS[0].name, []
    for name in told.found:
        full, cells = told.full(name), []
        for measure in MEASURES:
            cells.append(spread(list(told.seeds(name, full, measure))))
            if measure != "R@100":
                own = told.difference(name, control, measure)
                same = name == control
                cells.append("" if same else f"{own.difference:+.1f} [{own.low:+.1f}, {own.high:+.1f}]")
        rows.append([name, f"{full:,}", *cells])
    return table(["", "numbers", "R@10", "over linear", "nDCG@10", "over linear", "R@100"], rows)


def few(told: Sized) -> list[str]:
    """R@10 and R@100 at every size, and means of 4 to 32 numbers."""
    rows = []
    for name in told.found:
        if len(told.sizes(name)) > 1:
            low = [mean(list(told.coarse(name, measure))) for measure in MEASURES]
            sizes = [
                f"{told.mean(name, size, 'R@10'):.3f} / {told.mean(name, size, 'R@100'):.3f}"
                if size in told.found[name]
                else UNKNOWN
                for size in SHOWN[:-1]
            ]
            rows.append([name, *low, *sizes])
    head = ["", *(f"{measure}, mean of 4 to 32" for measure in MEASURES), *(f"{size}" for size in SHOWN[:-1])]
    return table(head, rows)


def leaves(found: Findings) -> list[str]:
    """The best leaf alone."""
    rows = [
        [
            name,
            *(f"{own[measure].mean():.3f}" for measure in MEASURES),
            f"{own['visited'].mean():.2%}",
            f"{own['ms'][0]:.2f}",
        ]
        for name, own in found.leaves.items()
    ]
    return table(["the best leaf, ranked by vectors", *MEASURES, "visited", "ms a query"], rows)


def curves(found: Mapping[str, Curve]) -> list[str]:
    """R@100 at documents visited."""
    rows = [
        [name, f"{own.exact_Q.mean():.3f}", *(f"{value:.3f}" for value in recalls(own))] for name, own in found.items()
    ]
    return table(["R@100", "exact", *(f"{share:.0%} visited" for share in SHARES)], rows)


def ancestors(found: Findings) -> list[str]:
    """Cosines by depth."""
    depths = range(len(next(iter(found.similarities.values()))["cosine"]))
    rows = [[name, *(f"{value:.3f}" for value in own["cosine"])] for name, own in found.similarities.items()]
    return table(["cosine of two documents, ancestor at depth", *(str(depth) for depth in depths)], rows)


def shortlists(found: Findings) -> list[str]:
    """Measures of shortlists, and parts of the exact ones."""
    exact, rows = found.told.found[TRAINED.name][found.told.full(TRAINED.name)], []
    for name, own in found.shortlists.items():
        cells = [
            f"{own[measure].mean():.3f} ({own[measure].mean() / exact[measure][0].mean():.3f})" for measure in MEASURES
        ]
        rows.append([name, *cells])
    rows.append(["exact", *(f"{exact[measure][0].mean():.3f}" for measure in MEASURES)])
    return table(
        ["64 numbers, documents on the shortlist", *(f"{measure} (part of exact)" for measure in MEASURES)], rows
    )


def times(found: Speeds) -> list[str]:
    """Milliseconds of searches and of whole questions."""
    rows = [[name, f"{found.batched[name]:.3f}", f"{found.alone[name]:.3f}"] for name in found.batched]
    page = table([f"flat search of {found.documents:,} documents, one thread", "ms, batches of 64", "ms, alone"], rows)
    parts = sorted({part for own in found.whole.values() for part in own}, key=["encode", "tree", "search"].index)
    wholes = [
        [name, *(f"{own[part]:.2f}" if part in own else UNKNOWN for part in parts), f"{sum(own.values()):.2f}"]
        for name, own in found.whole.items()
    ]
    return [*page, "", *table(["a whole question, alone, ms", *parts, "all"], wholes)]


def attending(told: Sized) -> list[str]:
    """Attention beside rows that read vectors, with as many steps."""
    rows = []
    for name in told.found:
        cells = [mean(list(told.coarse(name, measure))) for measure in MEASURES]
        cells += [f"{told.mean(name, told.full(name), measure):.3f}" for measure in MEASURES]
        rows.append([name, *cells, f"{told.full(name):,}"])
    head = [*(f"{measure}, 4 to 32" for measure in MEASURES), *(f"{measure}, all" for measure in MEASURES), "numbers"]
    return table(["", *head], rows)
