"""Serves an index over HTTP from a single process, without Ray.

The HTTP application, the engine and the shard groups are the same as on Ray Serve. Encoding, scanning and scoring pairs
run in threads, off the event loop.
"""

import asyncio
import contextlib
import logging
import resource
import signal
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from rayhier.progress import say
from rayhier.search.rerank import KINDS
from rayhier.search.segment.memory import settle
from rayhier.serve.application import Application, check_index
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.cross_encoder import LocalScorer
from rayhier.serve.backend.follower import Follower
from rayhier.serve.backend.shards import LocalShards
from rayhier.serve.backend.version import ShardRange, Version
from rayhier.serve.backend.writer import Writers
from rayhier.serve.config import LOOPBACK
from rayhier.serve.errors import LostError
from rayhier.serve.http.api import api
from rayhier.serve.http.protocol import LimitedProtocol
from rayhier.serve.metrics import Prometheus
from rayhier.serve.threads import begin
from rayhier.spec import InputError
from rayhier.spec.corpus import passages_of
from rayhier.storage import current
from rayhier.storage.current import Current
from rayhier.storage.paths import locate
from rayhier.storage.writer_lease import WrittenError

HEALTH_SECONDS = 10.0
"""Seconds between two checks of the memory-mapped files for changes."""
LOOK_SECONDS = 1.0
"""Seconds between two reads of current.json, which may name another model or index."""
AGAIN_SECONDS = 30.0
"""Seconds between two attempts to open an index if storage fails."""
RESTART = "as served now. To serve another value, restart the server"
MOST_CONNECTIONS = 10_000
KEPT_SECONDS = 60
"""Seconds for which a connection is kept without a request."""
log = logging.getLogger("ray.serve")


def serve(args: ServeArgs, host: str, port: int, ready: Callable[[], None]) -> None:
    """Serve an index until SIGINT or SIGTERM. Calls `ready` once requests are answered. InputError if opening fails."""
    # uvicorn raises the signal again once all requests are answered. Background jobs of a script start without SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _end)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(args, host, port, ready))


def _end(*_: object) -> None:
    raise SystemExit(0)


async def _serve(args: ServeArgs, host: str, port: int, ready: Callable[[], None]) -> None:
    with contextlib.ExitStack() as opened:
        embedded = Embedded(args.model_copy(update={"allowed_hosts": allowed_hosts(args, host)}))
        opened.callback(embedded.close)
        config = uvicorn.Config(
            embedded.app(),
            host,
            port,
            http=LimitedProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=KEPT_SECONDS,
            limit_concurrency=most_connections(),
            timeout_graceful_shutdown=int(args.limits.seconds),
        )
        server = uvicorn.Server(config)
        await embedded.begin()
        tasks = [asyncio.create_task(work) for work in (*embedded.work(), _call_once_started(server, ready))]
        try:
            await server.serve()
        finally:
            for task in tasks:
                task.cancel()
    if not server.started:
        raise InputError(f"port: got {port}, which cannot be listened on; allowed: a free port of {host}")


def allowed_hosts(args: ServeArgs, host: str) -> Sequence[str]:
    """Return the names allowed in the header Host, so that no web page calls a server on loopback without a token."""
    is_open = args.token_file is None and args.write_token_file is None
    return [*LOOPBACK, *args.allowed_hosts] if host in LOOPBACK and is_open else args.allowed_hosts


