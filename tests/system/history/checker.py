"""Proves from the log of operations alone that a server lost, doubled and mixed nothing.

The file has a JSON object a line. An event has a name `event` and a `time`: `begin` with the model that is served and
the documents (id -> text) that its index has at log 0; `swap`, after which another model may be served; `killed` and
`started`; `refuses` and `accepts` of storage; at the end each `version` of a model's index with the change that made
it. An operation has a client, its number there, a kind, the times of its start and end, what was sent, an idempotency
key or null, the status (0: the connection was cut), the answer or the error, and the address of the server. A server
sees at once what it answered. It sees what another server answered FOLLOWS seconds later. The log numbers of changes
whose answers were lost are not in the file. Every number that no answered change has belongs to one of these, and the
answers of reads must allow a choice.
"""

import bisect
import itertools
import json
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

CUT, OK = 0, 200
LOST = (CUT, 500, 503, 504)
"""Statuses after which a change may have been made or not."""
REFUSED = (404, 413, 422)
"""Statuses after which nothing was changed."""
EXPECTED = (CUT, OK, 404, 422, 503, 504)
"""Statuses that a server may answer; any other is a defect."""
CHANGES, READS = ("put", "delete"), ("get", "list", "search", "index")
SCORE = 2e-5
"""Largest difference of two scores that are called equal: queries are encoded together with others."""
FOLLOWS = 10.0
"""Seconds after which a server has seen what another server wrote. It looks every second, but a machine may be busy."""
WANTED = ("fold", "maintain")
"""Changes of leaf files that a history must show."""
STEPS = 200_000
"""Most steps of the search for numbers of changes without an answer."""
SHOWN = 4
"""Operations that are printed with a violation."""
State = Callable[[str, int], str | None]
"""Function from an id and a log number to the document's text then; None: it is not there."""


@dataclass(frozen=True, eq=False, slots=True)
class Operation:
    """A line of the file: a request of a client, and its outcome."""

    client: int
    number: int
    kind: str
    start: float
    end: float
    sent: dict[str, Any]
    key: str | None
    status: int
    answer: dict[str, Any] | None
    error: dict[str, Any] | None
    server: str = ""
    """Address of the server that was asked."""

    @property
    def log(self) -> int:
        number: int = self.good["log"]
        return number

    @property
    def good(self) -> dict[str, Any]:
        if self.answer is None:
            raise ValueError(f"operation {self.client}/{self.number}: got status {self.status}; allowed: {OK}")
        return self.answer

    @property
    def is_read(self) -> bool:
        return self.kind in READS and self.status == OK

    @property
    def effect(self) -> dict[str, str | None]:
        return dict(self.sent["documents"]) if self.kind == "put" else dict.fromkeys(self.sent["ids"])


@dataclass(eq=False)
class Change:
    """A change: all sendings of one body with one idempotency key, or a single request without a key."""

    sends: list[Operation]
    number: int | None = None
    """Its number in the log; None: no sending was answered 200."""

    @property
    def name(self) -> object:
        """What is used once: a key, or a change without one."""
        return self.sends[0].key or self

    @property
    def start(self) -> float:
        return min(send.start for send in self.sends)

    @property
    def end(self) -> float:
        return max(send.end for send in self.sends)

    @cached_property
    def effect(self) -> dict[str, str | None]:
        return self.sends[0].effect

    @property
    def may_be_made(self) -> bool:
        """True where no sending was answered 200, but one may have been made."""
        if self.number is not None:
            return False
        lost = [send.end for send in self.sends if send.status in LOST]
        refused = [send.start for send in self.sends if send.status in REFUSED]
        # A refusal after the last lost answer says that the change was not made: its key would have been known.
        return bool(lost) and not (refused and max(refused) > max(lost))


@dataclass(frozen=True, slots=True)
class Fact:
    """What an answer says of the documents at a log number between two, inclusive."""

    operation: Operation
    low: int
    high: int
    ids: tuple[str, ...]
    holds: Callable[[State, int], bool]
    said: str

    def allowed(self, state: State) -> bool:
        return any(self.holds(state, log) for log in range(self.low, self.high + 1))


