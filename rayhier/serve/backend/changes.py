"""Changes to an index that requests make, what comes of them, and the idempotency keys of earlier ones."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from rayhier.index.assign import Assigner
from rayhier.search.snapshot import Seen
from rayhier.serve.errors import key_reused
from rayhier.storage.change_log import KEPT, Change, Kind
from rayhier.storage.leaf_map import key_of


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
class NextChange:
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
            raise key_reused()
        return written


def written_of(made: Change) -> Counter[str]:
    """Count the documents, or passages, that a change wrote, by id."""
    if made.rows is None:
        return Counter()
    ids = made.rows[key_of(made.rows.column_names)]
    return Counter(ids.filter(pc.equal(made.rows["rank"], 0)).to_pylist())
