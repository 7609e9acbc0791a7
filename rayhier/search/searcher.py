"""Search over a published leaf map: encode -> route -> scan leaves -> re-rank -> best k."""

import contextlib
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.dataset.ranking import Ranking, padded, stacked
from rayhier.model.encoded import Encoded
from rayhier.search.answer import Answer, answers
from rayhier.search.hybrid import WordScan, fused
from rayhier.search.index import open_leaves, open_levels, reading_leaf_map
from rayhier.search.level import LevelScan
from rayhier.search.model import Model
from rayhier.search.rerank import Reranker
from rayhier.search.reranking import KINDS, open_reranker
from rayhier.search.scan import LeafScan
from rayhier.search.widen import Goal, Widening
from rayhier.spec import InputError
from rayhier.spec.filter import Filter, parse
from rayhier.spec.search import Mode
from rayhier.storage import current
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.storage.paths import Location

AT_ONCE = 16
"""Queries that are re-ranked at once, which limits the pools that are in memory."""


class Searcher:
    """An open index that answers queries; vacuum keeps its version until it is closed or garbage-collected."""

    def __init__(
        self,
        model: Model,
        leaves: LeafScan,
        manifest: Manifest,
        pins: contextlib.ExitStack | None = None,
        levels: LevelScan | None = None,
        reranker: Reranker | None = None,
        words: WordScan | None = None,
    ) -> None:
        """Search leaves; where the spec asks for that, `levels` instead, words beside them, and re-rank the results."""
        self.model, self.leaves, self.manifest, self.levels = model, leaves, manifest, levels
        self.reranker, self.words = reranker, words
        self.close = weakref.finalize(self, (pins or contextlib.ExitStack()).close)

    @classmethod
    def open(cls, workdir: Location) -> Self:
        """Open the index that `current.json` names; vacuum keeps its version until the searcher is closed.

        InputError where there is no index, or a file is not as published.
        """
        now = current.read(workdir)
        with contextlib.ExitStack() as pins:
            leaf_map = pins.enter_context(reading_leaf_map(workdir, now))
            model = Model.of_workdir(workdir, now).load()
            found = {kind: current.artifact(workdir, now, kind) for kind in KINDS if kind in now.artifacts}
            if now.spec.search.rerank.type != "none":
                for artifact in found.values():
                    artifact.verify()
            return cls.over(model, leaf_map, found, pins.pop_all())

    @classmethod
    def over(
        cls,
        model: Model,
        leaf_map: LeafMap,
        found: Mapping[str, Artifact],
        pins: contextlib.ExitStack | None = None,
    ) -> Self:
        """Search a leaf map by an opened model, and re-rank with artifacts by kind, as the model's spec says."""
        leaves = open_leaves(model.spec, leaf_map)
        levels = open_levels(model, leaf_map, leaves)
        reranker = open_reranker(model.spec, found, leaf_map)
        words = WordScan(leaves) if model.spec.search.words else None
        return cls(model, leaves, leaf_map.manifest, pins, levels, reranker, words)

    def search(
        self,
        queries: Sequence[str],
        k: int | None = None,
        beam: int | None = None,
        budget: int | None = None,
        filter: Filter | Mapping[str, Any] | None = None,  # noqa: A002 the name in every interface
        mode: str | None = None,
    ) -> list[Answer]:
        """The best `k` documents of each query in the leaves that it visits, at most `beam`; defaults: the spec's.

        By `mode`, what orders them: `dense` vectors, `bm25` over all documents, `hybrid`: both.
        Re-ranked where the spec says so, by at most `budget` calls of the cross-encoder; 0: not re-ranked. With a
        filter, parsed or as JSON, of the documents that it lets through; a query then visits more leaves until enough
        match, or until it has visited `search.widest`. InputError where the filter is none over the corpus's declared
        fields, a beam is given, but no leaves are visited, a budget, but the spec re-ranks nothing, or a mode that the
        spec has not.
        """
        return self._answers(*self.rank(queries, k, beam, budget, filter, mode), k or self.model.spec.search.k)

    def rank(
        self,
        queries: Sequence[str],
        k: int | None = None,
        beam: int | None = None,
        budget: int | None = None,
        filter: Filter | Mapping[str, Any] | None = None,  # noqa: A002
        mode: str | None = None,
    ) -> tuple[Ranking, Ints]:
        """Rank as `search` does: the ranking, and the leaves [q, β] that each query visited."""
        search = self.model.spec.search
        try:
            by = search.mode_of(mode)
        except ValueError as error:
            raise InputError(f"mode: {error}") from None
        if beam is not None and by == "bm25":
            raise InputError(f"beam: got {beam}, but mode is bm25, which visits no leaves; allowed: none")
        if beam is not None and self.levels is not None:
            raise InputError(f"beam: got {beam}, but search.how is level, which visits no leaves; allowed: none")
        if budget is not None and self.reranker is None:
            raise InputError(f"budget: got {budget}, but search.rerank is none; allowed: none, or a spec that re-ranks")
        where, every = self._where(filter), len(self.manifest.counts)
        visits = beam or search.leaves_visited(every, self.manifest.rows)
        encoded, k = self.model.encode(queries), k or search.k
        if self.reranker is None or budget == 0:
            return self._by(by, queries, encoded, k, visits, where)
        if self.reranker.spec.pool == "all":
            if beam is not None:
                raise InputError(f"beam: got {beam}, but search.rerank.pool is all leaves; allowed: none")
            visits = every
        pool, parts = max(k, self.reranker.spec.pooled(self.manifest.rows)), []
        for start in range(0, len(queries), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            own = encoded[part]
            found, leaves_QB = self._by(by, queries[part], own, k, visits, where, pool)
            parts.append((self.reranker(queries[part], own.numpy, found, k, budget), leaves_QB))
        widest = max(leaves_QB.shape[1] for _, leaves_QB in parts)
        every_QB = np.concatenate([padded(leaves_QB, widest, -1) for _, leaves_QB in parts])
        return stacked([ranking for ranking, _ in parts]), every_QB

    def search_vectors(
        self,
        query_QM: Floats,
        k: int,
        beam: int,
        filter: Filter | Mapping[str, Any] | None = None,  # noqa: A002
    ) -> list[Answer]:
        """The best `k` documents of each trained query vector [q, m] in the leaves that it visits, at most `beam`.

        They are not re-ranked, as there is no text to be read. With a filter as in `search`. InputError where the
        router reads tokens.
        """
        return self.search_encoded(Encoded.of(query_QM), k, beam, self._where(filter))

    def search_encoded(self, encoded: Encoded, k: int, beam: int, where: Filter | None = None) -> list[Answer]:
        """The best `k` documents of each encoded query in at most `beam` leaves, or by a level where the spec says.

        With a filter as in `search`.
        """
        return self._answers(*self._found(encoded, k, beam, where), k)

    def _by(
        self,
        mode: Mode,
        texts: Sequence[str],
        encoded: Encoded,
        k: int,
        beam: int,
        where: Filter | None,
        pool: int | None = None,
    ) -> tuple[Ranking, Ints]:
        """What a mode finds, before any re-ranking, and the leaves visited."""
        fetch, with_vectors, fusion = pool or k, pool is not None, self.model.spec.search.fusion
        if mode == "dense" or self.words is None:  # without words, other modes were refused
            return self._found(encoded, k, beam, where, fetch, with_vectors=with_vectors)
        depth = fusion.listed(k) if mode == "hybrid" else fetch
        lexical = self.words.scan(texts, encoded.numpy, depth, where, with_vectors=with_vectors)
        if mode == "bm25":
            return lexical.ranking, np.zeros((len(texts), 0), np.int64)
        dense, leaves_QB = self._found(encoded, k, beam, where, max(fetch, depth), with_vectors=with_vectors)
        return fused(dense, [lexical], fetch, fusion), leaves_QB

    def _found(
        self,
        encoded: Encoded,
        k: int,
        beam: int,
        where: Filter | None,
        fetch: int | None = None,
        *,
        with_vectors: bool = False,
    ) -> tuple[Ranking, Ints]:
        """What the scan finds for `k` results, and the leaves visited.

        The best `k` of these leaves, or the best `fetch`; `with_vectors`: with their own `doc_id` and their `vector`.
        """
        fetch, search = fetch or k, self.model.spec.search
        if self.levels is not None:
            query = self.levels.similarity.query(self.model.tree, encoded)
            ranking = self.levels.scan(query, fetch, search.shortlisted(fetch), where, with_vectors=with_vectors)
            return ranking, np.zeros((len(encoded), 0), np.int64)
        leaves = self.model.router.n_leaves
        most = beam if where is None else search.leaves_widened(leaves)
        widening = Widening(self.model.route(encoded, beam)[0], Goal.of(k, beam, leaves, self.manifest.rows, most))
        while True:
            asked = encoded[widening.asked_A]
            widening.add_results(
                self.leaves.scan(asked.numpy, widening.leaves, fetch, where, with_vectors=with_vectors)
            )
            if widening.done:
                return widening.ranking, widening.leaves_QB
            widening.visit(self.model.widen(encoded[widening.asked_A], widening.wider))

    def _answers(self, ranking: Ranking, leaves_QB: Ints, k: int) -> list[Answer]:
        return answers(ranking, leaves_QB, self.manifest.documents, k)

    def _where(self, given: Filter | Mapping[str, Any] | None) -> Filter | None:
        return parse(given, self.model.spec.corpus.field_types) if isinstance(given, Mapping) else given
