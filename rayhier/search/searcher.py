"""Search over a published leaf map: encode -> route -> scan leaves -> re-rank -> best k."""

import contextlib
import weakref
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.dataset.ranking import Ranking, stacked
from rayhier.model.encoded import Encoded
from rayhier.search.answer import Answer, answers
from rayhier.search.index import open_leaves, open_levels, reading_leaf_map
from rayhier.search.level import LevelScan
from rayhier.search.model import Model
from rayhier.search.rerank import Reranker
from rayhier.search.reranking import KINDS, open_reranker
from rayhier.search.scan import LeafScan
from rayhier.spec import InputError
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
    ) -> None:
        """Search leaves; where the spec asks for that, `levels` instead, and re-rank what they find."""
        self.model, self.leaves, self.manifest, self.levels = model, leaves, manifest, levels
        self.reranker = reranker
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
        return cls(model, leaves, leaf_map.manifest, pins, levels, reranker)

    def search(
        self, queries: Sequence[str], k: int | None = None, beam: int | None = None, budget: int | None = None
    ) -> list[Answer]:
        """The best `k` documents of each query in the leaves that it visits, at most `beam`; defaults: the spec's.

        Re-ranked where the spec says so, by at most `budget` calls of the cross-encoder; 0: not re-ranked. InputError
        where a beam is given, but `search.how` is level, or a budget, but the spec re-ranks nothing.
        """
        return self._answers(*self.rank(queries, k, beam, budget))

    def rank(
        self, queries: Sequence[str], k: int | None = None, beam: int | None = None, budget: int | None = None
    ) -> tuple[Ranking, Ints]:
        """Rank as `search` does: the ranking, and the leaves [q, β] that each query visited."""
        search = self.model.spec.search
        if beam is not None and self.levels is not None:
            raise InputError(f"beam: got {beam}, but search.how is level, which visits no leaves; allowed: none")
        if budget is not None and self.reranker is None:
            raise InputError(f"budget: got {budget}, but search.rerank is none; allowed: none, or a spec that re-ranks")
        every = len(self.manifest.counts)
        visits = beam or search.leaves_visited(every, self.manifest.rows)
        encoded, k = self.model.encode(queries), k or search.k
        if self.reranker is None or budget == 0:
            return self._found(encoded, k, visits)
        if self.reranker.spec.pool == "all":
            visits = every
        pool, parts = max(k, self.reranker.pool(self.manifest.rows)), []
        for start in range(0, len(queries), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            own = encoded[part]
            found, leaves_QB = self._found(own, pool, visits, whole=True)
            parts.append((self.reranker(queries[part], own.numpy, found, k, budget), leaves_QB))
        return stacked([ranking for ranking, _ in parts]), np.concatenate([leaves_QB for _, leaves_QB in parts])

    def search_vectors(self, query_QM: Floats, k: int, beam: int) -> list[Answer]:
        """The best `k` documents of each trained query vector [q, m] in the leaves that it visits, at most `beam`.

        They are not re-ranked, as there is no text to be read. InputError where the router reads tokens.
        """
        return self.search_encoded(Encoded.of(query_QM), k, beam)

    def search_encoded(self, encoded: Encoded, k: int, beam: int) -> list[Answer]:
        """The best `k` documents of each encoded query in at most `beam` leaves, or by a level where the spec says."""
        return self._answers(*self._found(encoded, k, beam))

    def _found(self, encoded: Encoded, k: int, beam: int, *, whole: bool = False) -> tuple[Ranking, Ints]:
        """What the scan finds, before any re-ranking, and the leaves visited."""
        if self.levels is not None:
            query = self.levels.how.query(self.model.tree, encoded)
            listed = self.model.spec.search.shortlisted(k)
            return self.levels.scan(query, k, listed, whole=whole), np.zeros((len(encoded), 0), np.int64)
        leaves_QB, _ = self.model.route(encoded, beam)
        return self.leaves.scan(encoded.numpy, leaves_QB, k, whole=whole), leaves_QB

    def _answers(self, ranking: Ranking, leaves_QB: Ints) -> list[Answer]:
        return answers(ranking, leaves_QB, self.manifest.documents)