@dataclass(frozen=True)
class Violation:
    """A rule that was broken, and the operations that prove it."""

    rule: str
    text: str
    operations: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.rule}: {self.text}"]
        for operation in self.operations[:SHOWN]:
            times = f"{operation.start:.4f} to {operation.end:.4f}"
            outcome = json.dumps(operation.answer or operation.error)
            sent = f"{operation.kind} {json.dumps(operation.sent)} key {operation.key}"
            name = f"client {operation.client} operation {operation.number}, {times}"
            lines.append(f"  {name}: {sent} -> {operation.status} {outcome[:600]}")
        return "\n".join(lines)


@dataclass
class Report:
    violations: list[Violation]
    counts: dict[str, int]


@dataclass
class History:
    """The operations and events of a file."""

    documents: dict[str, str]
    """Text of each document at log 0 by its id."""
    operations: list[Operation]
    started: list[float] = field(default_factory=list)
    swaps: list[tuple[float, str]] = field(default_factory=list)
    """Times from which on each model may be served, ascending; the first is the one at the start."""
    versions: dict[tuple[str, int], str] = field(default_factory=dict)
    """Change that made each version of a model's index."""
    events: Counter[str] = field(default_factory=Counter)

    @classmethod
    def read(cls, lines: Iterable[str]) -> "History":
        history = cls({}, [])
        for line in lines:
            record = json.loads(line)
            match record.get("event"):
                case None:
                    history.operations.append(Operation(**record))
                    continue
                case "begin":
                    history.documents = record["documents"]
                    history.swaps.append((record["time"], record["model"]))
                case "swap":
                    history.swaps.append((record["time"], record["model"]))
                case "version":
                    history.versions[record["model"], record["number"]] = record["change"]
                    continue
                case "started":
                    history.started.append(record["time"])
            history.events[record["event"]] += 1
        return history


class Bounds:
    """Which log numbers the answers before an operation and those after it allow."""

    def __init__(self, history: History, changes: list[Change]) -> None:
        answered = [operation for operation in history.operations if operation.status == OK]
        servers = {operation.server for operation in history.operations}
        reads = [operation for operation in answered if operation.is_read]
        # A change was not there before it began: what the log had by then has smaller numbers.
        begun = [(change.start, change.number - 1) for change in changes if change.number is not None]
        self._known = {server: _Known(answered, server) for server in servers} | {None: _Known(answered)}
        self._after = dict[str | None, tuple[list[float], list[int]]]()
        for server in (*servers, None):
            late = {other: 0.0 if other == server or len(servers) == 1 else FOLLOWS for other in servers}
            after = sorted([(read.start - late[read.server], read.log) for read in reads] + begun)
            least = list(itertools.accumulate((log for _, log in reversed(after)), min))[::-1]
            self._after[server] = [time for time, _ in after], least
        self.top = max((operation.log for operation in answered), default=0)
        """Largest number that an answer names."""

    def low(self, start: float, operation: Operation | None = None) -> int:
        """Return the least log number that an operation with this start sees; without an operation, of the log."""
        proof = self.proof(start, operation)
        return proof[0].log if proof else 0

    def proof(self, start: float, operation: Operation | None = None) -> tuple[Operation, ...]:
        """Return the operation with the largest log number that its server, by default any server, knew at a time."""
        return self._known[None if operation is None else operation.server].before(start)

    def high(self, end: float, operation: Operation | None = None) -> int:
        """Return the largest log number that the operation's server, by default any server, knew at a time."""
        times, least = self._after[None if operation is None else operation.server]
        place = bisect.bisect_right(times, end)
        return min(least[place], self.top) if place < len(least) else self.top


