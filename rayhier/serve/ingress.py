"""The deployment that takes HTTP requests: it holds the model, and a handle for each shard group."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from fastapi import FastAPI
from ray.serve.handle import DeploymentHandle
from ray.util import metrics

from rayhier.search.retrieve import RERANKER
from rayhier.search.segment.memory import settle
from rayhier.serve.application import Application
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.following import WRITER, Following
from rayhier.serve.backend.groups import ShardRange
from rayhier.serve.backend.handles import DeploymentClient, ScorerHandle, ShardHandle, WriterHandle
from rayhier.serve.backend.version import Version
from rayhier.serve.metrics import COUNTERS, GAUGES, HISTOGRAMS

RERANKER_PING = 5.0
"""Seconds that the cross-encoder may take for a ping, which waits for the pairs that it is reading; after these it
counts as lost."""
WRITER_LATE, WRITER_ALIVE = 2.0, 4.0
"""Seconds after which a call of the Writer, which holds some for a while, is late, and for a sign of its life."""


class RayInstruments:
    """A store of metrics in Ray, which exports those of all processes of a node."""

    def __init__(self) -> None:
        self._histograms = {
            name: metrics.Histogram(name, description=what, boundaries=list(bounds), tag_keys=tags)
            for name, (what, bounds, tags) in HISTOGRAMS.items()
        }
        self._counters = {
            name: metrics.Counter(name, description=what, tag_keys=tags) for name, (what, tags) in COUNTERS.items()
        }
        self._gauges = {name: metrics.Gauge(name, description=what) for name, what in GAUGES.items()}

    def observe(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        self._histograms[name].observe(value, dict(tags))

    def count(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        self._counters[name].inc(value, dict(tags))

    def set(self, name: str, value: float) -> None:
        self._gauges[name].set(value)


class Ingress:
    """A deployment that answers HTTP requests: encodes and routes queries, lets shard groups scan, merges results.

    It keeps the index's version from vacuum. Where there is a Writer, it follows it, and forwards changes to it.
    """

    def __init__(
        self,
        args: ServeArgs,
        version: Version,
        parts: list[ShardRange],
        reranker: DeploymentHandle | None,
        writer: DeploymentHandle | None,
        *handles: DeploymentHandle,
    ) -> None:
        shards = shard_handles(args, parts, handles)
        scorer = None
        if reranker is not None:
            scorer = ScorerHandle(DeploymentClient(RERANKER, reranker, RERANKER_PING, RERANKER_PING))
        if writer is not None:
            version, _ = Version.newest(version.workdir)
        self._served = Application(args, version, parts, shards, scorer, RayInstruments())
        self._served.see_tail()
        self._writer: WriterHandle | None = None
        if writer is not None:
            client = DeploymentClient(WRITER, writer, late_seconds=WRITER_LATE, alive_seconds=WRITER_ALIVE)
            self._writer = WriterHandle(client, args.writes.seconds)
            self._following = Following(self._served.follower, self._writer)
        settle()

    def __del__(self) -> None:
        """Release the version, which vacuum may then remove; called by Ray Serve when it stops the replica."""
        if hasattr(self, "_served"):  # missing where opening failed
            self._served.close()

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Make the HTTP application; called by Ray Serve once the model is loaded."""
        if self._writer is None:
            return self._served.app()
        return self._served.app(self._writer, self._following, self._beside)

    @contextlib.asynccontextmanager
    async def _beside(self, _: FastAPI) -> AsyncIterator[None]:
        following = asyncio.create_task(self._following.run())
        yield
        following.cancel()


def shard_handles(
    args: ServeArgs, parts: Sequence[ShardRange], handles: Sequence[DeploymentHandle]
) -> list[ShardHandle]:
    clients = [DeploymentClient(part.name, handle) for part, handle in zip(parts, handles, strict=True)]
    return [ShardHandle(client, args.shard_seconds) for client in clients]
