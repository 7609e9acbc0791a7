"""An index opened to be served: the engine over its shard groups, and the HTTP application."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
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
from rayhier.serve.backend.engine import Engine, View
from rayhier.serve.backend.groups import AT_ONCE, Group, ShardRange, Shards
from rayhier.serve.backend.reranker import PairScores, Reranking, open_versions_reranker
from rayhier.serve.backend.version import Version, split
from rayhier.serve.backend.writer import Versions, Writer, Writers
from rayhier.serve.http.api import api
from rayhier.serve.http.models import Drift, IndexResponse
from rayhier.serve.http.tokens import Tokens
from rayhier.serve.metrics import Instruments, Metrics
from rayhier.spec import InputError
from rayhier.storage.change_log import Change, ChangeLog
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import LeafMap, Manifest


def check_index(args: ServeArgs, now: Current | None = None) -> tuple[Version, Manifest, list[range]]:
    """Return the version of the index to serve, its manifest, and the range of leaves of each shard group.

    The index is that of `now`; None: that which current.json names. InputError where the index cannot be served, or a
    limit is wrong.
    """
    version, manifest = Version.newest(args.workdir, now)
    groups = split(manifest.counts, args.shard_groups)
    replace(rules_of(version.now.spec, manifest), groups=len(groups), limits=args.limits).check_defaults()
    for name, seconds in (("shard_seconds", args.shard_seconds), ("reranker_seconds", args.reranker_seconds)):
        if seconds >= args.limits.seconds:
            less = f"less than limits.seconds, {args.limits.seconds:g}, so that an answer without it is in time"
            raise InputError(f"{name}: got {seconds:g}; allowed: {less}")
    return version, manifest, groups


class OpenedIndex:
    """A version of an index, opened with its model and its shard groups; vacuum keeps it until `close`."""

    def __init__(
        self,
        args: ServeArgs,
        version: Version,
        shards: Sequence[tuple[ShardRange, Shards]],
        scores: PairScores | None,
        metrics: Metrics,
    ) -> None:
        """Open the model, and take the shard groups, and the cross-encoder where the spec has one.

        InputError where a file is not as published.
        """
        self._pins, self.version = contextlib.ExitStack(), version
        with contextlib.ExitStack() as pins:
            leaf_map = pins.enter_context(version.reading())
            manifest = leaf_map.manifest
            model = version.model(args.encoder_precision).load()
            _ = model.search_router, model.promised
            at_once = AT_ONCE if args.together > 1 else args.limits.max_requests
            groups = [Group(part, opened, args.together, at_once, metrics) for part, opened in shards]
            view = View(
                model,
                groups,
                replace(rules_of(version.now.spec, manifest), groups=len(groups), limits=args.limits),
                manifest.documents,
                np.array(manifest.counts, dtype=np.int64),
                None if scores is None else open_versions_reranker(version),
                None if scores is None else Reranking(scores, args.reranker_seconds),
                Seen(manifest.model, version.number, manifest.log),
                version=version,
                leaf_map=leaf_map,
            )
            self.view = _with_tail(view, version, leaf_map)
            """The index as the first requests see it: with the log's tail that a Writer left."""
            self._pins = pins.pop_all()

    def close(self) -> None:
        """Release the version, which vacuum may then remove."""
        self._pins.close()


def _with_tail(view: View, version: Version, leaf_map: LeafMap) -> View:
    """Return a view that sees the log's tail too; InputError where searches cannot read one."""
    changes = list[Change]()
    try:
        for made in ChangeLog(leaf_map.root).after(leaf_map.manifest.log):
            changes.append(made)
    except InputError as error:
        say(f"warning: {error}; what came before it is served")
    if not changes:
        return view
    if version.now.spec.search.how == "level":
        raise InputError(
            f"{leaf_map.root}: its change log has a tail, which search.how level does not read; allowed: rayhier "
            "index fold WORKDIR first"
        )
    rows = last_rows(changes)
    written = 0 if rows is None else int(pc.sum(pc.equal(rows["rank"], 0)).as_py() or 0)
    stored = find(leaf_map, pa.concat_arrays([made.ids for made in changes]).unique())
    hidden = int(pc.sum(pc.equal(stored["rank"], 0)).as_py() or 0)
    seen = Seen(leaf_map.manifest.model, version.number, changes[-1].number)
    return replace(view, documents=view.documents + written - hidden, seen=seen, has_tail=True)


