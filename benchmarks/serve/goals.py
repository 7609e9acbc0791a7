"""Shared parts of the benchmarks of servers: queries, paired rounds, an overload, and their end."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import write
from benchmarks.serve.load import Load, a_second, at_a_time
from benchmarks.tables import Goal, value_table
from rayhier.progress import say
from rayhier.search.snapshot import Snapshot
from rayhier.serve.backend.version import Version
from rayhier.storage import columns, current

K, ASKED = 10, 200
"""Results of a question, and requests of a round."""
PATH = "/v1/search"
APPLIED = 0.9
"""Least share of the rate asked that must be sent, or the goal says so."""
Results = Sequence[tuple[str, float]]
"""Ids and scores of an answer, best first."""


def ended(goals: Iterable[Goal], docs: Path, name: str, about: Iterable[str]) -> int:
    """Say each goal as it is measured, write the page and print it. The exit code is 1 if a goal was not met."""
    found = []
    for goal in goals:
        say("  ".join(goal.row()))
        found.append(goal)
    print(write(docs, name, [*about, "", *value_table(found, ".3g")]))
    return 0 if all(goal.met for goal in found if goal.limit is not None) else 1


def asked(workdir: Path) -> tuple[Snapshot, list[str]]:
    """Offline search of an index, which encodes queries in float32 as servers do, and the collection's queries."""
    searcher = Snapshot.open(workdir)
    searcher.model = Version.newest(str(workdir))[0].model().load()
    corpus = current.artifact(workdir, current.read(workdir), "corpus")
    return searcher, columns.read([corpus.path("queries.parquet")], ["text"])["text"].to_pylist()


def same(served: Results, offline: Results, k: int, within: float) -> bool:
    """Return True if an answer is the first k of offline search: the same scores, the same ids but for ties.

    Scores are the same, or tied, where they are at most `within` apart. Offline results go beyond k, so that what is
    tied with the last of the k may stand there.
    """
    score_of = dict(offline)
    return len({name for name, _ in served}) == len(served) == min(k, len(offline)) and all(
        abs(score - wanted) <= within and abs(score_of.get(name, math.inf) - wanted) <= within
        for (name, score), (_, wanted) in zip(served, offline, strict=False)
    )


def paired(
    title: str,
    ask: Callable[[Any], Load],
    servers: Sequence[str | int],
    rounds: int,
    limit: float,
    *,
    late: bool = False,
) -> Goal:
    """Answers a second of our server over those of the other, or its median latency; medians of paired rounds.

    `servers` are ours and the other, as `ask` takes them; the order changes from round to round.
    """
    found = []
    for number in range(rounds):
        loads = {server: ask(server) for server in (servers if number % 2 else servers[::-1])}
        own, other = (load.ms(0.5) if late else load.rate for load in (loads[server] for server in servers))
        found.append((own / other, own, other))
    ratio, own, other = np.median(found, axis=0).tolist()
    if late:
        return Goal(title, ratio, limit, "most", f"{own:.1f} ms, {other:.1f} ms")
    return Goal(title, ratio, limit, "least", f"{own:.0f} per second, {other:.0f} per second")


def share(right: Sequence[bool]) -> float | None:
    """Share of what happened that was right; None where nothing happened."""
    return float(np.mean(right)) if right else None


def seen(found: Load, rate: float) -> str:
    """How many requests got which status (0: no answer), and how many of the rate asked for were sent."""
    counts = Counter(one.status for one in found.outcomes)
    statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(counts.items()))
    sent = f"sent {found.sent_rate:.0f} of {rate:.0f} per second, {found.unsent:,} not sent"
    return f"{statuses}; {sent}" + ("" if found.sent_rate >= APPLIED * rate else ": LESS LOAD THAN ASKED")


def overload(port: int, path: str, bodies: Sequence[bytes], capacity: float, seconds: float) -> Iterator[Goal]:
    """Three times as many questions a second as the server answers."""
    idle = at_a_time(port, path, bodies[:ASKED], 1).ms(0.99)
    found = a_second(port, path, bodies, 3 * capacity, seconds)
    refused = found.refused()
    documented = share([one.unavailable("overloaded") for one in refused])
    title = f"overload, {3 * capacity:.0f} queries per second: share of refusals that are the documented 503"
    yield Goal(title, documented, 1.0, "least", seen(found, 3 * capacity))
    late_refusal = found.ms(0.5, refused) if refused else None
    yield Goal("overload: median milliseconds of a refusal", late_refusal, 50.0, "most")
    late, title = found.ms(0.99), "overload: 99th percentile of latency / that of an idle server"
    yield Goal(title, late / idle, 3.0, "most", f"{late:.0f} ms, {idle:.0f} ms")
    rates = f"{found.rate:.0f} per second, {capacity:.0f} per second"
    yield Goal("overload: answers per second / capacity", found.rate / capacity, 0.5, "least", rates)