def most_connections() -> int:
    """Return the most connections at a time: half of the free file descriptors, between 8 and 10,000."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = limit if limit != resource.RLIM_INFINITY else 3 * MOST_CONNECTIONS
    return max(8, min((limit - len(list(Path("/dev/fd").iterdir()))) // 2, MOST_CONNECTIONS))


async def _call_once_started(server: uvicorn.Server, ready: Callable[[], None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    settle()
    ready()


class Embedded:
    """A server of the model and index that a workdir names, with all shard groups in this process.

    A newly published model or index takes over without a stop. A request reads one index until its end.
    """

    def __init__(self, args: ServeArgs) -> None:
        """Open model, leaves and, if the spec re-ranks, the cross-encoder. InputError if one cannot be opened."""
        # One group by default: more groups would only divide the work of one process.
        self._args = args = args if args.shard_groups else args.model_copy(update={"shard_groups": 1})
        version, _, parts = check_index(args)
        self._prometheus = Prometheus()
        self._shards = _open_shards(version, parts, args)
        scorer = _open_scorer(version, args)
        say("loading encoder")
        self._served = Application(args, version, parts, self._shards, scorer, self._prometheus)
        self._writers = None if args.write_token_file is None else Writers(self._served.writer())
        if self._writers is None:
            self._served.see_tail()
        self._now = self._looked_at = version.now
        self._draining: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start the Writer before the first request. InputError if changes of an earlier index would be lost."""
        if self._writers is None:
            return
        try:
            await self._writers.now.begin()
        except BaseException:
            self._writers.now.close()
            raise

    def work(self) -> list[Coroutine[Any, Any, None]]:
        folds = [] if self._writers is None else [self._writers.fold_forever()]
        return [self.watch(), self.follow(), *folds]

    def app(self) -> FastAPI:
        app = api(self._served, self._writers, follows=self._now.spec.search.how != "level")

        @app.get("/metrics", include_in_schema=False)
        async def metrics() -> Response:
            return Response(generate_latest(self._prometheus.registry), media_type=CONTENT_TYPE_LATEST)

        return app

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(HEALTH_SECONDS)
            for shards in self._shards:
                await shards.check_health()

    async def follow(self) -> None:
        """Look for a newer model, index, version or setting every second, until cancelled."""
        settled = True
        while True:
            await asyncio.sleep(LOOK_SECONDS if settled else AGAIN_SECONDS)
            settled = await self.look()

    async def look(self) -> bool:
        """Serve the model, index and settings that current.json names, if they are new and can be opened.

        If this process does not write, also serve newer versions of the index and changes of another server. If opening
        fails, the log and `GET /v1/index` say why, and the next write of current.json leads to a new try. Returns
        False if storage failed, so that the caller tries again in any case.
        """
        try:
            now = await asyncio.to_thread(current.read, locate(self._args.workdir))
            if (self._writers is None or self._writers.now.lease.lost) and self._now.spec.search.how != "level":
                await self._served.follower.look()
        except (InputError, LostError, OSError) as error:
            log.warning("the newest state of the index cannot be read: %s", error)
            return False
        if now == self._looked_at:
            return True
        self._looked_at = now
        if _searched(now) == _searched(self._now):
            self._served.refused = None
            return True
        try:
            await self._swap(now)
        except Exception as error:
            self._served.refused = str(error) or type(error).__name__
            named = "model {model} and index {index}".format(**now.artifacts)
            log.error("%s are not served. The earlier ones stay: %s", named, self._served.refused, exc_info=error)
            if isinstance(error, InputError) and not isinstance(error, WrittenError):
                return True
            self._looked_at = self._now  # try again: storage failed, or another Writer may end
            return False
        return True

    async def _swap(self, now: Current) -> None:
        """Serve another model and index in place of the current ones, which are released after their last request."""
        said = "model {model}, index {index}".format(**now.artifacts)
        say(f"opening {said}")
        with contextlib.ExitStack() as opening:
            follower, shards = await asyncio.to_thread(self._opened, opening, now)
            if self._writers is None:
                await asyncio.to_thread(self._served.see_tail, follower)
                self._served.show(follower)
            elif now.artifacts["index"] == self._now.artifacts["index"]:
                await self._served.follower.reopen(follower.view, shards)
                follower.close()  # the first follower goes on
                self._served.show(self._served.follower)
            else:
                writer = self._served.writer(follower)
                opening.callback(writer.close)
                await writer.begin(self._writers.now)
                async with self._writers.now.handing_over(writer) as old:
                    self._served.show(follower)
                    self._writers.now = writer
                old.close()
            opening.pop_all()
        drained, self._shards, self._now = self._shards, shards, now
        say(f"serving {said}")
        self._draining = begin(self._drain(drained))

    def _opened(self, opening: contextlib.ExitStack, now: Current) -> tuple[Follower, list[LocalShards]]:
        _check_fits(self._now, now)
        version, manifest, parts = check_index(self._args, now)
        served = self._served.engine.view.rules
        if manifest.dimension != served.dimension:
            raise InputError(f"index: got dimension {manifest.dimension}; allowed: {served.dimension}, {RESTART}")
        shards = _open_shards(version, parts, self._args)
        for group in shards:
            opening.callback(group.release)
        follower = self._served.open(version, parts, shards, _open_scorer(version, self._args))
        opening.callback(follower.close)
        return follower, shards

    async def _drain(self, shards: list[LocalShards]) -> None:
        """Release shard groups after the last request that may have begun with them."""
        await asyncio.sleep(self._args.limits.seconds + 1)
        for group in shards:
            group.release()
        del group, shards  # they hold the memory that `settle` frees
        settle()

    def close(self) -> None:
        """Release the index's versions, so that vacuum may remove them, and give the Writer's lease back."""
        if self._writers is not None:
            self._writers.now.close()
        self._served.close()
        for group in self._shards:
            group.release()


def _open_shards(version: Version, parts: Sequence[ShardRange], args: ServeArgs) -> list[LocalShards]:
    return [LocalShards(part, version, args.limits.seconds) for part in parts]


def _open_scorer(version: Version, args: ServeArgs) -> LocalScorer | None:
    return None if version.now.spec.search.reranking is None else LocalScorer(version, args.reranker_threads)


def _searched(now: Current) -> tuple[object, ...]:
    """List the settings and artifacts that searches depend on. If the list changes, the index is opened again."""
    spec = now.spec
    return (
        spec.search,
        spec.cross_encoder,
        *(now.artifacts.get(kind) for kind in ("model", "index", *KINDS)),
    )


def _check_fits(before: Current, now: Current) -> None:
    """Raise InputError if a client of the served index could not use the next index in the same way."""
    for name, had, has in (
        ("encoder.similarity", before.spec.encoder.similarity, now.spec.encoder.similarity),
        ("corpus.fields", dict(before.spec.corpus.field_types), dict(now.spec.corpus.field_types)),
        ("corpus.passages", passages_of(before.spec.corpus), passages_of(now.spec.corpus)),
    ):
        if had != has:
            raise InputError(f"{name}: got {has}; allowed: {had}, {RESTART}")
