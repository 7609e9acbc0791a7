"""Several histories at once, each driven and checked in a process of its own, which cannot be of `__main__`."""

import json
import multiprocessing
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.commands import clock
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
