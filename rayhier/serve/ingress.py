"""The deployment that takes requests: the model, and a handle for each group of shards."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from fastapi import FastAPI
from ray.serve.handle import DeploymentHandle

from rayhier.arrays import Floats, Ints
from rayhier.dataset.ranking import Ranking, split
from rayhier.search.hybrid import Lexical
from rayhier.search.level_similarity import LevelQuery
from rayhier.search.reranking import KINDS, open_reranker
from rayhier.search.shortlist import Shortlist
from rayhier.serve.api import api
from rayhier.serve.args import ServeArgs
from rayhier.serve.batching import Batches
from rayhier.serve.engine import TOGETHER, Answers, Engine
from rayhier.serve.handles import DeploymentClient
from rayhier.serve.metrics import Metrics
from rayhier.serve.models import IndexResponse
from rayhier.serve.reranking import RERANKER, Reranking
from rayhier.serve.tokens import Tokens
from rayhier.serve.version import Version
from rayhier.spec.filter import Filter
from rayhier.spec.search import NoRerank
from rayhier.storage import current
from rayhier.storage.leaf_map import Manifest
from rayhier.storage.paths import locate

RERANKER_PING = 5.0
"""Seconds that the cross-encoder may take for the pairs that it is at work on."""
AT_ONCE = 2
"""Calls of a group that are on their way at once, where requests are asked together."""
Scan = tuple[Floats, Ints, int, Filter | None, bool]
"""Queries [q, m], their leaves [q, β], number of results, a filter, and whether documents come with their vectors."""
T = TypeVar("T")


@dataclass(frozen=True)
class ShardRange:
    """Name and leaves of a shard group."""

    name: str
    leaves: range


@dataclass
class HandleGroup:
    """A shard group behind a deployment, which answers within some seconds or is lost."""

    client: DeploymentClient
    leaves: range
    seconds: float
    noted: Callable[[int], None] = lambda _: None
    together: int = TOGETHER
    at_once: int = AT_ONCE

    def __post_init__(self) -> None:
        self._batches: Batches[Scan, Ranking] = Batches(self._scanned, self.together, self.at_once, self.noted)

    @property
    def name(self) -> str:
        """Name of the deployment."""
        return self.client.name

    async def scan(
        self, query_QM: Floats, leaves_QB: Ints, k: int, where: Filter | None = None, *, with_vectors: bool = False
    ) -> Ranking:
        """The best k results of each query in this group's leaves; LostError where no answer comes in time.

        Requests that arrive while others are asked for are asked together, where they want as many of as many leaves.
        """
        # A filter goes alone: two that are equal are rare, and seldom come together.
        key = k, leaves_QB.shape[1], with_vectors, None if where is None else object()
        ranking, _ = await self._batches((query_QM, leaves_QB, k, where, with_vectors), len(query_QM), key)
        return ranking

    async def _scanned(self, asked: Sequence[Scan]) -> list[Ranking]:
        """Rankings of several requests' queries, by one call of the group."""
        _, _, k, where, with_vectors = asked[0]
        query_QM, leaves_QB = (np.concatenate(own) for own in zip(*((one[0], one[1]) for one in asked), strict=True))
        ranking = await self._asked(
            lambda handle: handle.scan.remote(query_QM, leaves_QB, k, where, with_vectors=with_vectors)
        )
        return split(ranking, [len(one[0]) for one in asked])

    async def level(
        self, query: LevelQuery, results: int, where: Filter | None = None, *, with_vectors: bool = False
    ) -> Shortlist:
        """The group's shortlist of each query by a level of the tree; LostError where no answer comes in time."""
        return await self._asked(lambda handle: handle.level.remote(query, results, where, with_vectors=with_vectors))

    async def words(
        self, texts: Sequence[str], query_QM: Floats, k: int, where: Filter | None = None, *, with_vectors: bool = False
    ) -> Lexical:
        """The group's best results of each query by BM25; LostError where no answer comes in time."""
        return await self._asked(
            lambda handle: handle.words.remote(list(texts), query_QM, k, where, with_vectors=with_vectors)
        )

    async def answers(self) -> bool:
        """Whether a replica of the group answers a search now."""
        return await self.client.answers()

    async def _asked(self, ask: Callable[[DeploymentHandle], Awaitable[T]]) -> T:
        return await self.client.ask(ask, self.seconds)


