"""Changes that requests make to an index, the outcomes of changes, and the lease that allows changes."""

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayhier.index.assign import Assigner
from rayhier.search.snapshot import Seen
from rayhier.serve.errors import RETRY, ApiError, key_reused
from rayhier.spec import InputError
from rayhier.storage.change_log import KEPT, Change, Kind
from rayhier.storage.leaf_map import key_of
from rayhier.storage.paths import Location
from rayhier.storage.writer_lease import leased

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Written:
    """The outcome of a change: the state of the index with the change, and the number of changed documents."""

    seen: Seen
    documents: int
    replaced: int = 0
    """Number of written documents whose ids were in the index before."""


@dataclass(eq=False)
class WaitingChange:
    """A change that a request makes, with a future for its outcome."""

    kind: Kind
    table: pa.Table
    ids: Sequence[str]
    key: str | None
    body: str
    assigner: Assigner | None = None
    """The assigner that chose leaves for the written documents. None if the change deletes documents."""
    upsert: bool = True
    """True if the documents may replace documents with the same ids."""
    outcome: "asyncio.Future[Written]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def ends(self, outcome: Written | Exception) -> None:
        if self.outcome.done():
            return
        if isinstance(outcome, Exception):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)


@dataclass(frozen=True)
class NextChange:
    """A change for the log. `before` counts, per id, the documents or passages that the change replaces or deletes."""

    waiting: WaitingChange
    change: Change
    before: Counter[str]


class Keys:
    """Outcomes of changes by idempotency key, for as many changes as the log keeps."""

    def __init__(self) -> None:
        self._outcomes: OrderedDict[str, tuple[str, Written]] = OrderedDict()

    def __iter__(self) -> Iterator[tuple[str, str, Written]]:
        return ((key, body, written) for key, (body, written) in self._outcomes.items())

    def remember(self, key: str, body: str, written: Written) -> None:
        """Remember an outcome by its request's key, with the hash of the request's body. Keep the newest `KEPT`."""
        self._outcomes[key] = (body, written)
        while len(self._outcomes) > KEPT:
            self._outcomes.popitem(last=False)

    def outcome(self, key: str | None, body: str) -> Written | None:
        """Return the outcome of an earlier request with the same key, or None. ApiError 422 if the bodies differ."""
        if key is None or key not in self._outcomes:
            return None
        before, written = self._outcomes[key]
        if before != body:
            raise key_reused()
        return written


def written_of(made: Change) -> Counter[str]:
    """Count the documents, or passages, that a change wrote, by id."""
    if made.rows is None:
        return Counter()
    ids = made.rows[key_of(made.rows.column_names)]
    return Counter(ids.filter(pc.equal(made.rows["rank"], 0)).to_pylist())


class MovedError(Exception):
    """A change was not made, because another index is served now. The Writer of that index makes the change."""


class WriteLease:
    """The lease of a Writer on its index, from the Writer's beginning until it is closed."""

    def __init__(self, root: Location, is_named: Callable[[], bool]) -> None:
        """Take the lease on the index below `root`. InputError if another lease holds, or `is_named()` is False.

        In the second case current.json names another index, whose Writer has all changes of this index.
        """
        self._root, self._is_named = root, is_named
        self._take()
        self.has_caught_up = False
        """True once the Writer has seen all changes of earlier Writers. Before that, the Writer accepts no changes."""
        self.moved = False
        """True once the Writer of another index has all changes of this index and makes all later changes."""

    def close(self) -> None:
        self._closing.close()

    @property
    def epoch(self) -> int:
        """Number of the Writer's lease, which each of the Writer's changes in the log carries."""
        return self._held.epoch

    def holds(self) -> bool:
        """Return True while this Writer may change the index: it has caught up, and its lease holds."""
        return self.has_caught_up and self._held()

    @property
    def lost(self) -> bool:
        """True if another server may write to the index. False after another Writer of this server has taken over."""
        return not self.moved and not self._held()

    def lose(self) -> None:
        self._held.lost.set()

    def take_again(self) -> bool:
        """Take the lost lease again. False if another lease holds, another index is current, or storage refuses."""
        self.has_caught_up = False
        self.close()
        self.lose()
        try:
            self._take()
        except (InputError, OSError):
            return False
        return True

    def _take(self) -> None:
        with contextlib.ExitStack() as taking:
            held = taking.enter_context(leased(self._root))
            if not self._is_named():  # checked under the lease, because the Writer of the named index ends leases
                raise InputError(f"{self._root}: current.json names another index. Nothing was changed. Start again")
            self._held, self._closing = held, taking.pop_all()

    def check(self) -> None:
        """Raise ApiError 503 unless this Writer may change the index."""
        if not self.holds():
            message = (
                "the lease of this Writer is over: storage refused to renew it, or another server writes. The change "
                "may have been made: send it again"
            )
            raise ApiError(503, "not_the_writer", message, RETRY)

    def check_moved(self) -> None:
        """Raise MovedError if another index has replaced this index."""
        if self.moved:
            raise MovedError
