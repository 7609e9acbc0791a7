"""The deployment that takes requests: the model, and a handle for each group of shards."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field

import torch
from fastapi import FastAPI
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle

from rayhier.embed.encode import TextEncoder
from rayhier.model.router import load_router
from rayhier.search.answer import Partial
from rayhier.search.lists import Ints
from rayhier.search.opened import spared
from rayhier.serve.api import api
from rayhier.serve.args import ServeArgs, read_token
from rayhier.serve.engine import Engine, LostError
from rayhier.serve.errors import overloaded
from rayhier.serve.models import IndexResponse
from rayhier.serve.pinned import Pinned
from rayhier.storage.columns import Floats
from rayhier.storage.leaf_map import Manifest

PING_SECONDS = 2.0
AGAIN_SECONDS = 1.0
log = logging.getLogger("ray.serve")


@dataclass(frozen=True)
class Part:
    """What a group of shards is called and holds."""

    name: str
    leaves: range


@dataclass
class HandleGroup:
    """A group of shards behind a deployment's handle.

    Once it fails to answer it is lost at once for every request, none waits for it, until a ping comes back.
    """

    name: str
    leaves: range
    handle: DeploymentHandle
    seconds: float
    _back: "asyncio.Task[None] | None" = field(default=None, repr=False)

    async def search(self, query_QM: Floats, leaves_QB: Ints, k: int) -> list[Partial]:
        """The best k of each query there; LostError where nobody answers in time."""
        if self._back is not None and not self._back.done():
            raise LostError(self.name)
        try:
            async with asyncio.timeout(self.seconds):
                found: list[Partial] = await self.handle.search.remote(query_QM, leaves_QB, k)
                return found
        except BackPressureError:
            raise overloaded(f"{self.name} has more requests than it takes") from None
        except (RayError, RayServeException, TimeoutError) as error:
            log.warning("%s is lost: %s: %s", self.name, type(error).__name__, error)
            self._back = asyncio.create_task(self._until_it_answers())
            raise LostError(self.name) from None

    async def answers(self) -> bool:
        """Whether a replica answers now."""
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self.handle.ping.remote()
        except (RayError, RayServeException, TimeoutError):
            return False
        return True

    async def _until_it_answers(self) -> None:
        while not await self.answers():
            await asyncio.sleep(AGAIN_SECONDS)
        log.warning("%s answers again", self.name)


class Ingress:
    """Encodes, routes, asks the groups, merges; reads its token from the file, and keeps its version from vacuum."""

    def __init__(self, args: ServeArgs, pinned: Pinned, parts: list[Part], *handles: DeploymentHandle) -> None:
        self._held = contextlib.ExitStack()
        torch.set_num_threads(args.encoder_threads)
        self._args = args
        self._token = None if args.token_file is None else read_token(args.token_file)
        manifest = self._held.enter_context(pinned.reading()).manifest
        model = pinned.model()
        encoder = TextEncoder(model.local("encoder"), pinned.now.spec.encoder)
        router = spared(load_router(model.local("router")), pinned.now.spec.search)
        groups = [
            HandleGroup(part.name, part.leaves, handle, args.shard_seconds)
            for part, handle in zip(parts, handles, strict=True)
        ]
        self._index = describe(pinned, manifest, args, [part.name for part in parts])
        self._engine = Engine(encoder, router, groups, self._index.documents)

    def __del__(self) -> None:
        """What Serve calls when a replica is stopped: its version may be vacuumed at once."""
        self._held.close()

    def __serve_build_asgi_app__(self) -> FastAPI:
        """What Serve calls for the application, once the model is loaded."""
        return api(self._engine, self._index, self._args.limits, self._token)


def describe(pinned: Pinned, manifest: Manifest, args: ServeArgs, groups: list[str]) -> IndexResponse:
    """What `GET /v1/index` says."""
    spec = pinned.now.spec
    return IndexResponse(
        name=spec.name,
        version=pinned.version,
        index=pinned.now.artifacts["index"],
        model=manifest.model,
        router=spec.router.type,
        documents=manifest.documents,
        leaves=len(manifest.counts),
        leaves_per_document=manifest.leaves_per_document,
        shards=len(manifest.shards),
        groups=groups,
        dimension=manifest.dimension,
        fields={name: str(kind) for name, kind in getattr(spec.corpus, "fields", {}).items()},
        k=spec.search.k,
        beam=spec.search.leaves_visited(len(manifest.counts), sum(manifest.counts)),
        limits=args.limits.model_dump(),
    )
