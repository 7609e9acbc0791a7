"""The deployment that takes requests: the model, and a handle for each group of shards."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from fastapi import FastAPI
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle

from rayhier.arrays import Floats, Ints
from rayhier.dataset.ranking import Ranking
from rayhier.search.comparing import LevelQuery
from rayhier.search.shortlist import Shortlist
from rayhier.serve.api import api
from rayhier.serve.args import ServeArgs
from rayhier.serve.engine import Engine, LostError
from rayhier.serve.errors import overloaded
from rayhier.serve.models import IndexResponse
from rayhier.serve.tokens import Tokens
from rayhier.serve.version import Version
from rayhier.spec.filter import Filter
from rayhier.storage.leaf_map import Manifest

PING_SECONDS = 2.0
AGAIN_SECONDS = 1.0
T = TypeVar("T")
log = logging.getLogger("ray.serve")


@dataclass(frozen=True)
class ShardRange:
    """Name and leaves of a shard group."""

    name: str
    leaves: range


@dataclass
class HandleGroup:
    """A shard group behind a deployment's handle.

    After one failure the group counts as lost, and no request waits for it, until it answers a ping.
    """

    name: str
    leaves: range
    handle: DeploymentHandle
    seconds: float
    _back: "asyncio.Task[None] | None" = field(default=None, repr=False)

    async def scan(self, query_QM: Floats, leaves_QB: Ints, k: int, wanted: Filter | None = None) -> Ranking:
        """The best k results of each query in this group's leaves; LostError where no answer comes in time."""
        return await self._asked(lambda: self.handle.scan.remote(query_QM, leaves_QB, k, wanted))

    async def level(self, query: LevelQuery, results: int, wanted: Filter | None = None) -> Shortlist:
        """The group's shortlist of each query by a level of the tree; LostError where no answer comes in time."""
        return await self._asked(lambda: self.handle.level.remote(query, results, wanted))

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        if self._back is not None and not self._back.done():
            raise LostError(self.name)
        try:
            async with asyncio.timeout(self.seconds):
                return await ask()
        except BackPressureError:
            raise overloaded(f"{self.name} has too many requests waiting; retry in a second") from None
        except (RayError, RayServeException, TimeoutError) as error:
            log.warning("%s is lost: %s: %s", self.name, type(error).__name__, error)
            self._back = asyncio.create_task(self._until_it_answers())
            raise LostError(self.name) from None

    async def answers(self) -> bool:
        """Whether a replica of the group answers a search now; one that is too busy for it does."""
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self.handle.ping.remote()
        except BackPressureError:
            return True
        except (RayError, RayServeException, TimeoutError):
            return False
        return True

    async def _until_it_answers(self) -> None:
        while not await self.answers():
            await asyncio.sleep(AGAIN_SECONDS)
        log.warning("%s answers again", self.name)


class Ingress:
    """Answers HTTP requests: encodes, routes, has the groups scan, merges. Keeps its version from vacuum."""

    def __init__(self, args: ServeArgs, version: Version, parts: list[ShardRange], *handles: DeploymentHandle) -> None:
        self._pins = contextlib.ExitStack()
        torch.set_num_threads(args.encoder_threads)
        self._args = args
        self._tokens = Tokens(args.token_file, args.write_token_file)
        manifest = self._pins.enter_context(version.reading()).manifest
        model = version.model(args.encoder_precision).load()
        groups = [
            HandleGroup(part.name, part.leaves, handle, args.shard_seconds)
            for part, handle in zip(parts, handles, strict=True)
        ]
        _ = model.search_router
        precision = str(model.text_encoder.dtype).removeprefix("torch.")
        self._index = describe(version, manifest, args, [part.name for part in parts], precision)
        self._engine = Engine(model, groups, manifest.documents, manifest.rows)

    def __del__(self) -> None:
        """Called by Serve when it stops the replica: release the version, which vacuum may then remove."""
        self._pins.close()

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve once the model is loaded: the HTTP application."""
        args = self._args
        return api(
            self._engine,
            self._index,
            args.limits,
            self._tokens,
            origins=args.cors_origins,
            log_queries=args.log_queries,
        )


def describe(version: Version, manifest: Manifest, args: ServeArgs, groups: list[str], precision: str) -> IndexResponse:
    """The answer to `GET /v1/index`."""
    spec = version.now.spec
    return IndexResponse(
        name=spec.name,
        version=version.number,
        index=version.now.artifacts["index"],
        model=manifest.model,
        router=spec.router.type,
        documents=manifest.documents,
        leaves=len(manifest.counts),
        leaves_per_document=manifest.leaves_per_document,
        shards=len(manifest.shards),
        groups=groups,
        dimension=manifest.dimension,
        similarity=spec.encoder.similarity,
        precision=precision,
        fields=dict(spec.corpus.field_types),
        k=spec.search.k,
        how=spec.search.how,
        beam=spec.search.leaves_visited(len(manifest.counts), sum(manifest.counts)),
        limits=args.limits.model_dump(),
    )
