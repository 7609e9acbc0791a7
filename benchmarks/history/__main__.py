"""Run a history and check it: `make check-history`, or a smaller one with `--operations` and `--kills`."""

import secrets
import signal
import sys
import time
from collections.abc import Sequence

from benchmarks.commands import Options, clock, count
from benchmarks.history.checker import WANTED, check
from benchmarks.history.driver import Plan, drive

SHOWN = 20
"""Violations that are printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Drive, check, print; returns 1 where there is a violation."""
    parser = Options("Changes and reads of a server that is killed, and a proof that nothing is lost.", "history")
    parser.add_argument("--operations", type=count, default=200_000)
    parser.add_argument("--kills", type=count, default=300)
    parser.add_argument("--swaps", type=count, default=40)
    parser.add_argument("--clients", type=count, default=8)
    parser.add_argument("--fold-documents", type=count, default=Plan.fold_documents, help="writes.fold_documents")
    parser.add_argument("--seed", type=int, help="default: a random one, which is printed")
    parser.add_argument("--no-late", action="store_true", help="send no change again long after its answer")
    parser.add_argument("--no-mounts", action="store_true", help="no tmpfs: the server's files are limited in size")
    options = parser.parse_args(arguments)
    plan = Plan(
        options.operations,
        options.kills,
        options.swaps,
        secrets.randbelow(1 << 31) if options.seed is None else options.seed,
        options.clients,
        options.fold_documents,
        late=not options.no_late,
        mounts=not options.no_mounts,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that server and disk end with this process
    report, began = clock(), time.monotonic()
    path = drive(plan, options.workdir, report)
    seconds = time.monotonic() - began
    with path.open() as lines:
        checked = check(lines)
    report("checked")
    for name, number in checked.counts.items():
        print(f"{number:9,}  {name}")
    for violation in checked.violations[:SHOWN]:
        print(f"\n{violation}")
    rate = checked.counts["operations"] / seconds
    said = f"{rate:,.0f} operations a second, {seconds / 60:.1f} minutes; {path}"
    print(f"\nseed {plan.seed}: {len(checked.violations)} violations; {said}")
    missing = [change for change in WANTED if not checked.counts[f"{change}: versions seen"]]
    if plan.swaps and checked.counts["models seen"] < 2:
        missing.append("swap")
    if missing:
        print(f"no answer comes after a {' or a '.join(missing)}: nothing is proved of it")
    return 1 if checked.violations or missing else 0


if __name__ == "__main__":
    sys.exit(main())