class _Known:
    """Answers in the order in which a server knows them."""

    def __init__(self, answered: Sequence[Operation], server: str | None = None) -> None:
        """Take answers; without a server, each counts at once."""
        known = _in_time(answered, server)
        self._times = [time for time, _ in known]
        largest = partial(max, key=lambda each: each.log)
        self._largest = list(itertools.accumulate((operation for _, operation in known), largest))

    def before(self, time: float) -> tuple[Operation, ...]:
        """Return the operation known before a time that names the largest log number, if there is one."""
        place = bisect.bisect_left(self._times, time)
        return (self._largest[place - 1],) if place else ()


def _in_time(operations: Iterable[Operation], server: str | None) -> list[tuple[float, Operation]]:
    """Sort operations by the time at which a server knows them; without a server, by their ends."""
    late = ((each.end + (0.0 if server in (None, each.server) else FOLLOWS), each) for each in operations)
    return sorted(late, key=lambda each: each[0])


def check(lines: Iterable[str]) -> Report:
    """Check the lines of a file; returns all violations."""
    history = History.read(lines)
    changes = grouped(history.operations)
    violations = [*numbered(changes)]
    bounds = Bounds(history, changes)
    violations += in_order(changes, bounds)
    violations += never_back(history, bounds)
    violations += swapped(history)
    violations += unmixed(history)
    violations += [
        Violation("status", f"answered {operation.status}", (operation,))
        for operation in history.operations
        if operation.status not in EXPECTED
    ]
    timeline, missing, lost = assigned(history, changes, bounds)
    violations += missing
    makers = {change.number: change for change in changes if change.number is not None} | lost
    violations += states(history, bounds, timeline, makers)
    same, compared = repeatable(history)
    violations += same
    counts = dict(Counter(f"{operation.kind} {operation.status or 'cut'}" for operation in history.operations))
    counts |= dict(sorted(history.events.items()))
    seen = {(op.good["model"], op.good["version"]) for op in history.operations if op.is_read}
    counts |= {
        "operations": len(history.operations),
        "changes": sum(change.number is not None for change in changes),
        "sent again": sum(len(change.sends) - 1 for change in changes),
        "answers lost, change made": len(lost),
        "answers lost": sum(change.may_be_made for change in changes),
        "equal answers compared": compared,
        "last log number": bounds.top,
        "models seen": len({model for model, _ in seen}),
        "versions seen": len(seen),
        **{f"{change}: versions {kind}": 0 for change in WANTED for kind in ("made", "seen")},
        **Counter(f"{change}: versions made" for change in history.versions.values()),
        **Counter(f"{change}: versions seen" for name, change in sorted(history.versions.items()) if name in seen),
        "partial answers": sum(bool(each.good.get("partial")) for each in history.operations if each.is_read),
    }
    return Report(violations, counts)


def grouped(operations: Iterable[Operation]) -> list[Change]:
    """Gather the sendings of each change."""
    groups = dict[object, Change]()
    for operation in operations:
        if operation.kind in CHANGES:
            body = operation.key, operation.kind, json.dumps(operation.sent)
            groups.setdefault(operation if operation.key is None else body, Change([])).sends.append(operation)
    return list(groups.values())


def numbered(changes: list[Change]) -> Iterator[Violation]:
    """Take each change's number from its answers: one number a change, one change a number, one body a key.

    A sending that got another number is a change of its own from here on, so that it does not break more rules.
    """
    owner, bodies = dict[int, Change](), dict[str, Change]()
    for change in list(changes):
        good = [send for send in change.sends if send.status == OK]
        if not good:
            continue
        change.number = good[0].log
        for send in good[1:]:
            if send.log != change.number or send.good["count"] != good[0].good["count"]:
                yield Violation("doubled", f"one key, changes {change.number} and {send.log}", (good[0], send))
                changes.append(Change([send], send.log))
                change.sends.remove(send)
            elif send.good["replaced"] != good[0].good["replaced"]:
                yield Violation("doubled", f"change {send.log}: two numbers of replaced documents", (good[0], send))
        for send in change.sends:
            if send.status in REFUSED and send.start > min(operation.end for operation in good):
                yield Violation("doubled", "sent again after a 200, and refused", (good[0], send))
        if change.number in owner:
            other = owner[change.number].sends[0]
            yield Violation("one number", f"two changes have the number {change.number}", (other, good[0]))
        owner[change.number] = change
        key = good[0].key
        if key is not None and key in bodies:
            yield Violation("one body", f"key {key} changed something by two bodies", (bodies[key].sends[0], good[0]))
        if key is not None:
            bodies[key] = change


