"""Proves from the log of operations alone that a server lost, doubled and mixed nothing.

The file has a JSON object a line. An event has a name `event` and a `time`: `begin` with the model that is served and
the documents (id -> text) that its index has at log 0; `swap`, after which another model may be served; `killed` and
`started`; `refuses` and `accepts` of storage; at the end each `version` of a model's index with the change that made
it. An operation has a client, its number there, a kind, the times of its start and end, what was sent, an idempotency
key or null, the status (0: the connection was cut), the answer or the error, and the address of the server. A server
sees at once what it answered. It sees what another server answered FOLLOWS seconds later. A change whose answer was
lost is sent again with its key until it is answered, at the latest at the end: so the log number of each is known.
"""

import bisect
import itertools
import json
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

CUT, OK = 0, 200
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
SHOWN = 4
"""Operations that are printed with a violation."""


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
        """Text of each document that a change writes; None: it deletes it."""
        return dict(self.sent["documents"]) if self.kind == "put" else dict.fromkeys(self.sent["ids"])


@dataclass(eq=False)
class Change:
    """A change: all sendings of one body with one idempotency key."""

    sends: list[Operation]
    number: int | None = None
    """Its number in the log; None: no sending was answered 200."""

    @property
    def start(self) -> float:
        return min(send.start for send in self.sends)


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
            history.events[record["event"]] += 1
        return history


class Bounds:
    """Which log numbers the answers before an operation and the changes after it allow."""

    def __init__(self, history: History, changes: list[Change]) -> None:
        answered = [operation for operation in history.operations if operation.status == OK]
        servers = {operation.server for operation in history.operations}
        self._known = {server: _Known(answered, server) for server in servers} | {None: _Known(answered)}
        begun = sorted((change.start, change.number - 1) for change in changes if change.number is not None)
        self._begun = [time for time, _ in begun]
        self._least = list(itertools.accumulate((log for _, log in reversed(begun)), min))[::-1]
        self.top = max((operation.log for operation in answered), default=0)
        """Largest number that an answer names."""

    def low(self, start: float, operation: Operation | None = None) -> int:
        """Return the least log number that an operation with this start sees; without an operation, of the log."""
        proof = self.proof(start, operation)
        return proof[0].log if proof else 0

    def proof(self, start: float, operation: Operation | None = None) -> tuple[Operation, ...]:
        """Return the operation with the largest log number that its server, by default any server, knew at a time."""
        return self._known[None if operation is None else operation.server].before(start)

    def high(self, end: float) -> int:
        """Return the largest log number at a time: a change was not there before it began."""
        place = bisect.bisect_right(self._begun, end)
        return self._least[place] if place < len(self._least) else self.top


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
    owners = {change.number: change for change in reversed(changes) if change.number is not None}
    violations += [
        Violation("no change", f"no change has the number {number}")
        for number in range(1, bounds.top + 1)
        if number not in owners
    ]
    violations += states(history, bounds, owners)
    same, compared = repeatable(history)
    violations += same
    counts = dict(Counter(f"{operation.kind} {operation.status or 'cut'}" for operation in history.operations))
    seen = {(op.good["model"], op.good["version"]) for op in history.operations if op.is_read}
    made = history.versions
    counts |= dict(sorted(history.events.items())) | {
        "operations": len(history.operations),
        "changes": sum(change.number is not None for change in changes),
        "sent again": sum(len(change.sends) - 1 for change in changes),
        "answers cut": sum(any(send.status == CUT for send in change.sends) for change in changes),
        "equal answers compared": compared,
        "models seen": len({model for model, _ in seen}),
        "versions seen": len(seen),
        **{f"{change}: versions {kind}": 0 for change in WANTED for kind in ("made", "seen")},
        **Counter(f"{change}: versions made" for change in made.values()),
        **Counter(f"{change}: versions seen" for name, change in sorted(made.items()) if name in seen),
    }
    return Report(violations, counts)


