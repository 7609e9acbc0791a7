"""Maintenance beside changes: leaves that grew are split, small ones given up, step by step, for a part of the time."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rayhier.index.maintain import can_maintain, leaves_at_once, maintain
from rayhier.index.stats import Due
from rayhier.model.router import Router
from rayhier.spec import JobSpec
from rayhier.storage.leaf_map import Manifest
from rayhier.storage.paths import Location

SETTLED = 0.05
"""Share of rows that must come or go before leaves are tried again whose splitting did not pay."""
MAINTAINED, BUSY = 5_000, 0.25
"""Documents, about, that a step reads, so that the log's tail waits for seconds only; and the share of the time that
steps may take."""


class Maintenance:
    """Says what is to be done next for an index's leaves, and when."""

    def __init__(self, root: Location) -> None:
        """Begin with nothing due: an index is maintained once something was folded into it."""
        self._root = root
        self.may_be_due = False
        """True where leaves may be due; to be set once rows came or went."""
        self._unpaid, self._skipped, self._rests = 0, 0, 0.0

    def next(self, manifest: Manifest, router: Router, spec: JobSpec) -> Callable[[], None] | None:
        """Return the next step, which publishes a version where it pays; None where none is due, or it rests."""
        if time.monotonic() < self._rests:
            return None
        due, can_be = Due.of(manifest, spec), can_maintain(router, spec)
        self.may_be_due = can_be and bool(due.advice()) and abs(manifest.rows - self._unpaid) > SETTLED * manifest.rows
        return (lambda: self._step(manifest, router, spec, due)) if self.may_be_due else None

    def _step(self, manifest: Manifest, router: Router, spec: JobSpec, due: Due) -> None:
        if maintain(self._root, router, spec, MAINTAINED, self._skipped, manifest) is None:
            self._skipped += leaves_at_once(due, MAINTAINED)  # others may pay
        if self._skipped >= len(due.grown) + len(due.shrunk):
            self._unpaid, self._skipped = manifest.rows, 0

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Rest after the block in proportion to its time."""
        began = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            self._rests = now + (now - began) * (1 / BUSY - 1)