def in_order(changes: Iterable[Change], bounds: Bounds) -> Iterator[Violation]:
    """A change has a larger number than all that was answered before it began."""
    for change in changes:
        if change.number is not None and change.number <= (low := bounds.low(change.start)):
            proof = (*bounds.proof(change.start), change.sends[0])
            yield Violation("order", f"change {change.number} began when the log was at {low}", proof)


def never_back(history: History, bounds: Bounds) -> Iterator[Violation]:
    """A read sees all changes answered before it began, `min_log`, and of its model no version older than before it."""
    newest = defaultdict[str, dict[str, Operation]](dict)
    for operation, ended in _by_server(operation for operation in history.operations if operation.status == OK):
        seen = newest[operation.server]
        for before in ended:
            model = before.good["model"]
            if model not in seen or before.good["version"] > seen[model].good["version"]:
                seen[model] = before
        if not operation.is_read:
            continue
        if operation.log < (low := bounds.low(operation.start, operation)):
            proof = (*bounds.proof(operation.start, operation), operation)
            yield Violation("stale", f"a read saw log {operation.log}, after an answer of log {low}", proof)
        if operation.log < (operation.sent.get("min_log") or 0):
            text = f"a read saw log {operation.log}; min_log was {operation.sent['min_log']}"
            yield Violation("min_log", text, (operation,))
        version, last = operation.good["version"], seen.get(operation.good["model"])
        if last is not None and last.good["version"] > version:
            yield Violation("version", f"version {version} after version {last.good['version']}", (last, operation))


def swapped(history: History) -> Iterator[Violation]:
    """Reads see one model after another in the order of the swaps, and each only once it was named."""
    newest, swap_of = defaultdict[str, tuple[int, tuple[Operation, ...]]](lambda: (0, ())), dict[Operation, int]()
    for operation, ended in _by_server(operation for operation in history.operations if operation.is_read):
        low, proof = newest[operation.server]
        for before in ended:
            if swap_of[before] > low:
                low, proof = newest[operation.server] = swap_of[before], (before,)
        model = operation.good["model"]
        for number, (time, named) in enumerate(history.swaps[low:], low):
            if named == model and time <= operation.end:
                swap_of[operation] = number
                break
        else:
            swap_of[operation] = low
            text = f"a read saw model {model}, which was not served after swap {low}, which a read before it saw"
            yield Violation("model", text, (*proof, operation))


def unmixed(history: History) -> Iterator[Violation]:
    """A model gives a query and a text one score, whatever version and change: an answer has no other model's."""
    scores = dict[tuple[str, str, str], tuple[float, Operation]]()
    for operation in history.operations:
        if not operation.is_read or operation.sent.get("mode") != "dense":
            continue
        model, query = operation.good["model"], operation.sent["query"]
        for name, text, score in operation.good["results"]:
            before, proof = scores.setdefault((model, query, text), (score, operation))
            if abs(score - before) > SCORE:
                said = f"model {model} gave {name} the score {score}, and the same text {before}"
                yield Violation("mixed", said, (proof, operation))
                break


def _by_server(operations: Iterable[Operation]) -> Iterator[tuple[Operation, list[Operation]]]:
    """Yield operations in the order of their starts, each with those that its server learned since its last one."""
    by_start = sorted(operations, key=lambda operation: operation.start)
    known = {server: _in_time(by_start, server) for server in {operation.server for operation in by_start}}
    place = Counter[str]()
    for operation in by_start:
        first, last, those = place[operation.server], place[operation.server], known[operation.server]
        while last < len(those) and those[last][0] < operation.start:
            last += 1
        place[operation.server] = last
        yield operation, [each for _, each in those[first:last]]


