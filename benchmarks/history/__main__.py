"""Run histories and check them: `make check-history`, or smaller ones with `--operations` and `--kills`.

A server keeps one processor busy: two histories run at once, each of an index, a seed and clients of its own.
"""

import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence

from benchmarks.commands import Options, count
from benchmarks.history.driver import Plan
from benchmarks.history.rollbacks import Rollbacks
from benchmarks.history.together import Told, together
from benchmarks.history.toy_index import DOCUMENTS
from benchmarks.live.gauge import about
from benchmarks.live.page import Figures


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
    plans: list[Plan | Rollbacks] = [
        Plan(
            _share(options.operations, number, options.histories),
            _share(options.kills, number, options.histories),
            _share(options.swaps, number, options.histories),
            _share(options.failovers, number, options.histories),
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
    figures(told, seeds, options.clients, seconds).write(options.workdir, "history")
    rate, violations = counts["operations"] / seconds, sum(each.violations for each in told)
    print(f"seed {seeds}: {violations} violations; {rate:,.0f} operations a second, {seconds / 60:.1f} minutes")
    return int(bool(wrong))


def figures(told: Sequence[Told], seeds: str, clients: int, seconds: float) -> Figures:
    """What docs/live.md says of histories."""
    counts: Counter[str] = sum((Counter(each.counts) for each in told), Counter())
    text = (
        f"{counts['operations']:,} operations in histories that ran at once (seeds {seeds}). Each history had "
        f"{clients} clients and an index of {DOCUMENTS} documents in memory. Servers were killed by SIGKILL, which is "
        f"not loss of power. **{sum(each.violations for each in told)} violations** in {seconds / 60:.1f} minutes "
        f"([what is checked](../benchmarks/README.md#history)). A server was killed {counts['killed']} times. Its disk "
        f"refused writes {counts['refuses']} times. The log was damaged {counts['damaged']} times, and the model was "
        f"swapped {counts['swap']} times. A server was paused {counts['paused']} times, and another server took over "
        f"{counts['fail over'] + counts['fail back']} times. {counts['rollbacks']} rollbacks came while files were "
        f"written. A kill cut the answers of {counts['answers lost, change made']} changes that were made. {about()}."
    )
    made = [name.split(":")[0] for name in told[0].counts if name.endswith(": versions made")]
    head = ["versions by", *made]
    kinds = ("made", "seen")
    return Figures(
        text, head, [[kind, *(f"{counts[f'{name}: versions {kind}']:,}" for name in made)] for kind in kinds]
    )


def _share(whole: int, number: int, parts: int) -> int:
    return whole // parts + (number < whole % parts)


if __name__ == "__main__":
    sys.exit(main())
