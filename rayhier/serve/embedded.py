"""A server of an index over HTTP in a single process, without Ray.

The HTTP application, the engine and the shard groups are those of `serve deploy`; only what they send each other stays
in this process. Encoding, scanning and reading pairs run in threads, off the event loop.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from rayhier.progress import say
from rayhier.serve.application import ServedIndex, check_index
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.cross_encoder import LocalScorer
from rayhier.serve.backend.groups import ShardRange
from rayhier.serve.backend.shards import LocalShards
from rayhier.serve.http.protocol import LimitedProtocol
from rayhier.serve.metrics import Prometheus
from rayhier.spec import InputError

HEALTH_SECONDS = 10.0
"""Seconds between two checks for changes of the mapped files."""
KEPT_SECONDS = 60
"""Seconds for which a connection is kept without a request."""


def serve(args: ServeArgs, host: str, port: int, ready: Callable[[], None]) -> None:
    """Serve an index until SIGINT or SIGTERM; `ready` is called once requests are answered.

    InputError where the index cannot be served, or nothing can listen on the port.
    """
    # uvicorn raises the signal again once all requests are answered; background jobs of a script start without SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _end)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(args, host, port, ready))


def _end(*_: object) -> None:
    """End the process with code 0."""
    raise SystemExit(0)


async def _serve(args: ServeArgs, host: str, port: int, ready: Callable[[], None]) -> None:
    with contextlib.ExitStack() as opened:
        embedded = Embedded(args)
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
        raise InputError(f"port: got {port}; cannot be listened on; allowed: a free port of {host}")


async def _call_once_started(server: uvicorn.Server, ready: Callable[[], None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    ready()


class Embedded:
    """A version of an index, opened in this process with all its shard groups."""

    def __init__(self, args: ServeArgs) -> None:
        """Open model, leaves and, where the spec re-ranks, the cross-encoder; InputError where one cannot be opened."""
        # One group unless the arguments say otherwise: more would only divide one process's work.
        args = args if args.shard_groups else args.model_copy(update={"shard_groups": 1})
        version, _, ranges = check_index(args)
        self._prometheus = Prometheus()
        seconds = args.limits.seconds
        self._shards = [LocalShards(f"shards-{n}", version, leaves, seconds) for n, leaves in enumerate(ranges)]
        parts = [ShardRange(shards.name, leaves) for shards, leaves in zip(self._shards, ranges, strict=True)]
        scorer = None
        if version.now.spec.search.reranking is not None:
            scorer = LocalScorer(version, args.reranker_threads)
        say("loading encoder")
        self._served = ServedIndex(args, version, list(zip(parts, self._shards, strict=True)), scorer, self._prometheus)
        self._writer = None if args.write_token_file is None else self._served.writer()
        if self._writer is None:
            self._served.see_tail()

    async def begin(self) -> None:
        """Let the Writer begin, where there is one; to be called before the first request."""
        if self._writer is not None:
            await self._writer.begin()

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return what runs beside requests until it is cancelled."""
        return [self.watch(), *([] if self._writer is None else [self._writer.fold_forever()])]

    def app(self) -> FastAPI:
        """Make the HTTP application, with `GET /metrics`."""
        app = self._served.app(self._writer)

        @app.get("/metrics", include_in_schema=False)
        async def metrics() -> Response:
            return Response(generate_latest(self._prometheus.registry), media_type=CONTENT_TYPE_LATEST)

        return app

    async def watch(self) -> None:
        """Check every ten seconds whether open files were changed, and open them again; runs until it is cancelled."""
        while True:
            await asyncio.sleep(HEALTH_SECONDS)
            for shards in self._shards:
                await shards.check_health()

    def close(self) -> None:
        """Release the index's version, which vacuum may then remove."""
        self._served.close()