class Timeline:
    def __init__(self, documents: dict[str, str]) -> None:
        self._numbers = defaultdict[str, list[int]](list)
        self._texts = defaultdict[str, list[str | None]](list)
        for name, text in documents.items():
            self.put(0, {name: text})

    def put(self, number: int, effect: dict[str, str | None]) -> None:
        for name, text in effect.items():
            place = bisect.bisect_left(self._numbers[name], number)
            self._numbers[name].insert(place, number)
            self._texts[name].insert(place, text)

    def drop(self, number: int, effect: dict[str, str | None]) -> None:
        for name in effect:
            place = bisect.bisect_left(self._numbers[name], number)
            del self._numbers[name][place], self._texts[name][place]

    def __call__(self, name: str, log: int) -> str | None:
        """Return the text of a document at a log number; None: it is not there."""
        numbers = self._numbers.get(name)
        place = bisect.bisect_right(numbers, log) if numbers else 0
        return self._texts[name][place - 1] if place else None

    def last(self, name: str, log: int) -> int:
        """Return the number of the last change of a document up to a log number; 0: none."""
        numbers = self._numbers.get(name, [])
        place = bisect.bisect_right(numbers, log)
        return numbers[place - 1] if place else 0

    def of(self, name: str) -> list[tuple[int, str | None]]:
        return list(zip(self._numbers[name], self._texts[name], strict=True))

    @property
    def ids(self) -> list[str]:
        return sorted((name for name, numbers in self._numbers.items() if numbers), key=str.encode)


def facts(operation: Operation, bounds: Bounds, ids: list[str]) -> Iterator[Fact]:
    """What an answer says of documents; `ids` are those that it may speak of, in the order of their bytes."""
    if operation.status == 404 and operation.kind in ("get", "delete"):
        names = tuple([operation.sent["id"]] if operation.kind == "get" else operation.sent["ids"])
        low, high = bounds.low(operation.start, operation), bounds.high(operation.end, operation)
        said = f"one of {', '.join(names)} was not there between log {low} and {high}"
        gone = partial(_any_gone, names)
        yield Fact(operation, low, max(low, high), names, gone, said)
    if operation.status != OK:
        return
    log = operation.log
    if operation.kind == "put":
        names, replaced = tuple(operation.effect), operation.good["replaced"]
        said = f"{replaced} of {', '.join(names)} were there before {log}"
        yield Fact(operation, log - 1, log - 1, names, partial(_were_there, names, replaced), said)
    elif operation.kind == "delete":
        for name in operation.effect:
            yield _told(operation, log - 1, name, lambda text: text is not None, "was there")
    elif operation.kind == "get":
        ((name, text),) = operation.good["documents"]
        yield _is(operation, name, text)
    elif operation.kind == "list":  # of the ids from its begin to its end, a page has those that were there
        shown, follows = dict(operation.good["documents"]), operation.good["next"]
        begin = bisect.bisect_right(ids, operation.sent["after"].encode(), key=str.encode)
        end = len(ids) if follows is None else bisect.bisect_right(ids, follows.encode(), key=str.encode)
        for name in {*shown, *ids[begin:end]}:
            yield _is(operation, name, shown.get(name))
    elif operation.kind == "search":  # results are documents of that log number, by words all that have one
        shown = {name: text for name, text, _ in operation.good["results"]}
        for name, text in shown.items():
            yield _is(operation, name, text)
        is_whole = not operation.good["partial"] and len(shown) < operation.sent["k"]
        if operation.sent["mode"] == "bm25" and is_whole:
            query = operation.sent["query"]
            for name in (name for name in ids if name not in shown):
                yield _told(operation, log, name, partial(_has_none, set(query.split())), f"had no word of {query!r}")


def _any_gone(names: Iterable[str], state: State, log: int) -> bool:
    return any(state(name, log) is None for name in names)


