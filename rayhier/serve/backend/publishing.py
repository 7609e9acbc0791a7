"""Publishes versions of an index and serves them: folds, split leaves, packed files, rollbacks."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rayhier.index import change
from rayhier.index.compact import compact_here
from rayhier.index.maintain import can_maintain, leaves_at_once, maintain
from rayhier.index.pack import pack
from rayhier.index.stats import Due, Stats
from rayhier.index.vacuum import vacuum
from rayhier.model.opened_router import OpenedRouter
from rayhier.search.segment.memory import give_back
from rayhier.search.snapshot import Seen
from rayhier.serve.backend.follower import Follower, Newest
from rayhier.serve.errors import RETRY, ApiError, LostError, key_reused, unanswered
from rayhier.serve.threads import begin, run_in, yield_to_others
from rayhier.spec import InputError, JobSpec
from rayhier.storage import current, leaf_map
from rayhier.storage.leaf_map import LeafMap, Manifest, Rollback
from rayhier.storage.paths import Location, locate

if TYPE_CHECKING:
    from rayhier.serve.backend.writer import Writer

VOID = 0.5
"""Share of rows of removed documents above which all files are rewritten."""
AGAIN_SECONDS = 1.0
"""Seconds between two checks of the tail for folding."""
LONGEST_SECONDS = 60.0
"""Longest time between two checks. A failed fold doubles the time, because its files stay until a vacuum."""
SETTLED = 0.05
"""Share of rows to be added or removed before rayhier again tries splits that did not make searches cheaper."""
MAINTAINED, BUSY = 5_000, 0.25
"""Documents that a maintenance step reads, and largest share of time for steps. So a fold waits for seconds only."""
log = logging.getLogger("ray.serve")


class Maintenance:
    """Decides on the next step of maintenance for an index's leaves, and when it runs."""

    def __init__(self, root: Location) -> None:
        self._root = root
        self.may_be_due = False
        """True if leaves may need maintenance. Set this flag after rows were added or removed."""
        self._unpaid, self._skipped, self._rests = 0, 0, 0.0

    def next(self, manifest: Manifest, router: OpenedRouter, spec: JobSpec) -> Callable[[], None] | None:
        """Return maintenance's next step as a function. None if no leaf needs maintenance, or soon after a step."""
        if time.monotonic() < self._rests:
            return None
        due, can_be = Due.of(manifest, spec), can_maintain(router, spec)
        self.may_be_due = can_be and bool(due.advice()) and abs(manifest.rows - self._unpaid) > SETTLED * manifest.rows
        return (lambda: self._step(manifest, router, spec, due)) if self.may_be_due else None

    def _step(self, manifest: Manifest, router: OpenedRouter, spec: JobSpec, due: Due) -> None:
        if maintain(self._root, router, spec, MAINTAINED, self._skipped, manifest) is None:
            self._skipped += leaves_at_once(due, MAINTAINED)  # the split of other leaves may pay
        if self._skipped >= len(due.grown) + len(due.shrunk):
            self._unpaid, self._skipped = manifest.rows, 0

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Let maintenance rest after the block, in proportion to the block's duration."""
        began = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            self._rests = now + (now - began) * (1 / BUSY - 1)


