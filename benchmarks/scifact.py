"""SciFact beside its controls: `make bench-scifact`."""

from pathlib import Path

import numpy as np

from benchmarks import collection
from benchmarks.commands import Options
from benchmarks.goals import Goal
from benchmarks.machine import timed
from benchmarks.tables import spread, table
from rayhier.evaluate.curve import read
from rayhier.evaluate.report import Report

LEAVES = 40
SEEDS = (0, 1, 2)
VISITED = (0.05, 0.1, 0.2)


def main() -> None:
    """Run, print the tables and how each goal came out."""
    given = Options("SciFact beside its controls.", "bench-scifact").parse_args()
    seconds = timed(lambda: report(given.workdir, [], "--fresh"))
    equal, tuned, cold = (
        report(
            given.workdir,
            [
                "train={type: ehi}",
                f"router={{type: ehi, branching: {LEAVES}{more}}}",
                f"evaluate.seeds=[{', '.join(map(str, SEEDS))}]",
                f"evaluate.lists={lists}",
            ],
        )
        for lists, more in ((LEAVES, ""), ("auto", ""), (LEAVES, ", warm_start: none"))
    )
    print(f"\n{equal.documents:,} documents, {equal.queries} test queries, seeds {SEEDS}: mean ± half the range\n")
    systems = [
        ("ehi", "ehi, warm start", equal),
        ("ehi", "ehi, cold start (the paper's)", cold),
        ("faiss_ivf", "faiss_ivf", equal),
        ("faiss_ivf_same_encoder", "faiss_ivf_same_encoder", equal),
        ("faiss_ivf", "faiss_ivf, tuned lists", tuned),
        ("faiss_ivf_same_encoder", "faiss_ivf_same_encoder, tuned lists", tuned),
    ]
    rows = []
    for system, title, one in systems:
        leaves = one.balance.leaves if system == one.router else one.lists[system]
        rows.append([title, f"{leaves:.0f}", *(spread(at(one, system, share)) for share in VISITED)])
    print("\n".join(table(["system", "leaves", *(f"R@100 at {share:.0%}" for share in VISITED)], rows)))
    rows = []
    for system, title, one in (
        ("exact", "exact", equal),
        ("exact_same_encoder", "exact_same_encoder", equal),
        ("exact_same_encoder", "exact_same_encoder, cold start", cold),
    ):
        for group, row in one.encoders.items():
            values = [row.systems[system][measure] for measure in ("nDCG@10", "R@10", "R@100")]
            rows.append([title, f"{group} ({row.queries})", *(f"{value:.3f}" for value in values)])
    print("\n" + "\n".join(table(["exact search", "queries", "nDCG@10", "R@10", "R@100"], rows)))
    rows = [
        [title, f"{worst(one, 'empty'):.0f}", f"{worst(one, 'imbalance'):.2f}"]
        for title, one in (("ehi, warm start", equal), ("ehi, cold start", cold))
    ]
    print("\n" + "\n".join(table([f"balance of {LEAVES} leaves, worst seed", "empty", "imbalance"], rows)))
    ours, base, same = (float(np.mean(at(equal, name, 0.1))) for name in ("ehi", "faiss_ivf", "faiss_ivf_same_encoder"))
    goals = [
        Goal("R@100 at 10% visited over faiss_ivf, points", 100 * (ours - base), 1.0),
        Goal("R@100 at 10% visited over faiss_ivf_same_encoder, points", 100 * (ours - same), -1.5),
        Goal("exact R@10 with the trained encoder", equal.systems["exact_same_encoder"].measures["R@10"], 0.84),
        Goal("empty leaves, worst seed", worst(equal, "empty"), 1, "most"),
        Goal("imbalance, worst seed", worst(equal, "imbalance"), 1.5, "most"),
        Goal("the whole spec as shipped from nothing, seconds", seconds, 480, "most"),
    ]
    print("\n" + "\n".join(goal.line() for goal in goals))


def report(workdir: Path, overrides: list[str], *flags: str) -> Report:
    """What a run of the shipped spec reports, some of its values overridden."""
    collection.run([*collection.place("scifact", workdir), *overrides], *flags)
    return Report.read(workdir.absolute() / "report.json")


def at(one: Report, system: str, share: float) -> list[float]:
    """R@100 of each seed at a share of the documents visited, interpolated."""
    curve = one.curves[system]
    return [read([row.per_seed[seed].point for row in curve], share, "R@100") for seed in range(len(one.seeds))]


def worst(one: Report, balance: str) -> float:
    """Empty leaves, or imbalance, of the worst seed."""
    return max(float(getattr(row, balance)) for row in one.balance.per_seed)


if __name__ == "__main__":
    main()