def grouped(operations: Iterable[Operation]) -> list[Change]:
    """Gather the sendings of each change."""
    groups = dict[object, Change]()
    for operation in operations:
        if operation.kind in CHANGES:
            body = operation.key, operation.kind, json.dumps(operation.sent)
            groups.setdefault(body, Change([])).sends.append(operation)
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
        key = good[0].key or ""
        if key in bodies:
            yield Violation("one body", f"key {key} changed something by two bodies", (bodies[key].sends[0], good[0]))
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
    """Texts of documents by log number."""

    def __init__(self, documents: dict[str, str], owners: dict[int, Change]) -> None:
        self.texts = defaultdict[str, list[tuple[int, str | None]]](list)
        for name, text in documents.items():
            self.texts[name].append((0, text))
        for number in sorted(owners):
            for name, changed in owners[number].sends[0].effect.items():
                self.texts[name].append((number, changed))
        self.ids = sorted(self.texts, key=str.encode)

    def __call__(self, name: str, log: int) -> str | None:
        """Return the text of a document at a log number; None: it is not there."""
        return self._last(name, log)[1]

    def number(self, name: str, log: int) -> int:
        """Return the number of the last change of a document up to a log number; 0: none."""
        return self._last(name, log)[0]

    def _last(self, name: str, log: int) -> tuple[int, str | None]:
        texts = self.texts.get(name, [])
        place = bisect.bisect_right(texts, log, key=operator.itemgetter(0))
        return texts[place - 1] if place else (0, None)

    def counts(self, top: int) -> list[int]:
        """Return how many documents there are at each log number."""
        grown = [0] * (top + 2)
        for texts in self.texts.values():
            for (_, was), (number, text) in itertools.pairwise([(0, None), *texts]):
                grown[number] += (text is not None) - (was is not None)
        return list(itertools.accumulate(grown))


def states(history: History, bounds: Bounds, owners: dict[int, Change]) -> Iterator[Violation]:
    """Each answer is that of the documents at its log number, which the changes up to it make."""
    timeline = Timeline(history.documents, owners)
    counts = timeline.counts(bounds.top)
    for operation in history.operations:
        for text, names in _contradicted(operation, timeline, bounds, counts):
            log = operation.log if operation.status == OK else bounds.low(operation.start, operation)
            makers = sorted({timeline.number(name, log) for name in names} & owners.keys())
            proof = [owners[number].sends[0] for number in makers if owners[number].sends[0] is not operation]
            rule = "put or delete" if operation.kind in CHANGES else operation.kind
            yield Violation(rule, f"{text}; the documents are those of log {log}", (*proof, operation))
    yield from worded(history, timeline)


def _contradicted(
    operation: Operation, timeline: Timeline, bounds: Bounds, counts: list[int]
) -> Iterator[tuple[str, Sequence[str]]]:
    """What an answer says that is not so, and the documents of which it says it."""
    if operation.status == 404 and operation.kind in ("get", "delete"):
        names = [operation.sent["id"]] if operation.kind == "get" else operation.sent["ids"]
        low = bounds.low(operation.start, operation)
        logs = range(low, max(low, bounds.high(operation.end)) + 1)
        if all(timeline(name, log) is not None for name in names for log in logs):
            yield f"all were there in {logs}", names
    if operation.status != OK:
        return
    log, sent, good = operation.log, operation.sent, operation.good
    match operation.kind:
        case "put" | "delete":
            there = sum(timeline(name, log - 1) is not None for name in operation.effect)
            if there != (good["replaced"] if operation.kind == "put" else len(operation.effect)):
                yield f"{there} of them were there before", list(operation.effect)
        case "get":
            yield from _other_texts(good["documents"], timeline, log)
        case "list":
            begin = bisect.bisect_right(timeline.ids, sent["after"].encode(), key=str.encode)
            last = None if good["next"] is None else good["next"].encode()
            end = None if last is None else bisect.bisect_right(timeline.ids, last, key=str.encode)
            wanted = [[name, text] for name in timeline.ids[begin:end] if (text := timeline(name, log)) is not None]
            if good["documents"] != wanted or len(wanted) > sent["limit"]:
                yield "the page has other documents", [name for name, _ in [*good["documents"], *wanted]]
            elif last is not None and (not wanted or good["next"] != wanted[-1][0]):
                yield "the next page does not follow", []
        case "index":
            if good["count"] != counts[log]:
                yield f"{good['count']} documents of {counts[log]}", []
        case "search":
            shown, k = good["results"], sent["k"]
            yield from _other_texts([row[:2] for row in shown], timeline, log)
            if any(after[2] > before[2] + SCORE for before, after in itertools.pairwise(shown)):
                yield "scores do not descend", []
            if len({row[0] for row in shown}) < len(shown):
                yield "an id twice in one answer", []
            if sent.get("beam") and not good["partial"] and len(shown) != min(k, counts[log]):
                yield f"{len(shown)} results of {counts[log]} documents, k {k}", []


def _other_texts(rows: Iterable[Sequence[str]], timeline: Timeline, log: int) -> Iterator[tuple[str, list[str]]]:
    for name, text in rows:
        if (there := timeline(name, log)) != text:
            yield f"{name} is {text!r}, not {there!r}", [name]


def worded(history: History, timeline: Timeline) -> Iterator[Violation]:
    """A search by words finds documents that have one of them at its log number, as many as there are."""
    writes = sorted((number, name, text) for name, own in timeline.texts.items() for number, text in own if number)
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