class Publisher:
    """Publishes versions of the index that a Writer writes, one after another. Packing may run in parallel."""

    def __init__(self, writer: "Writer", follower: Follower) -> None:
        self._writer, self._follower, self._root, self._lease = writer, follower, follower.root, writer.lease
        self._published, self._publishing, self._is_tidying = 0, asyncio.Lock(), False
        self._maintenance = Maintenance(follower.root)
        self._failed: Exception | None = None
        self._fold_thread, self._tidy_thread = (
            ThreadPoolExecutor(1, name, yield_to_others) for name in ("fold", "tidy")
        )

    async def serve_newest(self) -> None:
        """Let requests see the newest version, unless another index has replaced this index."""
        number = (await run_in(self._fold_thread, leaf_map.versions, self._root))[-1]
        if number > self._follower.seen.version and not self._lease.moved:
            await self._serve(number)

    async def _serve(self, number: int) -> None:
        """Let requests see a published version. Then join the log's objects of changes that the version holds."""
        self._published = number
        await self._follower.move(number)
        await self.tidy_log()
        await run_in(self._fold_thread, give_back)

    async def tidy_log(self) -> None:
        """Join the log's objects of changes that leaf files hold. If storage refuses, the next version tries again."""
        try:
            await run_in(self._fold_thread, self._follower.log.tidy, self._follower.manifest.log)
        except OSError as error:
            log.warning("objects of the log cannot be joined: %s", error)

    async def fold_forever(self) -> None:
        """Fold the tail when it is large or old, and look if a damaged log was repaired.

        If another server wrote and has ended, take the lease again. Return once another index's Writer has taken over.
        """
        seconds = AGAIN_SECONDS
        while not self._lease.moved:
            await asyncio.sleep(seconds)
            seconds = AGAIN_SECONDS if self._failed is None else min(LONGEST_SECONDS, 2 * seconds)
            try:
                if self._lease.moved:
                    return
                if not self._lease.holds():
                    await self._go_on()
                elif self._published > self._follower.seen.version:
                    async with self._publishing:
                        await self.serve_newest()
                elif self._follower.damage is not None:
                    async with self._follower.lock:
                        await self._writer.catch_up()
                elif self._writer.is_due:
                    await self.fold()
                elif self._maintenance.may_be_due:
                    async with self._publishing:
                        await self.serve_newest()
                        await self._maintain()
                self._failed = None
            except Exception as error:
                self._failed = error
                log.exception("the log's tail cannot be folded. rayhier tries again")

    async def _go_on(self) -> None:
        """Take the lease again, and let requests see the changes of another Writer, unless that Writer still writes."""
        if self._lease.lost and not await run_in(self._fold_thread, self._lease.take_again):
            return
        async with self._publishing:
            await self.serve_newest()
        async with self._follower.lock:
            await self._writer.go_on()

    async def fold(self) -> None:
        """Write the tail to leaf files as a new version, and serve it. Then split leaves that grew, and pack files."""
        async with self._publishing:
            if self._lease.moved:
                return
            await self.serve_newest()  # a version that is not served yet may have another router
            await run_in(self._fold_thread, change.fold, self._root, self._writer.placement.assigner)
            await self.serve_newest()
            self._maintenance.may_be_due = True
            await self._maintain()
        if not self._is_tidying:
            begin(self._tidy())

    async def _maintain(self) -> None:
        """Do a step of maintenance if one is due, and serve its version. The caller holds `_publishing`."""
        step = self._maintenance.next(self._follower.manifest, self._follower.model.router, self._follower.spec)
        if step is None or self._lease.moved:
            return
        with self._maintenance.resting():
            try:
                await run_in(self._fold_thread, step)
                await self.serve_newest()
            except (InputError, OSError):
                log.exception("leaves cannot be split. rayhier tries again")

    async def _tidy(self) -> None:
        """Pack small files into larger files, and remove old versions if `keep_versions` is set, while folds go on."""
        self._is_tidying = True
        try:
            while not self._lease.moved and await run_in(self._tidy_thread, self._tidied) is not None:
                async with self._publishing:
                    await self.serve_newest()
            if self._writer.limits.keep_versions is not None and not self._lease.moved:
                await run_in(self._tidy_thread, self._vacuumed, self._writer.limits.keep_versions)
        except Exception:
            log.exception("files cannot be packed or removed. rayhier tries again after the next fold")
        finally:
            self._is_tidying = False

    def _tidied(self) -> LeafMap | None:
        """Publish a version with fewer files. None if files are few, and few rows are of removed documents."""
        packed = pack(self._root)
        if packed is None and Stats.of(LeafMap.open(self._root).manifest).void > VOID:
            return compact_here(self._follower.spec, self._root)
        return packed

    def _vacuumed(self, keep: int) -> None:
        """Remove all but the newest `keep` versions. Keep changes that an index about to replace this one needs."""
        version, taken = self._follower.version, None
        workdir = locate(version.workdir)
        named = current.read(workdir)
        if named.artifacts["index"] != version.now.artifacts["index"]:
            taken = LeafMap.open(current.artifact(workdir, named, "index").root).manifest.log
        vacuum(self._root, keep, taken=taken)

    async def rollback(self, number: int, key: str | None = None) -> Newest:
        """Publish the content of an older version as the newest version, and serve it. The log's tail is lost.

        ApiError 404 if there is no such version, 409 if it cannot be served. 422 if the key was used for another
        version. 503 if storage refuses, or a shard group does not answer.
        """
        return await asyncio.shield(begin(self._roll_back(number, key)))

    async def _roll_back(self, number: int, key: str | None) -> Newest:
        async with self._publishing:
            self._lease.check_moved()
            done: Rollback | None = await run_in(self._fold_thread, self._rolled_back, key)
            if done is None:
                self._lease.check()
                await self._check_whole(number)
                async with self._follower.lock:
                    self._lease.check_moved()
                    self._lease.check()
                    manifest: Manifest = await run_in(self._fold_thread, self._restore, number, key)
                done = next((each for each in manifest.rollbacks if each.key == key), None)
            if done is None:
                made, documents = Seen(manifest.model, manifest.version, manifest.log), manifest.documents
            else:
                made, documents = Seen(done.model, done.version, done.log), done.documents
                if done.restored != number:
                    raise key_reused()
            if made.model == self._follower.seen.model and made.version > self._follower.seen.version:
                try:
                    await self._serve(made.version)
                except LostError as lost:
                    message = f"{lost} did not answer. Version {made.version} is served when it answers"
                    raise unanswered(message) from None
        self._lease.check()
        return Newest(made, documents)

    async def _check_whole(self, number: int) -> None:
        """Raise ApiError if a version is missing, or the groups cannot open it."""
        if number not in await run_in(self._fold_thread, leaf_map.versions, self._root):
            message = f"version: got {number}; allowed: a version that GET /v1/versions lists"
            raise ApiError(404, "no_version", message)
        try:
            await self._follower.open(number)
        except InputError as error:
            raise ApiError(409, "not_restored", f"{error}. Nothing was published") from None
        except LostError as lost:
            raise unanswered(f"{lost} cannot open version {number}. Nothing was published. Retry later") from None

    def _restore(self, number: int, key: str | None) -> Manifest:
        try:
            return change.restore(self._root, number, self._follower.manifest.model, key).manifest
        except InputError as error:
            raise ApiError(409, "not_restored", str(error)) from None
        except OSError as error:
            message = f"storage refuses changes: {error.strerror or error}. Retry later"
            raise ApiError(503, "storage", message, RETRY) from None

    def _rolled_back(self, key: str | None) -> Rollback | None:
        """Return the rollback of a request with this key, in this index or its predecessor. None if there is none."""
        before = self._follower.version.before()
        for root in [] if key is None else [self._root, *([] if before is None else [before])]:
            for newest in leaf_map.newest_first(root, None, 1):
                for rollback in newest.rollbacks:
                    if rollback.key == key:
                        return rollback
        return None
