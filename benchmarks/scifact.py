"""SciFact beside its controls: `make bench-scifact`.

Runs of specs/scifact.yaml that share one corpus and one set of vectors: the spec as shipped, timed from nothing; EHI as
published (`router.training: joint`), 40 leaves against 40 lists and against tuned lists (three seeds); and its cold
start. Every number printed is read from a report.json that the run wrote.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from rayhier.evaluate.curve import read
from rayhier.evaluate.tables import point_of

ROOT = Path(__file__).parents[1]
LEAVES = 40
SEEDS = (0, 1, 2)
VISITED = (0.05, 0.1, 0.2)
Report = dict[str, Any]


def main() -> int:
    """Run, print the table and how each goal came out."""
    parser = argparse.ArgumentParser(description="SciFact beside its controls.")
    parser.add_argument("--workdir", default="runs/bench-scifact")
    given = parser.parse_args()
    common = [f"workdir={given.workdir}", f"corpus.path={collection('scifact')}"]
    began = time.monotonic()
    run(given.workdir, [*common], fresh=True)
    whole = time.monotonic() - began
    forty = [
        *common,
        "router.training=joint",
        f"router.branching={LEAVES}",
        f"evaluate.seeds=[{', '.join(map(str, SEEDS))}]",
    ]
    equal = run(given.workdir, [*forty, f"evaluate.lists={LEAVES}"])
    tuned = run(given.workdir, [*forty, "evaluate.lists=auto"])
    cold = run(given.workdir, [*forty, f"evaluate.lists={LEAVES}", "router.warm_start=none"])
    print(
        f"\n{equal['documents']:,} documents, {equal['queries']} test queries, seeds {SEEDS}: mean ± half the range\n"
    )
    print_recall(equal, tuned, cold)
    print_exact(equal, cold)
    print_balance(equal, cold)
    print_goals(equal, whole)
    return 0


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
    heads = " | ".join(f"R@100 at {share:.0%}".rjust(13) for share in VISITED)
    print(f"| {'system':<36} | leaves | {heads} |")
    print(f"|{'-' * 38}|-------:|{'|'.join(['-' * 14 + ':'] * len(VISITED))}|")
    for system, title, report in rows:
        leaves = report["balance"]["leaves"] if system == "ehi" else report["lists"][system]
        cells = " | ".join(f"{spread(at(report, system, share)):>13}" for share in VISITED)
        print(f"| {title:<36} | {leaves:6.0f} | {cells} |")


def print_exact(equal: Report, cold: Report) -> None:
    """What an exact search finds with each encoder."""
    print(f"\n| {'exact search':<36} | R@10  | R@100 |\n|{'-' * 38}|------:|------:|")
    for system, report in (("exact", equal), ("exact_same_encoder", equal), ("exact_same_encoder", cold)):
        values = report["systems"][system]
        title = system + (", cold start" if report is cold else "")
        print(f"| {title:<36} | {values['R@10']:.3f} | {values['R@100']:.3f} |")


def print_balance(equal: Report, cold: Report) -> None:
    """How even the leaves are, worst seed."""
    print(f"\n| {'balance of 40 leaves':<36} | empty | imbalance |\n|{'-' * 38}|------:|----------:|")
    for title, report in (("ehi, warm start", equal), ("ehi, cold start", cold)):
        empty, imbalance = per_seed(report, "empty"), per_seed(report, "imbalance")
        print(f"| {title:<36} | {np.max(empty):5.0f} | {np.max(imbalance):9.2f} |  (worst seed)")


def print_goals(equal: Report, whole: float) -> None:
    """What was asked, and what came out; the whole spec took so many seconds."""
    ours, base, same = (float(np.mean(at(equal, name, 0.1))) for name in ("ehi", "faiss_ivf", "faiss_ivf_same_encoder"))
    print()
    goal("R@100 at 10% visited over faiss_ivf, points", 100 * (ours - base), 1.0)
    goal("R@100 at 10% visited over faiss_ivf_same_encoder, points", 100 * (ours - same), -1.5)
    goal("exact R@10 with the trained encoder", equal["systems"]["exact_same_encoder"]["R@10"], 0.84)
    goal("empty leaves, worst seed (at most)", -float(np.max(per_seed(equal, "empty"))), -1)
    goal("imbalance, worst seed (at most)", -float(np.max(per_seed(equal, "imbalance"))), -1.5)
    goal("the whole spec as shipped from nothing, seconds (at most)", -whole, -480)


def collection(name: str) -> Path:
    """The folder of a collection: $RAYHIER_DATA, else data/, else ../shared/data."""
    places = [Path(os.environ.get("RAYHIER_DATA", ROOT / "data")), ROOT / "data", ROOT.parent / "shared" / "data"]
    for place in places:
        if (place / name / "corpus.jsonl").is_file():
            return place / name
    sys.exit(f"{name}: in none of {', '.join(map(str, places))}; set RAYHIER_DATA to the folder that holds it")


def run(workdir: str, overrides: list[str], *, fresh: bool = False) -> dict[str, Any]:
    """One run of the shipped spec; returns its report."""
    command = [sys.executable, "-m", "rayhier.run", str(ROOT / "specs" / "scifact.yaml")]
    command += [part for override in overrides for part in ("--set", override)] + (["--fresh"] if fresh else [])
    print("$ python", *command[1:], flush=True)
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    report: dict[str, Any] = json.loads((ROOT / workdir / "report.json").read_text())
    return report


def at(report: dict[str, Any], system: str, share: float) -> list[float]:
    """R@100 of each seed at a share of the documents visited, interpolated."""
    curve = report["curves"][system]
    seeds = range(len(report["seeds"]))
    return [read([point_of(point["per_seed"][seed], "R@100") for point in curve], share, "R@100") for seed in seeds]


def per_seed(report: dict[str, Any], name: str) -> list[float]:
    """A figure of the balance, of each seed."""
    return [row[name] for row in report["balance"]["per_seed"]]


def spread(values: list[float]) -> str:
    """Mean and half the range; nothing where the smallest beam visits more already."""
    if np.isnan(values).any():
        return "-"
    return f"{np.mean(values):.3f} ± {(max(values) - min(values)) / 2:.3f}"


def goal(title: str, value: float, least: float) -> None:
    """One goal and how it came out."""
    met = "met" if value >= least else "MISSED"
    shown, asked = (abs(value), abs(least)) if "at most" in title else (value, least)
    print(f"{met:<6} {title}: {shown:.3g} (asked {asked:g})")


if __name__ == "__main__":
    sys.exit(main())