def _were_there(names: Iterable[str], count: int, state: State, log: int) -> bool:
    return sum(state(name, log) is not None for name in names) == count


def _has_none(words: AbstractSet[str], text: str | None) -> bool:
    return words.isdisjoint((text or "").split())


def _is(operation: Operation, name: str, text: str | None) -> Fact:
    return _told(operation, operation.log, name, partial(operator.eq, text), f"was {text!r}")


def _told(operation: Operation, log: int, name: str, holds: Callable[[str | None], bool], said: str) -> Fact:
    """Make a fact about the text of one document at a log number."""
    said = f"{name} {said} at log {log}"
    return Fact(operation, log, log, (name,), lambda state, log: holds(state(name, log)), said)


def assigned(
    history: History, changes: list[Change], bounds: Bounds
) -> tuple[Timeline, list[Violation], dict[int, Change]]:
    """Give every number of the log that no answer names to a change whose answer was lost, as the reads allow.

    Returns the texts by log number, a violation where there is no such choice, and the changes that got a number.
    """
    timeline, taken = Timeline(history.documents), set[int]()
    for change in changes:
        if change.number is not None and change.number not in taken:
            timeline.put(change.number, change.effect)
            taken.add(change.number)
    known = {send.key for change in changes if change.number is not None for send in change.sends} - {None}
    lost = [change for change in changes if change.may_be_made and change.sends[0].key not in known]
    gaps = [number for number in range(1, bounds.top + 1) if number not in taken]
    candidates = _candidates(history, gaps, lost, bounds)
    affected = {name for of_gap in candidates for change in of_gap for name in change.effect}
    speaking = sorted(affected, key=str.encode)
    told = [
        fact
        for operation in history.operations
        for fact in facts(operation, bounds, speaking)
        if not affected.isdisjoint(fact.ids)
    ]
    others = _counted(timeline, [name for name in timeline.ids if name not in affected], bounds.top)
    for operation in history.operations:
        if operation.kind == "index" and operation.is_read:
            log, count = operation.log, operation.good["count"]
            holds = partial(_were_there, speaking, count - others[log])
            told.append(Fact(operation, log, log, tuple(speaking), holds, f"{count} documents at log {log}"))
    told.sort(key=lambda fact: fact.high)
    search = _Search(gaps, candidates, told, timeline)
    violations = list(search.run())
    return timeline, violations, dict(zip(gaps, search.chosen, strict=False))


def _candidates(history: History, gaps: list[int], lost: list[Change], bounds: Bounds) -> list[list[Change]]:
    """List for each number the changes that may have it: begun after smaller ones were answered, made before a start.

    A change that was not made when the server was started again is never made.
    """
    seen = {text for operation in history.operations for _, text in _texts(operation)}
    starts, of_gap = history.started, [list[Change]() for _ in gaps]
    for change in lost:
        place = bisect.bisect_right(starts, change.end)
        high = bounds.high(starts[place]) if place < len(starts) else bounds.top
        first, last = bisect.bisect_right(gaps, bounds.low(change.start)), bisect.bisect_right(gaps, high)
        for gap in range(first, last):
            of_gap[gap].append(change)
    for some in of_gap:
        some.sort(key=lambda change: (seen.isdisjoint(change.effect.values()), change.sends[0].status, change.start))
    return of_gap


def _texts(operation: Operation) -> list[tuple[str, str]]:
    if not operation.is_read or operation.kind == "index":
        return []
    shown = operation.good["results"] if operation.kind == "search" else operation.good["documents"]
    return [(row[0], row[1]) for row in shown]


