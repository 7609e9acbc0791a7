"""The queue of changes to an index: one after another becomes durable in the log, then seen, and is then answered."""

import asyncio
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from rayhier.index.assign import Assigner
from rayhier.search.snapshot import Seen
from rayhier.serve.args import WriteLimits
from rayhier.serve.backend.follower import Follower
from rayhier.serve.backend.lease import WriteLease
from rayhier.serve.backend.placement import Placement
from rayhier.serve.errors import RETRY, ApiError, LostError, overloaded, unanswered
from rayhier.serve.threads import begin, run_in
from rayhier.spec import InputError
from rayhier.storage.change_log import KEPT, Change, ChangeLog, FencedError, Kind
from rayhier.storage.leaf_map import LeafMap, key_of
from rayhier.storage.paths import Location

TOGETHER = 64
"""Documents of several changes that are looked up together, at most."""
APPENDED_SECONDS = 0.02
"""Seconds after which changes that were appended are answered before others are."""
ENDS = "the server ends; the change is there or not: send it again"
REUSED = "Idempotency-Key: was used with another body; allowed: a new key for each change"
log = logging.getLogger("ray.serve")


@dataclass(frozen=True)
class Written:
    """The outcome of a change: what a request must see to see it, and how many documents it named."""

    seen: Seen
    documents: int
    replaced: int = 0
    """Number of written documents whose ids were in the index before."""


@dataclass(eq=False)
class WaitingChange:
    """A change that a request makes, and what comes of it."""

    kind: Kind
    table: pa.Table
    ids: Sequence[str]
    key: str | None
    body: str
    assigner: Assigner | None = None
    """The assigner that chose leaves for the documents to be written. None where the change deletes documents."""
    outcome: "asyncio.Future[Written]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def ends(self, outcome: Written | Exception) -> None:
        if self.outcome.done():
            return
        if isinstance(outcome, Exception):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)


@dataclass(frozen=True)
class _Next:
    """A change that comes next in the log, of whose documents, or their passages, some are there before it."""

    waiting: WaitingChange
    change: Change
    before: Counter[str]


class Keys:
    """Outcomes of the changes with an idempotency key, for as many changes as the log keeps."""

    def __init__(self) -> None:
        self._outcomes: OrderedDict[str, tuple[str, Written]] = OrderedDict()

    def __iter__(self) -> Iterator[tuple[str, str, Written]]:
        return ((key, body, written) for key, (body, written) in self._outcomes.items())

    def remember(self, key: str, body: str, written: Written) -> None:
        """Remember an outcome by its request's key and its body's hash. The oldest are forgotten."""
        self._outcomes[key] = (body, written)
        while len(self._outcomes) > KEPT:
            self._outcomes.popitem(last=False)

    def outcome(self, key: str | None, body: str) -> Written | None:
        """Return the outcome of an earlier request with the same key. ApiError 422 where its body was another."""
        if key is None or key not in self._outcomes:
            return None
        before, written = self._outcomes[key]
        if before != body:
            raise ApiError(422, "key_reused", REUSED)
        return written


