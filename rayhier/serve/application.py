"""An index opened to be served: the engine over its shard groups, and the HTTP application."""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import cached_property, partial

import torch
from fastapi import FastAPI

from rayhier.index.nodes import NodeTable
from rayhier.index.stats import Stats
from rayhier.progress import say
from rayhier.search.request import rules_of
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.audit import Audit
from rayhier.serve.backend.engine import Engine
from rayhier.serve.backend.follower import Follower
from rayhier.serve.backend.groups import AT_ONCE, Group, ShardRange, Shards
from rayhier.serve.backend.reranker import PairScores, Reranking, open_versions_reranker
from rayhier.serve.backend.version import Version, split
from rayhier.serve.backend.writer import Writer
from rayhier.serve.http.api import Follows, Writes, api
from rayhier.serve.http.models import Drift, IndexResponse
from rayhier.serve.http.tokens import Tokens
from rayhier.serve.metrics import Instruments, Metrics
from rayhier.spec import InputError, JobSpec
from rayhier.storage.leaf_map import Manifest, newest_first


def check_index(args: ServeArgs) -> tuple[Version, Manifest, list[range]]:
    """Return the version of the index to serve, its manifest, and the range of leaves of each shard group.

    InputError where the index cannot be served, or a limit is wrong.
    """
    version, manifest = Version.newest(args.workdir)
    groups = split(manifest.counts, args.shard_groups)
    replace(rules_of(version.now.spec, manifest), groups=len(groups), limits=args.limits).check_defaults()
    for name, seconds in (("shard_seconds", args.shard_seconds), ("reranker_seconds", args.reranker_seconds)):
        if seconds >= args.limits.seconds:
            less = f"less than limits.seconds, {args.limits.seconds:g}, so that an answer without it is in time"
            raise InputError(f"{name}: got {seconds:g}; allowed: {less}")
    return version, manifest, groups


class ServedIndex:
    """A version of an index, opened to be served; vacuum keeps it until `close`."""

    def __init__(
        self,
        args: ServeArgs,
        version: Version,
        shards: Sequence[tuple[ShardRange, Shards]],
        scores: PairScores | None,
        instruments: Instruments,
    ) -> None:
        """Open the model, and take the shard groups, and the cross-encoder where the spec has one.

        InputError where a file is not as published, or the token's file holds none.
        """
        self._args, self._pins, self._version = args, contextlib.ExitStack(), version
        torch.set_num_threads(args.encoder_threads)
        self._tokens, self._metrics = Tokens(args.token_file, args.write_token_file), Metrics(instruments)
        self._leaf_map = self._pins.enter_context(version.reading())
        manifest = self._leaf_map.manifest
        self._model = model = version.model(args.encoder_precision).load()
        _ = model.search_router
        at_once = AT_ONCE if args.together > 1 else args.limits.max_requests
        groups = [Group(part, opened, args.together, at_once, self._metrics) for part, opened in shards]
        self._rules = replace(rules_of(version.now.spec, manifest), groups=len(groups), limits=args.limits)
        self._engine = Engine(
            model,
            groups,
            self._rules,
            manifest.documents,
            manifest.counts,
            None if scores is None else open_versions_reranker(version),
            None if scores is None else Reranking(scores, args.reranker_seconds),
            self._metrics,
            args.limits.queue_seconds,
            args.together,
        )
        self._audit = Audit(self._engine, args.recall, self._metrics)
        precision = str(model.text_encoder.dtype).removeprefix("torch.")
        self._index = describe(version, manifest, args, [group.name for group in groups], precision, model.promised)
        self._metrics.serves(version.number)
        self.follower = Follower(version, self._leaf_map, self._engine, [opened for _, opened in shards], self._metrics)
        """What requests see of the index; nothing before `see_tail`, or before the Writer begins."""
        self._pins.callback(self.follower.close)

    def close(self) -> None:
        """Release the version, which vacuum may then remove."""
        self._pins.close()

    def writer(self) -> Writer:
        """Make the Writer of the index; InputError where another server writes."""
        writer = Writer(self.follower, self._model, self._args.writes, self._metrics)
        self._pins.callback(writer.close)
        return writer

    def see_tail(self) -> None:
        """Let requests see the log's tail that a Writer left; what comes after a damaged object is not served."""
        self.follower.begin()
        if self.follower.damage is not None:
            say(f"warning: {self.follower.damage}; what came before it is served")

    @cached_property
    def _nodes(self) -> NodeTable:
        """The nodes of the tree, read when a request first needs them."""
        return NodeTable.of(self._leaf_map)

    def app(
        self,
        writer: Writes | None = None,
        following: Follows | None = None,
        lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
    ) -> FastAPI:
        """Make the HTTP application; without a `writer` no request may write.

        Requests begin once `following` says so; `lifespan` runs beside the application.
        """
        args = self._args
        return api(
            self._engine,
            self._index,
            self._rules,
            args.limits,
            lambda: self._nodes,
            self._tokens,
            origins=args.cors_origins,
            log_queries=args.log_queries,
            metrics=self._metrics,
            writer=writer,
            write_limits=args.writes,
            recall=lambda: self._audit.recall,
            versions=partial(newest_first, self._leaf_map.root),
            following=following,
            lifespan=lifespan,
        )


def describe(
    version: Version,
    manifest: Manifest,
    args: ServeArgs,
    groups: list[str],
    precision: str,
    recall: float | None = None,
) -> IndexResponse:
    """Make the answer to `GET /v1/index`; `groups` are the names of shard groups, `precision` that of encoding.

    `recall` is the promised share of what an exact search finds; None where nothing is promised.
    """
    spec, reranking, rules = version.now.spec, version.now.spec.search.reranking, rules_of(version.now.spec, manifest)
    return IndexResponse(
        name=spec.name,
        version=version.number,
        log=manifest.log,
        index=version.now.artifacts["index"],
        model=manifest.model,
        router=spec.router.type,
        documents=manifest.documents,
        leaves=manifest.leaves,
        leaves_per_document=manifest.leaves_per_document,
        shards=len(manifest.shards),
        groups=groups,
        dimension=manifest.dimension,
        similarity=spec.encoder.similarity,
        precision=precision,
        fields=dict(spec.corpus.field_types),
        k=spec.search.k,
        rerank=spec.search.rerank.type,
        budget=0 if reranking is None else reranking.budget,
        pool=None if reranking is None else reranking.pool,
        how=spec.search.resolved(manifest.size),
        mode=rules.usual_mode,
        modes=list(rules.modes),
        weight=spec.search.hybrid.chosen if rules.words and spec.search.hybrid.fuse == "sum" else None,
        beam=spec.search.most_visited(manifest.leaves, manifest.rows),
        recall=recall,
        drift=drift(manifest, spec),
        limits=args.limits.model_dump(),
    )


def drift(manifest: Manifest, spec: JobSpec) -> Drift:
    """Return how far a version has drifted."""
    stats = Stats.of(manifest, spec)
    return Drift(
        imbalance=stats.imbalance,
        void=stats.void,
        added=stats.added,
        log_prob=stats.log_prob,
        added_log_prob=stats.added_log_prob,
        advice=stats.advice(),
    )
