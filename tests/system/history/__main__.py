"""Run histories and check them: `make check-history`, or smaller ones with `--operations` and `--kills`.

A server keeps one processor busy: two histories run at once, each of an index, a seed and clients of its own, driven
and checked in a process of its own.
"""

import json
import multiprocessing
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.commands import Options, clock, count
from benchmarks.live.gauge import about
from tests.system.history import rollbacks
from tests.system.history.checker import WANTED, Report, check
from tests.system.history.driver import Plan, drive
from tests.system.history.rollbacks import Rollbacks

SHOWN = 20
"""Violations of a history that are told."""
TOLD = "told.json"


@dataclass(frozen=True)
class Told:
    """What a check counted, how many violations there are, and lines that tell these and what is not proved."""

    counts: dict[str, int]
    violations: int
    wrong: list[str]


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


def together(plans: Sequence[Plan | Rollbacks], folders: Sequence[Path]) -> list[Told]:
    """Do what each plan says below its folder, all at once, and check each history.

    SIGTERM ends all, with their servers and disks.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_checked, args=each) for each in zip(plans, folders, strict=True)]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join()
    except KeyboardInterrupt:  # which they have, too
        for process in processes:
            process.join()
        raise
    finally:
        for process in processes:
            process.terminate()
    return [
        Told({}, 0, [f"seed {plan.seed}: broke off; what it printed says why"])
        if process.exitcode
        else Told(**json.loads((folder / TOLD).read_text()))
        for plan, folder, process in zip(plans, folders, processes, strict=True)
    ]


def _checked(plan: Plan | Rollbacks, folder: Path) -> None:
    """Drive and check a history, and write what is to be told of it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report = clock()

    def say(text: str) -> None:
        report(f"seed {plan.seed}: {text}")

    if isinstance(plan, Rollbacks):
        wrong = rollbacks.drive(plan, folder, say)
        told = Told({"rollbacks": plan.rounds}, len(wrong), [f"seed {plan.seed}: {line}" for line in wrong[:SHOWN]])
    else:
        with drive(plan, folder, say).open() as lines:
            checked = check(lines)
        told = Told(checked.counts, len(checked.violations), list(_wrong(plan, checked)))
    (folder / TOLD).write_text(json.dumps(asdict(told)))
    say("checked")


def _wrong(plan: Plan, report: Report) -> Iterator[str]:
    for violation in report.violations[:SHOWN]:
        yield f"seed {plan.seed}: {violation}"
    missing = [change for change in WANTED if not report.counts[f"{change}: versions seen"]]
    if plan.swaps and report.counts["models seen"] < 2:
        missing.append("swap")
    if missing:
        yield f"seed {plan.seed}: no answer comes after a {' or a '.join(missing)}: nothing is proved of it"


if __name__ == "__main__":
    sys.exit(main())