@dataclass(frozen=True)
class HandleScores:
    """The cross-encoder behind its deployment."""

    client: DeploymentClient

    async def score(self, queries: Sequence[str], items: Sequence[str], seconds: float) -> Floats:
        """Scores [n] of queries [n] and documents [n]; LostError where they are not there within some seconds."""
        return await self.client.ask(lambda handle: handle.score.remote(list(queries), list(items)), seconds)

    async def answers(self) -> bool:
        """Whether a replica scores pairs now."""
        return await self.client.answers()


class Ingress:
    """Answers HTTP requests: encodes, routes, has the groups scan, merges. Keeps its version from vacuum."""

    def __init__(
        self,
        args: ServeArgs,
        version: Version,
        parts: list[ShardRange],
        reranker: DeploymentHandle | None,
        *handles: DeploymentHandle,
    ) -> None:
        self._pins, metrics = contextlib.ExitStack(), Metrics()
        torch.set_num_threads(args.encoder_threads)
        self._args = args
        self._tokens = Tokens(args.token_file, args.write_token_file)
        manifest = self._pins.enter_context(version.reading()).manifest
        model = version.model(args.encoder_precision).load()
        self._metrics = metrics
        groups = [
            HandleGroup(
                DeploymentClient(part.name, handle),
                part.leaves,
                args.shard_seconds,
                partial(metrics.batched, "scan"),
                args.together,
                AT_ONCE if args.together > 1 else args.limits.max_requests,
            )
            for part, handle in zip(parts, handles, strict=True)
        ]
        _ = model.search_router
        precision = str(model.text_encoder.dtype).removeprefix("torch.")
        self._index = describe(version, manifest, args, [part.name for part in parts], precision)
        reranking = None if reranker is None else open_reranking(version, reranker, args)
        self._engine = Engine(
            model,
            groups,
            manifest.documents,
            manifest.counts,
            reranking,
            args.limits.queue_seconds,
            partial(metrics.batched, "encode"),
            args.together,
        )
        metrics.version.set(version.number)

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
            note=self._note,
            answered=self._metrics.answered,
            admit=self._engine.admission.check,
        )

    def _note(self, given: Answers) -> None:
        """Keep count of what answers took."""
        self._metrics.searched(given.ms, [answer.documents for answer in given.answers], given.lost)
        self._metrics.read(sum(answer.calls or 0 for answer in given.answers))


def open_reranking(version: Version, handle: DeploymentHandle, args: ServeArgs) -> Reranking | None:
    """What re-ranks answers by the deployment behind a handle; None where the spec re-ranks nothing."""
    workdir, now = locate(version.workdir), version.now
    found = {kind: current.artifact(workdir, now, kind) for kind in KINDS if kind in now.artifacts}
    for artifact in found.values():
        artifact.verify()

    def unasked(*_: object) -> Floats:
        raise AssertionError("replaced by each request's own")

    with version.reading() as leaf_map:
        reranker = open_reranker(now.spec, found, leaf_map, unasked)
    client = DeploymentClient(RERANKER, handle, RERANKER_PING, RERANKER_PING)
    if reranker is None:
        return None
    return Reranking(reranker, HandleScores(client), args.reranker_seconds, args.limits.max_pool)


def describe(version: Version, manifest: Manifest, args: ServeArgs, groups: list[str], precision: str) -> IndexResponse:
    """The answer to `GET /v1/index`."""
    spec = version.now.spec
    rerank = spec.search.rerank
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
        rerank=rerank.type,
        budget=0 if isinstance(rerank, NoRerank) else rerank.budget,
        pool=None if isinstance(rerank, NoRerank) else rerank.pool,
        how=spec.search.how,
        mode=spec.search.mode,
        modes=list(spec.search.modes),
        beam=spec.search.leaves_visited(len(manifest.counts), sum(manifest.counts)),
        limits=args.limits.model_dump(),
    )
