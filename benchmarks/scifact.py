"""SciFact beside its controls: `make bench-scifact`.

Runs of specs/scifact.yaml that share one corpus and one set of vectors: the spec as shipped, timed from nothing; EHI as
published (`train` and `router` of type ehi), 40 leaves against 40 lists and against tuned lists (three seeds); and its
cold start. Every number printed is read from a report.json that the run wrote.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks import collection
from benchmarks.tables import spread, table
from rayhier.evaluate.curve import read
from rayhier.evaluate.report import Report

LEAVES = 40
SEEDS = (0, 1, 2)
VISITED = (0.05, 0.1, 0.2)


def main() -> int:
    """Run, print the tables and how each goal came out."""
    parser = argparse.ArgumentParser(description="SciFact beside its controls.")
    parser.add_argument("--workdir", type=Path, default=collection.RUNS / "bench-scifact")
    given = parser.parse_args()
    began = time.monotonic()
    report(given.workdir, [], "--fresh")
    whole = time.monotonic() - began
    equal = report(given.workdir, [*joint(), f"evaluate.lists={LEAVES}"])
    tuned = report(given.workdir, [*joint(), "evaluate.lists=auto"])
    cold = report(given.workdir, [*joint(", warm_start: none"), f"evaluate.lists={LEAVES}"])
    print(f"\n{equal.documents:,} documents, {equal.queries} test queries, seeds {SEEDS}: mean ± half the range\n")
    print_recall(equal, tuned, cold)
    print_exact(equal, cold)
    print_balance(equal, cold)
    print_goals(equal, whole)
    return 0


def joint(more: str = "") -> list[str]:
    """Overrides that make the shipped spec EHI as published, of as many leaves, with every seed."""
    router = f"router={{type: ehi, branching: {LEAVES}{more}}}"
    return ["train={type: ehi}", router, f"evaluate.seeds=[{', '.join(map(str, SEEDS))}]"]


def report(workdir: Path, overrides: list[str], *flags: str) -> Report:
    """What a run of the shipped spec reports, some of its values overridden."""
    collection.run([*collection.place("scifact", workdir), *overrides], *flags)
    return Report.read(workdir.absolute() / "report.json")


def print_recall(equal: Report, tuned: Report, cold: Report) -> None:
    """R@100 of every system at shares visited."""
    rows = [
        ("ehi", "ehi, warm start", equal),
        ("ehi", "ehi, cold start (the paper's)", cold),
        ("faiss_ivf", "faiss_ivf", equal),
        ("faiss_ivf_same_encoder", "faiss_ivf_same_encoder", equal),
        ("faiss_ivf", "faiss_ivf, tuned lists", tuned),
        ("faiss_ivf_same_encoder", "faiss_ivf_same_encoder, tuned lists", tuned),
    ]
    cells = [
        [title, f"{leaves(one, system):.0f}", *(spread(at(one, system, share)) for share in VISITED)]
        for system, title, one in rows
    ]
    print("\n".join(table(["system", "leaves", *(f"R@100 at {share:.0%}" for share in VISITED)], cells)))


def print_exact(equal: Report, cold: Report) -> None:
    """What an exact search finds with each encoder, for all queries and for those with new answers."""
    rows = []
    for system, one in (("exact", equal), ("exact_same_encoder", equal), ("exact_same_encoder", cold)):
        title = system + (", cold start" if one is cold else "")
        for group, row in one.encoders.items():
            values = [row.systems[system][measure] for measure in ("nDCG@10", "R@10", "R@100")]
            rows.append([title, f"{group} ({row.queries})", *(f"{value:.3f}" for value in values)])
    print("\n" + "\n".join(table(["exact search", "queries", "nDCG@10", "R@10", "R@100"], rows)))


def print_balance(equal: Report, cold: Report) -> None:
    """How even the leaves are, worst seed."""
    rows = [
        [title, f"{most_empty(one):.0f}", f"{most_uneven(one):.2f}"]
        for title, one in (("ehi, warm start", equal), ("ehi, cold start", cold))
    ]
    print("\n" + "\n".join(table([f"balance of {LEAVES} leaves, worst seed", "empty", "imbalance"], rows)))


def print_goals(equal: Report, whole: float) -> None:
    """How each goal came out; the whole spec took so many seconds."""
    ours, base, same = (float(np.mean(at(equal, name, 0.1))) for name in ("ehi", "faiss_ivf", "faiss_ivf_same_encoder"))
    print()
    goal("R@100 at 10% visited over faiss_ivf, points", 100 * (ours - base), 1.0)
    goal("R@100 at 10% visited over faiss_ivf_same_encoder, points", 100 * (ours - same), -1.5)
    goal("exact R@10 with the trained encoder", equal.systems["exact_same_encoder"].measures["R@10"], 0.84)
    goal("empty leaves, worst seed (at most)", -most_empty(equal), -1)
    goal("imbalance, worst seed (at most)", -most_uneven(equal), -1.5)
    goal("the whole spec as shipped from nothing, seconds (at most)", -whole, -480)


def leaves(one: Report, system: str) -> float:
    """Leaves of the router, or lists of a control."""
    return one.balance.leaves if system == one.router else one.lists[system]


def at(one: Report, system: str, share: float) -> list[float]:
    """R@100 of each seed at a share of the documents visited, interpolated."""
    curve = one.curves[system]
    return [read([row.per_seed[seed].point for row in curve], share, "R@100") for seed in range(len(one.seeds))]


def most_empty(one: Report) -> float:
    """Empty leaves of the worst seed."""
    return max(row.empty for row in one.balance.per_seed)


def most_uneven(one: Report) -> float:
    """Imbalance of the worst seed."""
    return max(row.imbalance for row in one.balance.per_seed)


def goal(title: str, value: float, least: float) -> None:
    """Print one goal and how it came out."""
    met = "met" if value >= least else "MISSED"
    shown, asked = (abs(value), abs(least)) if "at most" in title else (value, least)
    print(f"{met:<6} {title}: {shown:.3g} (asked {asked:g})")


if __name__ == "__main__":
    sys.exit(main())
