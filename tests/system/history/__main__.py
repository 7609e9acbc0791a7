"""Run histories and check them: `make check-history`, or smaller ones with `--operations` and `--kills`.

A server keeps one processor busy: two histories run at once, each of an index, a seed and clients of its own.
"""

import multiprocessing
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.commands import Options, count
from benchmarks.live.gauge import about
from tests.system.history.checker import WANTED, Report
from tests.system.history.driver import Plan, checked

SHOWN = 20
"""Violations of a history that are told."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Drive, check, print; returns 1 where there is a violation."""
    parser = Options("Changes and reads of servers that are killed, and a proof that nothing is lost.", "history")
    parser.add_argument("--histories", type=count, default=2, help="at once, each with its share of what follows")
    parser.add_argument("--operations", type=count, default=200_000)
    parser.add_argument("--kills", type=count, default=300)
    parser.add_argument("--swaps", type=count, default=40)
    parser.add_argument("--failovers", type=count, default=20, help="times that another server takes over")
    parser.add_argument("--fold-documents", type=count, default=Plan.fold_documents, help="writes.fold_documents")
    parser.add_argument("--seed", type=int, help="of the first history, one more of each next; default: at random")
    options = parser.parse_args(arguments)
    first = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    wholes, n = (options.operations, options.kills, options.swaps, options.failovers), options.histories
    plans = [
        Plan(
            *(whole // n + (number < whole % n) for whole in wholes),
            first + number,
            fold_documents=options.fold_documents,
        )
        for number in range(n)
    ]
    began = time.monotonic()
    with ProcessPoolExecutor(n, multiprocessing.get_context("spawn")) as pool:
        reports = list(pool.map(checked, plans, [options.workdir / str(plan.seed) for plan in plans]))
    counts: Counter[str] = sum((Counter(each.counts) for each in reports), Counter())
    for name in dict.fromkeys(name for each in reports for name in each.counts):
        print(f"{counts[name]:9,}  {name}")
    wrong = [line for plan, report in zip(plans, reports, strict=True) for line in _wrong(plan, report)]
    print("".join(f"\n{line}\n" for line in wrong))
    seeds, seconds = " and ".join(str(plan.seed) for plan in plans), time.monotonic() - began
    rate, violations = counts["operations"] / seconds, sum(len(each.violations) for each in reports)
    print(
        f"seed {seeds}: {violations} violations; {rate:,.0f} operations a second, {seconds / 60:.1f} minutes; {about()}"
    )
    return int(bool(wrong))


def _wrong(plan: Plan, report: Report) -> Iterator[str]:
    """Lines that tell violations, and what is not proved."""
    for violation in report.violations[:SHOWN]:
        yield f"seed {plan.seed}: {violation}"
    missing = [change for change in WANTED if not report.counts[f"{change}: versions seen"]]
    if plan.swaps and report.counts["models seen"] < 2:
        missing.append("swap")
    if missing:
        yield f"seed {plan.seed}: no answer comes after a {' or a '.join(missing)}: nothing is proved of it"


if __name__ == "__main__":
    sys.exit(main())