class ServedIndex:
    """An opened index that is served: the engine, and the HTTP application; another index may take its place."""

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
        torch.set_num_threads(args.encoder_threads)
        self._args, self.metrics = args, Metrics(instruments)
        self._tokens = Tokens(args.token_file, args.write_token_file)
        self.opened = OpenedIndex(args, version, shards, scores, self.metrics)
        self._engine = Engine(self.opened.view, self.metrics, args.limits.queue_seconds, args.together)
        self._writers: Writers | None = None
        self._read: tuple[LeafMap, NodeTable] | None = None
        self.refused: str | None = None
        """Why another model or index, which current.json names, is not served; None: it names this one."""
        self.metrics.serves(version.number)

    def close(self) -> None:
        """Release the version, which vacuum may then remove."""
        if self._writers is not None:
            self._writers.now.close()
        self.opened.close()

    def begin_writing(self, groups: Sequence[Versions]) -> Writers:
        """Make the Writer of the index, whose groups are in this process; InputError where another server writes."""
        self._writers = Writers(self.writer(self.opened, groups, self._engine))
        return self._writers

    def writer(self, opened: OpenedIndex, groups: Sequence[Versions], engine: Engine | None = None) -> Writer:
        """Make a Writer of an opened index; without an `engine`, requests do not see that index until it is `shown`.

        InputError where another server writes.
        """
        view, args = opened.view, self._args
        if view.leaf_map is None:
            raise AssertionError("opened with its files")
        return Writer(
            opened.version,
            view.leaf_map,
            view.model,
            engine or Engine(view),
            groups,
            args.writes,
            self.metrics,
            seconds=args.limits.seconds,
        )

    def show(self, opened: OpenedIndex, writer: Writer | None = None) -> OpenedIndex:
        """Let requests that begin from now on see another index, and changes go to its Writer; returns the one before.

        The one before is to be closed once all requests that began with it have ended.
        """
        if writer is None:
            self._engine.view = opened.view
        else:
            writer.show(self._engine)
            if self._writers is not None:
                self._writers.now = writer
        before, self.opened, self.refused = self.opened, opened, None
        self.metrics.serves(opened.version.number)
        return before

    def app(self) -> FastAPI:
        """Make the HTTP application."""
        args = self._args
        return api(
            self._engine,
            self._describe,
            self._engine.rules,
            args.limits,
            self._nodes,
            self._tokens,
            origins=args.cors_origins,
            log_queries=args.log_queries,
            metrics=self.metrics,
            writer=self._writers,
            write_limits=args.writes,
        )

    def _describe(self) -> IndexResponse:
        """Describe the index that requests see which begin now."""
        return describe(self._engine.view, self._args, self.refused)

    def _nodes(self) -> tuple[NodeTable, int]:
        """The nodes of the tree, read when a request first needs those of a version, and the version's number."""
        leaf_map = self._engine.view.leaf_map
        if leaf_map is None:
            raise AssertionError("opened with its files")
        if self._read is None or self._read[0] is not leaf_map:
            self._read = leaf_map, NodeTable.of(leaf_map)
        return self._read[1], leaf_map.manifest.version


def describe(view: View, args: ServeArgs, refused: str | None = None) -> IndexResponse:
    """Make the answer to `GET /v1/index`; `refused` says why another index, which current.json names, is not served."""
    if view.version is None or view.leaf_map is None:
        raise AssertionError("opened with its files")
    version, manifest, model = view.version, view.leaf_map.manifest, view.model
    spec, reranking, rules = version.now.spec, version.now.spec.search.reranking, rules_of(version.now.spec, manifest)
    return IndexResponse(
        name=spec.name,
        version=version.number,
        log=manifest.log if view.seen is None else view.seen.log,
        index=version.now.artifacts["index"],
        model=manifest.model,
        refused=refused,
        router=spec.router.type,
        documents=view.documents,
        carried=manifest.carried,
        leaves=len(manifest.counts),
        leaves_per_document=manifest.leaves_per_document,
        shards=len(manifest.shards),
        groups=[group.name for group in view.groups],
        dimension=manifest.dimension,
        similarity=spec.encoder.similarity,
        precision=str(model.text_encoder.dtype).removeprefix("torch."),
        fields=dict(spec.corpus.field_types),
        k=spec.search.k,
        rerank=spec.search.rerank.type,
        budget=0 if reranking is None else reranking.budget,
        pool=None if reranking is None else reranking.pool,
        how=spec.search.resolved(manifest.size),
        mode=rules.usual_mode,
        modes=list(rules.modes),
        weight=spec.search.hybrid.chosen if rules.words and spec.search.hybrid.fuse == "sum" else None,
        beam=spec.search.most_visited(len(manifest.counts), sum(manifest.counts)),
        recall=model.promised,
        drift=drift(manifest),
        limits=args.limits.model_dump(),
    )


def drift(manifest: Manifest) -> Drift:
    """Return how far a version has drifted."""
    stats = Stats.of(manifest)
    return Drift(
        imbalance=stats.imbalance,
        void=stats.void,
        added=stats.added,
        log_prob=stats.log_prob,
        added_log_prob=stats.added_log_prob,
        advice=stats.advice(),
    )