class _Search:
    """Chooses a change for each number, the smallest first, and takes a choice back that an answer contradicts."""

    def __init__(self, gaps: list[int], candidates: list[list[Change]], told: list[Fact], timeline: Timeline) -> None:
        self._gaps, self._candidates, self._told, self._timeline = gaps, candidates, told, timeline
        self.chosen = list[Change]()
        self._used = set[object]()
        ends = [fact.high for fact in told]
        borders = [*(bisect.bisect_left(ends, gap) for gap in gaps), len(told)]
        self._facts = [told[begin:end] for begin, end in itertools.pairwise(borders)]

    def run(self) -> Iterator[Violation]:
        """Choose; yields a violation where no choice agrees with all answers, and keeps the longest good one."""
        places, best, failed, steps = [0], list[Change](), tuple[Fact, ...](), 0
        while len(self.chosen) < len(self._gaps):
            gap, of_gap, place = len(self.chosen), self._candidates[len(self.chosen)], places[-1]
            steps += 1
            if place == len(of_gap) or steps > STEPS:
                if not self.chosen or steps > STEPS:
                    break
                places.pop()
                self._back()
                continue
            places[-1] += 1
            change = of_gap[place]
            if not self._possible(change, self._gaps[gap]):
                continue
            self._take(change)
            wrong = next((fact for fact in self._facts[gap] if not fact.allowed(self._timeline)), None)
            if wrong is not None:
                failed = (wrong,) if gap >= len(best) else failed
                self._back()
                continue
            places.append(0)
            best = list(self.chosen) if len(self.chosen) > len(best) else best
        else:
            return
        while self.chosen:
            self._back()
        for change in best:
            self._take(change)
        number, tried = self._gaps[len(best)], self._candidates[len(best)]
        said = f"; it contradicts: {failed[0].said}" if failed else ""
        proof = (*(fact.operation for fact in failed), *(change.sends[0] for change in tried))
        text = f"no change can have the number {number} ({len(tried)} without an answer may){said}"
        yield Violation("no choice", text, proof)

    def _possible(self, change: Change, number: int) -> bool:
        """Return True if a change can have a number: its key is new, and it deletes what is there."""
        is_there = (self._timeline(name, number - 1) is not None for name in change.effect)
        return change.name not in self._used and (change.sends[0].kind == "put" or all(is_there))

    def _take(self, change: Change) -> None:
        self._timeline.put(self._gaps[len(self.chosen)], change.effect)
        self._used.add(change.name)
        self.chosen.append(change)

    def _back(self) -> None:
        change = self.chosen.pop()
        self._used.discard(change.name)
        self._timeline.drop(self._gaps[len(self.chosen)], change.effect)


def states(history: History, bounds: Bounds, timeline: Timeline, makers: dict[int, Change]) -> Iterator[Violation]:
    """Each answer is that of the documents at its log number, which the changes up to it make."""
    ids = timeline.ids
    counts = _counted(timeline, ids, bounds.top)
    for operation in history.operations:
        for fact in facts(operation, bounds, ids):
            if not fact.allowed(timeline):
                is_now = {name: timeline(name, fact.low) for name in fact.ids}
                rule = "put or delete" if operation.kind in CHANGES else operation.kind
                numbers = {timeline.last(name, fact.low) for name in fact.ids}
                proof = [makers[number].sends[0] for number in sorted(numbers) if number in makers]
                text = f"{fact.said}; the changes up to there make {is_now}"
                yield Violation(rule, text, (*proof, *(() if operation in proof else (operation,))))
                break
        if not operation.is_read:
            continue
        if operation.kind == "index" and operation.good["count"] != counts[operation.log]:
            text = f"{operation.good['count']} documents at log {operation.log}, of {counts[operation.log]}"
            yield Violation("index", text, (operation,))
        if operation.kind in ("search", "list"):
            shown = [row[0] for row in operation.good["results" if operation.kind == "search" else "documents"]]
            if len(shown) != len(set(shown)):
                yield Violation("doubles", "an id twice in one answer", (operation,))
        if operation.kind == "list":
            yield from _ordered(operation)
        if operation.kind == "search":
            yield from _complete(operation, counts)
    yield from worded(history, timeline, ids)


