"""An index opened to be served: the engine over its shard groups, and the HTTP application."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import torch
from fastapi import FastAPI

from rayhier.index.change import last_rows
from rayhier.index.find import find
from rayhier.index.nodes import NodeTable
from rayhier.index.stats import Stats
from rayhier.progress import say
from rayhier.search.live import Seen
from rayhier.search.request import rules_of
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.audit import Audit
from rayhier.serve.backend.engine import Engine
from rayhier.serve.backend.groups import AT_ONCE, Group, ShardRange, Shards
from rayhier.serve.backend.reranker import PairScores, Reranking, open_versions_reranker
from rayhier.serve.backend.version import Version, split
from rayhier.serve.backend.writer import Versions, Writer
from rayhier.serve.http.api import api
from rayhier.serve.http.models import Drift, IndexResponse
from rayhier.serve.http.tokens import Tokens
from rayhier.serve.metrics import Instruments, Metrics
from rayhier.spec import InputError, JobSpec
from rayhier.storage.change_log import Change, ChangeLog
from rayhier.storage.leaf_map import Manifest


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
        self._writer: Writer | None = None
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
        self._see_tail()

    def close(self) -> None:
        """Release the version, which vacuum may then remove."""
        self._pins.close()

    def writer(self, groups: Sequence[Versions]) -> Writer:
        """Make the Writer of the index, whose groups are in this process; InputError where another server writes."""
        args, leaf_map = self._args, self._leaf_map
        seconds = args.limits.seconds
        self._writer = Writer(
            self._version, leaf_map, self._model, self._engine, groups, args.writes, self._metrics, seconds=seconds
        )
        self._pins.callback(self._writer.close)
        return self._writer

    def _see_tail(self) -> None:
        """Let requests see the log's tail that a Writer left."""
        leaf_map, changes = self._leaf_map, list[Change]()
        manifest = leaf_map.manifest
        try:
            for made in ChangeLog(leaf_map.root).after(manifest.log):
                changes.append(made)
        except InputError as error:
            say(f"warning: {error}; what came before it is served")
        if not changes:
            return
        if self._version.now.spec.search.how == "level":
            raise InputError(
                f"{leaf_map.root}: its change log has a tail, which search.how level does not read; allowed: rayhier "
                "index fold WORKDIR first"
            )
        rows = last_rows(changes)
        written = 0 if rows is None else int(pc.sum(pc.equal(rows["rank"], 0)).as_py() or 0)
        stored = find(leaf_map, pa.concat_arrays([made.ids for made in changes]).unique())
        hidden = int(pc.sum(pc.equal(stored["rank"], 0)).as_py() or 0)
        engine, seen = self._engine, Seen(manifest.model, self._version.number, changes[-1].number)
        documents = engine.view.documents + written - hidden
        engine.view = replace(engine.view, documents=documents, seen=seen, has_tail=True)

    @cached_property
    def _nodes(self) -> NodeTable:
        """The nodes of the tree, read when a request first needs them."""
        return NodeTable.of(self._leaf_map)

    def app(self) -> FastAPI:
        """Make the HTTP application."""
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
            writer=self._writer,
            write_limits=args.writes,
            recall=lambda: self._audit.recall,
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
