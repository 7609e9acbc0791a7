"""An index that is opened to be served: its engine, its Writer, its metrics and the description of the index."""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, fields, replace

from rayhier.index.nodes import NodeTable
from rayhier.index.stats import Stats, recall_advice
from rayhier.progress import say
from rayhier.search.request.request import SearchLimits, rules_of
from rayhier.search.routing.chosen_beam import calibration_of
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.audit import Audit
from rayhier.serve.backend.cross_encoder import PairScores, Reranking
from rayhier.serve.backend.engine import AT_ONCE, Engine, Group, Shards, View
from rayhier.serve.backend.follower import Follower
from rayhier.serve.backend.version import ShardRange, Version, split
from rayhier.serve.backend.writer import Writer
from rayhier.serve.errors import without_folders
from rayhier.serve.http.bodies import Drift, IndexResponse, RecallServed
from rayhier.serve.http.tokens import Tokens
from rayhier.serve.metrics import Instruments, Metrics
from rayhier.spec import InputError
from rayhier.spec.corpus import passages_of
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import LeafMap, Manifest, newest_first
from rayhier.storage.paths import locate
from rayhier.threads import set_threads


def check_index(args: ServeArgs, now: Current | None = None) -> tuple[Version, Manifest, list[ShardRange]]:
    """Check the settings with the index that `now` names (None: current.json). InputError if one does not fit."""
    version, manifest = Version.newest(args.workdir, now)
    groups = split(manifest.counts, args.shard_groups)
    rules = rules_of(version.now.spec, manifest, calibration_of(locate(args.workdir), version.now))
    replace(rules, groups=len(groups), limits=_limits(args)).check_defaults()
    for name, seconds in (("shard_seconds", args.shard_seconds), ("reranker_seconds", args.reranker_seconds)):
        if seconds >= args.limits.seconds:
            less = f"less than limits.seconds, {args.limits.seconds:g}, so that an answer without it is in time"
            raise InputError(f"{name}: got {seconds:g}; allowed: {less}")
    return version, manifest, groups


class Application:
    """A served index with its engine. `show` replaces the index while requests go on."""

    def __init__(
        self,
        args: ServeArgs,
        version: Version,
        parts: Sequence[ShardRange],
        shards: Sequence[Shards],
        scores: PairScores | None,
        instruments: Instruments,
    ) -> None:
        """Open a version's model. InputError if a published file has changed, or a token file is empty."""
        self.args, self.metrics = args, Metrics(instruments)
        self.tokens = Tokens(args.token_file, args.write_token_file)
        self.follower = self.open(version, parts, shards, scores)
        """Keeps the engine at the newest state. Call `see_tail` or the Writer's `begin` before the first request."""
        self.engine = Engine(self.follower.view, self.metrics, args.limits.queue_seconds, args.together)
        self.follower.show_to(self.engine)
        self._audit = Audit(self.engine, args.recall, self.metrics)
        self._read: tuple[LeafMap, NodeTable] | None = None
        self.refused: str | None = None
        """Why the model or index that current.json names is not served. None if both are served."""
        self.metrics.serves(version.number)

    def close(self) -> None:
        self.follower.close()

    def open(
        self, version: Version, parts: Sequence[ShardRange], shards: Sequence[Shards], scores: PairScores | None
    ) -> Follower:
        """Open a version, which requests see after `show`. InputError if a published file has changed."""
        args = self.args
        set_threads(args.encoder_threads)
        at_once = AT_ONCE if args.together > 1 else args.limits.max_requests
        groups = [
            Group(part, opened, args.together, at_once, self.metrics)
            for part, opened in zip(parts, shards, strict=True)
        ]
        reranking = None if scores is None else Reranking(scores, args.reranker_seconds)
        with contextlib.ExitStack() as pins:
            leaf_map = pins.enter_context(version.reading())
            model = version.model().load()
            view = View.of(version, leaf_map, model, groups, _limits(args), reranking)
            return Follower(view, shards, self.metrics, pins.pop_all())

    def writer(self, follower: Follower | None = None) -> Writer:
        """Make the Writer of `follower`'s index. The caller closes the Writer. InputError if another server writes."""
        return Writer(follower or self.follower, self.args.writes, self.metrics)

    def see_tail(self, follower: Follower | None = None) -> None:
        """Let requests see the changes in the log that are not folded yet, up to the first damaged change."""
        follower = follower or self.follower
        follower.begin()
        if follower.damage is not None:
            say(f"warning: {follower.damage}. The changes before it are served")

    def show(self, follower: Follower) -> None:
        """Let requests that begin from now on see another index, or the same index with another spec."""
        if follower is not self.follower:
            self.follower.leave()
            follower.show_to(self.engine)
        self.follower, self.refused = follower, None
        self.metrics.serves(follower.version.number)

    def index(self) -> IndexResponse:
        """Return the body of `GET /v1/index`: a description of the index that requests see now."""
        view = self.engine.view
        version, manifest, model, rules = view.version, view.leaf_map.manifest, view.model, view.rules
        chosen, spec, reranking = model.chosen, version.now.spec, version.now.spec.search.reranking
        stats, served, refused = Stats.of(manifest, spec), self._audit.recall, self.refused or self.follower.refused
        recall = None if chosen is None else chosen.recall
        return IndexResponse(
            name=spec.name,
            version=version.number,
            log=view.seen.log,
            index=version.now.artifacts["index"],
            model=manifest.model,
            refused=None if refused is None else without_folders(refused),
            router=spec.router.type,
            documents=view.documents,
            unit="passages" if passages_of(spec.corpus) else "documents",
            leaves=manifest.leaves,
            leaves_per_document=manifest.leaves_per_document,
            shards=len(manifest.shards),
            groups=[group.name for group in view.groups],
            dimension=manifest.dimension,
            similarity=spec.encoder.similarity,
            precision=model.query_encoder.precision,
            fields=dict(spec.corpus.field_types),
            k=spec.search.k,
            rerank=spec.search.rerank.type,
            budget=0 if reranking is None else reranking.budget,
            pool=None if reranking is None else reranking.pool,
            how=spec.search.how,
            mode=rules.usual_mode,
            modes=list(rules.modes),
            weight=spec.search.hybrid.chosen if rules.words and spec.search.hybrid.fuse == "sum" else None,
            beam=spec.search.leaves_visited(manifest.leaves, manifest.rows) if chosen is None else chosen.beam,
            recall=recall,
            drift=Drift(
                imbalance=stats.imbalance,
                void=stats.void,
                added=stats.added,
                log_prob=stats.log_prob,
                added_log_prob=stats.added_log_prob,
                advice=[*stats.advice(), *([] if served is None else recall_advice(served, recall))],
            ),
            recall_served=None if served is None else RecallServed(**asdict(served)),
            limits=self.args.limits.model_dump(),
        )

    def versions(self, before: int | None, count: int) -> list[Manifest]:
        """Read the manifests of `count` versions before a number (None: from the newest), the newest first."""
        return newest_first(self.follower.root, before, count)

    def nodes(self) -> tuple[NodeTable, int]:
        """Return the nodes of the tree, which are read at first use, and the number of their version."""
        leaf_map = self.engine.view.leaf_map
        if self._read is None or self._read[0] is not leaf_map:
            self._read = leaf_map, NodeTable.of(leaf_map)
        return self._read[1], leaf_map.manifest.version


def _limits(args: ServeArgs) -> SearchLimits:
    return SearchLimits(**{field.name: getattr(args.limits, field.name) for field in fields(SearchLimits)})
