"""docs/ehi.md: a table of all rows, one of groups of queries, chosen rates, seconds, and plots."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FormatStrFormatter, MaxNLocator, NullLocator

from benchmarks import pages
from benchmarks.ehi.bench import NEW, SHARES, Bench, Found
from benchmarks.ehi.rates import Rates, best
from benchmarks.ehi.speed import Speed
from benchmarks.statistics import by_seed, paired
from benchmarks.tables import UNKNOWN, heading, line, mean, spread, table
from rayhier.arrays import Bools, Ints, Values

HEAD = ["", "R@100 at 5%", "at 10%", "at 20%", "exact R@10", "new: R@100 at 10%", "new: exact R@10"]
HEAD += ["imbalance", "empty leaves", "epochs kept"]
SHARE = 0.1
"""Share visited at which plots and queries with new answers are told."""
GROUPED = 0.2
"""Share visited at which groups of queries are compared: the least that the cold start can be read at."""
Results = Mapping[str, Sequence[Found]]
"""Table -> its rows."""


@dataclass(frozen=True)
class Findings:
    """All that the page tells."""

    tables: Results
    grouped: Sequence[Found]
    """Rows that are told for groups of queries."""
    rates: Mapping[str, Rates]
    """Router -> its learning rates."""
    speeds: Mapping[str, Sequence[Speed]]
    """Row -> its searches."""


def write_page(bench: Bench, found: Findings, seeds: int, docs: Path) -> str:
    """Write ehi.md and its plots into a folder; returns the page."""
    titled = [
        ("All rows", rows(bench, found.tables)),
        ("Groups of queries", grouped(bench, found.grouped)),
        ("Learning rates", rates(found.rates)),
        ("Time", times(found.speeds)),
        ("Plots", draw(found.tables, docs / "images")),
    ]
    return pages.write(docs, "ehi.md", [*pages.prose("ehi/preface.md", seeds=seeds), *pages.sections(titled)])


def rows(bench: Bench, found: Results) -> list[str]:
    """One table, a stretch of it for each table or figure of the paper."""
    lines, new_Q = heading(HEAD), bench.groups[NEW]
    for title, own in found.items():
        lines.append(f"| **{title}** {'| ' * (len(HEAD) - 1)}|")
        lines += [line([one.row.name, *_cells(one, new_Q)]) for one in own]
    return lines


def _cells(own: Found, new_Q: Bools) -> list[str]:
    every_Q = np.ones_like(new_Q)
    cells = [f"{spread(_means(own, 'ehi', share, every_Q))} ({_mean(own, 'ivf', share, every_Q)})" for share in SHARES]
    cells.append(spread(own.exact("R@10").mean(axis=1).tolist()))
    cells.append(f"{_mean(own, 'ehi', SHARE, new_Q)} ({_mean(own, 'ivf', SHARE, new_Q)})")
    cells.append(f"{own.exact('R@10')[:, new_Q].mean():.3f}")
    cells += [spread(own.number("imbalance"), 2), f"{max(own.number('empty')):.0f}"]
    return [*cells, ", ".join(f"{epoch:.0f}" for epoch in own.number("epoch"))]


def _means(own: Found, system: str, share: float, in_Q: Bools) -> list[float]:
    """R@100 of each seed at a share visited, of some queries; NaN where it is not known."""
    means: list[float] = own.recall(system, share)[:, in_Q].mean(axis=1).tolist()
    return means


def _mean(own: Found, system: str, share: float, in_Q: Bools) -> str:
    return mean(_means(own, system, share, in_Q))


def grouped(bench: Bench, found: Sequence[Found]) -> list[str]:
    """Points above k-means at a share visited, and above the untrained encoder by exact search, by group of queries."""
    head = ["", "queries", f"R@100 at {GROUPED:.0%}, points over k-means", "seeds", "exact R@10, points over untrained"]
    untrained_Q, body = bench.untrained["R@10"], []
    for own in found:
        for group, in_Q in bench.groups.items():
            ours_SQ, theirs_SQ = (own.recall(system, GROUPED)[:, in_Q] for system in ("ehi", "ivf"))
            exact_SQ, before_Q = own.exact("R@10")[:, in_Q], untrained_Q[in_Q]
            before_SQ = np.broadcast_to(before_Q, exact_SQ.shape)
            family_Q = bench.family[in_Q]
            cells = _over(ours_SQ, theirs_SQ, family_Q) + _over(exact_SQ, before_SQ, family_Q)
            body.append([f"{own.row.name}: {group}", str(in_Q.sum()), *cells])
    return table([*head, "seeds"], body)


def _over(ours_SQ: Values, theirs_SQ: Values, family_Q: Ints) -> list[str]:
    """Points of values [s, q] above others, with an interval over families of queries; and the interval over seeds."""
    if np.isnan(ours_SQ).any() or np.isnan(theirs_SQ).any():
        return [UNKNOWN, UNKNOWN]
    seeds = by_seed(ours_SQ, theirs_SQ)
    return [
        paired(ours_SQ.mean(axis=0), theirs_SQ.mean(axis=0), family_Q).shown,
        f"[{seeds.low:+.1f}, {seeds.high:+.1f}]",
    ]


def rates(found: Mapping[str, Rates]) -> list[str]:
    """What every rate found for every router."""
    body = [[name, _tried(own.router), _tried(own.encoder)] for name, own in found.items()]
    return table(["", "rate of the router: found by folds", "rate of the encoder, at the router's best"], body)


def _tried(values: Mapping[float, float]) -> str:
    cells = {rate: f"{rate:g}: {value:.3f}" for rate, value in values.items()}
    cells[best(dict(values))] = f"**{cells[best(dict(values))]}**"
    return "; ".join(cells.values())


def times(found: Mapping[str, Sequence[Speed]]) -> list[str]:
    """What a query takes, and what it finds for that."""
    body = [
        [f"{row}: {own.name}", str(own.beam or ""), f"{own.visited:.1%}", f"{own.recall:.3f}", f"{own.ms:.3f}"]
        for row, speeds in found.items()
        for own in speeds
    ]
    return table(["", "leaves visited", "documents visited", "R@100", "ms a query"], body)


EPOCHS = (
    *("as shipped, 40 leaves", "as printed, 40 leaves", "no intra-leaf loss (λ3 = 0)", "cold start (the paper's)"),
    *("160 leaves", "(8, 2)"),
)
"""Rows whose imbalance is drawn over epochs."""


def draw(found: Results, images: Path) -> list[str]:
    """Save one figure a table of the paper; returns links to them."""
    fills: dict[str, Callable[[Axes], None]] = {title: partial(bars, rows=own) for title, own in found.items()}
    shown = {one.row.name: one for own in found.values() for one in own if one.row.name in EPOCHS}
    fills["Figure 7: imbalance over epochs"] = partial(epochs, rows=list(shown.values()))
    links = []
    for title, fill in fills.items():
        path = images / f"ehi_{title.partition(':')[0].lower().replace(' ', '_')}.png"
        with pages.plot(path) as (axes,):
            axes.set_title(title)
            fill(axes)
        links.append(pages.link(title, path))
    return links


def bars(axes: Axes, rows: Sequence[Found]) -> None:
    """R@100 at 10% visited of every row, ours and IVF's, with every seed."""
    names = []
    for place, own in enumerate(rows):
        long = len(own.row.name) >= 16
        names.append(own.row.name.replace(", ", ",\n", 1).replace(" (", "\n(") if long else own.row.name)
        every_Q = np.ones(own.recall("ehi", SHARE).shape[1], dtype=bool)
        for offset, system, color in ((-0.2, "ehi", "C0"), (0.2, "ivf", "0.6")):
            values = _means(own, system, SHARE, every_Q)
            label = {"ehi": "EHI", "ivf": "k-means IVF, same vectors"}[system] if place == 0 else None
            axes.bar(place + offset, np.mean(values), 0.38, color=color, label=label)
            axes.plot([place + offset] * len(values), values, "k.", markersize=3)
        if np.isnan(_means(own, "ehi", SHARE, every_Q)).any():
            axes.text(place, 0.51, "some seed\nvisits more", fontsize=6, ha="center")
    axes.set_xticks(range(len(rows)), names, fontsize=7)
    axes.set_ylim(bottom=0.5)
    axes.set_ylabel("R@100 at 10% visited")
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=2)


def epochs(axes: Axes, rows: Sequence[Found]) -> None:
    """Imbalance after each epoch, mean over seeds."""
    over = {own.row.name: np.mean([seed["over_epochs"] for seed in own.seeds], axis=0) for own in rows}
    named = {name: (epoch_E3[:, 0], epoch_E3[:, 1]) for name, epoch_E3 in over.items()}
    pages.curves(axes, named, yscale="log", xlabel="epoch", ylabel="imbalance (1 = even)")
    axes.yaxis.set_major_locator(FixedLocator([1, 1.5, 2, 3, 5, 8]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