def _counted(timeline: Timeline, ids: list[str], top: int) -> list[int]:
    grown = [0] * (top + 2)
    for name in ids:
        was = None
        for number, text in timeline.of(name):
            grown[number] += (text is not None) - (was is not None)
            was = text
    return list(itertools.accumulate(grown))


def _ordered(operation: Operation) -> Iterator[Violation]:
    names = [row[0] for row in operation.good["documents"]]
    question = [operation.sent["after"], *names]
    if question != sorted(question, key=str.encode):
        yield Violation("list", "ids are not in the order of their bytes", (operation,))
    follows = operation.good["next"]
    if len(names) > operation.sent["limit"] or (follows is not None and follows != names[-1]):
        text = f"{len(names)} documents of at most {operation.sent['limit']}, next {follows}"
        yield Violation("list", text, (operation,))


def worded(history: History, timeline: Timeline, ids: list[str]) -> Iterator[Violation]:
    """A search by words finds documents that have one of them at its log number, as many as there are."""
    writes = sorted((number, name, text) for name in ids for number, text in timeline.of(name) if number)
    now, having, place = dict(history.documents), defaultdict[str, set[str]](set), 0
    for name, words in now.items():
        for word in words.split():
            having[word].add(name)
    searches = [each for each in history.operations if each.is_read and each.sent.get("mode") == "bm25"]
    for operation in sorted(searches, key=lambda each: each.log):
        while place < len(writes) and writes[place][0] <= operation.log:
            _, name, after = writes[place]
            for word in now.pop(name, "").split():
                having[word].discard(name)
            if after is not None:
                now[name] = after
                for word in after.split():
                    having[word].add(name)
            place += 1
        there = set().union(*(having[word] for word in operation.sent["query"].split()))
        names = {row[0] for row in operation.good["results"]}
        is_short = len(names) != min(operation.sent["k"], len(there)) and not operation.good["partial"]
        if not names <= there or is_short:
            having_one = f"{len(there)} documents have a word at log {operation.log}"
            text = f"{having_one}; results {sorted(names)}, k {operation.sent['k']}"
            yield Violation("words", text, (operation,))


def _complete(operation: Operation, counts: list[int]) -> Iterator[Violation]:
    """Scores descend, and where all leaves are visited, there are as many results as asked for."""
    shown, k = operation.good["results"], operation.sent["k"]
    if any(after[2] > before[2] + SCORE for before, after in itertools.pairwise(shown)):
        yield Violation("search", "scores do not descend", (operation,))
    if operation.sent.get("beam") and not operation.good["partial"] and len(shown) != min(k, counts[operation.log]):
        yield Violation("search", f"{len(shown)} results of {counts[operation.log]} documents, k {k}", (operation,))


def repeatable(history: History) -> tuple[list[Violation], int]:
    """Two answers of one model, version and log number to one question are equal; returns how many were compared."""
    answers, violations, compared = dict[str, Operation](), list[Violation](), 0
    for operation in history.operations:
        if not operation.is_read or operation.good.get("partial"):
            continue
        question = {name: value for name, value in operation.sent.items() if name != "min_log"}
        state = operation.good["model"], operation.good["version"], operation.log
        name = json.dumps([*state, operation.kind, question], sort_keys=True)
        before = answers.setdefault(name, operation)
        if before is operation:
            continue
        compared += 1
        if not _equal(before, operation):
            text = "two answers to one question at one log number"
            violations.append(Violation("repeated", text, (before, operation)))
    return violations, compared


def _equal(first: Operation, other: Operation) -> bool:
    """Return True if answers are equal; documents of a search may change places where their scores are equal."""
    if first.kind != "search":
        return first.good == other.good
    rows, others = first.good["results"], other.good["results"]
    if len(rows) != len(others):
        return False
    scores = {row[0]: row[2] for row in (*rows, *others)}
    return all(
        abs(a[2] - b[2]) <= SCORE and (a[:2] == b[:2] or abs(scores[a[0]] - scores[b[0]]) <= SCORE)
        for a, b in zip(rows, others, strict=True)
    )
