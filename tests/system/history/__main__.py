"""Run histories and check them: `make check-history`, or smaller ones with `--operations` and `--kills`.

A server keeps one processor busy: two histories run at once, each of an index, a seed and clients of its own.
"""

import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence

from benchmarks.commands import Options, count
from benchmarks.live.gauge import about
from tests.system.history.driver import Plan
from tests.system.history.rollbacks import Rollbacks
from tests.system.history.together import together


def main(arguments: Sequence[str] | None = None) -> int:
    """Drive, check, print; returns 1 where there is a violation."""
    parser = Options("Changes and reads of servers that are killed, and a proof that nothing is lost.", "history")
    parser.add_argument("--histories", type=count, default=2, help="at once, each with its share of what follows")
    parser.add_argument("--operations", type=count, default=200_000)
    parser.add_argument("--kills", type=count, default=300)
    parser.add_argument("--swaps", type=count, default=40)
    parser.add_argument("--rollbacks", type=int, default=60, help="of one more history, whose one client rolls back")
    parser.add_argument("--failovers", type=count, default=20, help="times that another server takes over")
    parser.add_argument("--clients", type=count, default=Plan.clients, help="of each history (default 8)")
    parser.add_argument("--fold-documents", type=count, default=Plan.fold_documents, help="writes.fold_documents")
    parser.add_argument("--seed", type=int, help="of the first history, one more of each next; default: at random")
    parser.add_argument("--no-late", action="store_true", help="send no change again long after its answer")
    parser.add_argument("--no-mounts", action="store_true", help="no tmpfs: the server's files are limited in size")
    options = parser.parse_args(arguments)
    first = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    wholes = options.operations, options.kills, options.swaps, options.failovers
    plans: list[Plan | Rollbacks] = [
        Plan(
            *(whole // options.histories + (number < whole % options.histories) for whole in wholes),
            first + number,
            options.clients,
            options.fold_documents,
            late=not options.no_late,
            mounts=not options.no_mounts,
        )
        for number in range(options.histories)
    ]
    if options.rollbacks:
        plans.append(Rollbacks(options.rollbacks, first + options.histories))
    folders, began = [options.workdir / str(plan.seed) for plan in plans], time.monotonic()
    told = together(plans, folders)
    counts: Counter[str] = sum((Counter(each.counts) for each in told), Counter())
    for name in dict.fromkeys(name for each in told for name in each.counts):
        print(f"{counts[name]:9,}  {name}")
    wrong = [line for each in told for line in each.wrong]
    print("".join(f"\n{line}\n" for line in wrong))
    seeds, seconds = " and ".join(str(plan.seed) for plan in plans), time.monotonic() - began
    rate, violations = counts["operations"] / seconds, sum(each.violations for each in told)
    print(
        f"seed {seeds}: {violations} violations; {rate:,.0f} operations a second, {seconds / 60:.1f} minutes; {about()}"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