class ChangeQueue:
    """Makes changes that wait, first come first served, by appending them to the log of an index."""

    def __init__(self, follower: Follower, limits: WriteLimits, lease: WriteLease, placement: Placement) -> None:
        self._follower, self._limits, self._lease, self._placement = follower, limits, lease, placement
        follower.applied = self._note
        self.keys = Keys()
        self._waiting, self._is_changing = deque[WaitingChange](), False
        self._append_thread = ThreadPoolExecutor(1, "append")

    async def begin(self) -> None:
        """Let requests see the log's tail that an earlier Writer left."""
        for made in await run_in(self._append_thread, self._follower.begin):
            self._note(made)

    async def remember_folded(self, there: ChangeLog) -> None:
        """Remember the keys of the newest changes that leaf files hold, as far as a log has them."""
        for made in await run_in(self._append_thread, self._folded, there, self._follower.manifest.log):
            self._note(made)

    def _folded(self, there: ChangeLog, last: int) -> list[Change]:
        changes = list[Change]()
        try:
            for made in there.there(max(0, last - KEPT), last, with_table=False):
                changes.append(made)
        except InputError as error:  # leaf files hold these changes
            log.warning("%s; later changes in leaf files run again if they are sent again", error)
        return changes

    async def make(self, waiting: WaitingChange) -> Written:
        """Make a change after those that wait; once it has begun, it goes on where the request ends before.

        Returns once the change is durable and seen. ApiError 404 where a document to be deleted is not there, 422
        where a key was used with another body, 503 where storage refuses the change or too many wait to be folded;
        MovedError where another index took the place of this one. Nothing is changed then.
        """
        self._waiting.append(waiting)
        if not self._is_changing:
            self._is_changing = True
            begin(self._change_waiting())
        return await waiting.outcome

    def again(self, key: str | None, body: str) -> Written | None:
        written = self.keys.outcome(key, body)
        if written is not None:
            self._lease.check()
        return written

    def check_room(self, documents: int = 0, size: int = 0) -> None:
        """Raise ApiError 503 unless a change may be appended after so many further documents and bytes."""
        if (damage := self._follower.damage) is not None:
            raise ApiError(503, "log_damaged", f"{damage}; nothing can be written until it is mended")
        self._lease.check()
        tail = self._follower.tail
        documents, size = documents + tail.documents, size + tail.bytes
        if documents >= self._limits.max_tail_documents or size >= self._limits.max_tail_bytes:
            message = f"{documents} documents of {size} bytes wait to be folded into leaf files; retry in a second"
            raise overloaded(message)

    @property
    def is_due(self) -> bool:
        """True if the tail is large or old enough to be folded."""
        limits, tail = self._limits, self._follower.tail
        is_old = tail.documents > 0 and time.monotonic() - tail.oldest >= limits.fold_seconds
        return is_old or tail.documents >= limits.fold_documents or tail.bytes >= limits.fold_bytes

    async def _change_waiting(self) -> None:
        try:
            while self._waiting:
                async with self._follower.lock:
                    await self._change(self._taken())
        finally:
            self._is_changing = False

    def _taken(self) -> list[WaitingChange]:
        taken, documents = list[WaitingChange](), 0
        while self._waiting and (not taken or documents + len(self._waiting[0].ids) <= TOGETHER):
            waiting = self._waiting.popleft()
            if not waiting.outcome.done():
                taken.append(waiting)
                documents += len(waiting.ids)
        return taken

    async def _change(self, taken: Sequence[WaitingChange]) -> None:
        """Make changes one after another, an object of the log each; one that is refused changes nothing."""
        while left := [each for each in taken if not each.outcome.done()]:
            try:
                await self._change_some(left)
            except Exception as error:  # noqa: BLE001  every request gets it
                for each in left:
                    self._end_again(each)
                    each.ends(error)
            except asyncio.CancelledError:
                for each in left:
                    each.ends(overloaded(ENDS))
                raise

    async def _change_some(self, left: Sequence[WaitingChange]) -> None:
        """Make changes, but for those that must come later; an error that it raises concerns all that are not made.

        Later come a change whose key an earlier one has, and all from one on that is refused after others, or whose
        number another process took.
        """
        self._lease.check_moved()
        there = await self.present(list({name for each in left for name in each.ids}), self._follower.seen)
        nexts, keys, documents, size = list[_Next](), set[str](), 0, 0
        for each in left:
            if each.key in keys or self._end_again(each):
                continue
            try:
                self.check_room(documents, size)  # other changes came before
                made = await self._made_of(each, there, self._follower.seen.log + len(nexts) + 1)
            except (ApiError, InputError) as error:
                if nexts:  # it may be refused for what these change, which is not durable yet
                    break
                each.ends(error)
                continue
            nexts.append(_Next(each, made, Counter({name: there[name] for name in each.ids})))
            written, documents, size = written_of(made), documents + made.documents, size + made.table.nbytes
            there.update({name: written[name] - there[name] for name in each.ids})
            keys |= set() if each.key is None else {each.key}
        while nexts:
            appended, refused = await self.append([each.change for each in nexts])
            if not appended and refused is None:
                await self.catch_up()
                return
            for entry in nexts[:appended]:
                self._follower.apply(entry.change, entry.before)
            if not self._end_appended(nexts[:appended]):
                return
            if refused is not None:  # not tried again: the log may have the change, so that it would run twice
                raise refused
            nexts = nexts[appended:]

    def _end_appended(self, appended: Sequence[_Next]) -> bool:
        """Answer requests whose changes are in the log. Returns False where another Writer may have read it before."""
        try:
            self._lease.check()
        except ApiError as error:
            for each in appended:
                each.waiting.ends(error)
            return False
        for each in appended:
            seen = replace(self._follower.seen, log=each.change.number)
            each.waiting.ends(Written(seen, each.change.documents, each.change.replaced))
        return True

    def _end_again(self, waiting: WaitingChange) -> bool:
        """Answer a request whose key an earlier one had. Returns False if there is none."""
        try:
            again = self.again(waiting.key, waiting.body)
        except ApiError as error:
            waiting.ends(error)
            return True
        if again is not None:
            waiting.ends(again)
        return again is not None

    async def _made_of(self, waiting: WaitingChange, there: Counter[str], number: int) -> Change:
        """Make a change of this number; `there` counts its documents before it. ApiError 404 where one is missing."""
        ids, table, router, replaced = waiting.ids, waiting.table, self._follower.manifest.router, 0
        if waiting.kind == "delete" and (missing := [name for name in ids if not there[name]]):
            message = f"ids: {len(missing)} not in the index: {missing[0]!r:.80}; nothing was changed"
            raise ApiError(404, "no_document", f"{message}; allowed: ids of documents in the index")
        if waiting.kind == "put":
            table = await self._placement.place_again(table, waiting.assigner)
            replaced = sum(there[name] > 0 for name in ids)
        epoch = self._lease.epoch
        return Change(number, waiting.kind, table, waiting.key, waiting.body, len(ids), replaced, router, epoch)

    async def append(self, changes: Sequence[Change]) -> tuple[int, ApiError | None]:
        """Make the first of some changes durable. Returns how many, and an ApiError 503 if storage refused the next.

        What storage refused is in the log or not. Requests see changes once the follower applies them. Without a
        change and without an error, the number of the first change is taken.
        """
        appended, error = await run_in(self._append_thread, self._append, changes)
        if error is None:
            return appended, None
        log.warning("the log cannot be written: %s", error)
        message = f"storage refuses changes: {error.strerror or error}; the change is there or not: send it again"
        return appended, ApiError(503, "storage", message, RETRY)

    def _append(self, changes: Sequence[Change]) -> tuple[int, OSError | None]:
        began = time.monotonic()
        for place, made in enumerate(changes):
            if place and (time.monotonic() - began > APPENDED_SECONDS or not self._lease.holds()):
                return place, None
            try:
                if not self._follower.log.append(made):
                    return place, None
            except FencedError:
                self._lease.lose()
                return place, None
            except OSError as error:
                return place, error
        return len(changes), None

    async def present(self, ids: Sequence[str], seen: Seen) -> Counter[str]:
        """Count the rows of documents with some ids. ApiError 503 where a shard group does not answer."""
        try:
            return await self._follower.engine.present(ids, seen)
        except LostError as lost:
            raise unanswered(f"{lost} did not answer; nothing was changed; retry later") from None

    async def catch_up(self) -> None:
        """Let requests see changes of another process. ApiError 503 if a shard group is lost. Needs the lock."""
        try:
            await self._follower.catch_up()
        except LostError as lost:
            raise unanswered(f"{lost} did not answer; retry later") from None
        if self._follower.damage is not None:
            log.error("%s", self._follower.damage)

    async def beyond(self, other: Location) -> list[Change]:
        """Read the other log's changes after this one's newest. InputError after a rollback of the other index."""
        return await run_in(self._append_thread, self._beyond, other)

    def _beyond(self, other: Location) -> list[Change]:
        mine, there = self._follower.manifest, LeafMap.open(other).manifest
        if there.undone_in > mine.taken or there.undone > mine.log:
            raise InputError(
                f"{other}: a rollback made version {there.undone_in} and left behind changes up to {there.undone}; "
                f"{self._follower.root} has the content of version {mine.taken}, and changes up to {mine.log}"
            )
        return list(ChangeLog(other).after(self._follower.seen.log))

    def _note(self, made: Change) -> None:
        if made.key is not None:
            seen = replace(self._follower.seen, log=made.number)
            self.keys.remember(made.key, made.body, Written(seen, made.documents, made.replaced))


def written_of(made: Change) -> Counter[str]:
    """Count the documents, or passages, that a change wrote, by id."""
    if made.rows is None:
        return Counter()
    ids = made.rows[key_of(made.rows.column_names)]
    return Counter(ids.filter(pc.equal(made.rows["rank"], 0)).to_pylist())
