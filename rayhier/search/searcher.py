"""Search a published index in this process."""

import contextlib
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.dataset.ranking import Ranking, padded, stacked
from rayhier.model.encoded import Encoded
from rayhier.scores.call_budget import run_sync
from rayhier.search.answer import Answer, answers
from rayhier.search.index import reading_leaf_map
from rayhier.search.model import Model
from rayhier.search.reader import Reader
from rayhier.search.request import Queries, Request, rules_of
from rayhier.search.rerank import Reranker
from rayhier.search.reranking import KINDS, open_reranker
from rayhier.search.retrieve import Found, Reply, Retriever, Score, Work
from rayhier.search.routes import find_routes
from rayhier.spec.filter import Filter
from rayhier.storage import current
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.storage.paths import Location, locate

AT_ONCE = 16
"""Queries that are re-ranked at once, which limits the pools that are in memory."""


class Searcher:
    """An open index that answers queries; vacuum keeps its version until it is closed or garbage-collected."""

    def __init__(
        self,
        model: Model,
        reader: Reader,
        manifest: Manifest,
        pins: contextlib.ExitStack | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        """Search what a reader has opened by a model; re-rank results where there is a re-ranker."""
        self.model, self.reader, self.manifest, self.reranker = model, reader, manifest, reranker
        self.rules = rules_of(model.spec, manifest)
        self.close = weakref.finalize(self, (pins or contextlib.ExitStack()).close)

    @classmethod
    def open(cls, workdir: Location | str) -> Self:
        """Open the index that `current.json` names; vacuum keeps its version until the searcher is closed.

        InputError where there is no index, or a file is not as published.
        """
        place = locate(workdir) if isinstance(workdir, str) else workdir
        now = current.read(place)
        with contextlib.ExitStack() as pins:
            leaf_map = pins.enter_context(reading_leaf_map(place, now))
            model = Model.of_workdir(place, now).load()
            scored = {kind: current.artifact(place, now, kind) for kind in KINDS if kind in now.artifacts}
            if now.spec.search.reranking is not None:
                for artifact in scored.values():
                    artifact.verify()
            return cls.over(model, leaf_map, scored, pins.pop_all())

    @classmethod
    def over(
        cls,
        model: Model,
        leaf_map: LeafMap,
        scored: Mapping[str, Artifact],
        pins: contextlib.ExitStack | None = None,
    ) -> Self:
        """Search a leaf map by an opened model, and re-rank with artifacts by kind, as the model's spec says."""
        reranker = open_reranker(model.spec, scored, leaf_map)
        reader = Reader.open(model.spec, leaf_map, model.level_similarity)
        return cls(model, reader, leaf_map.manifest, pins, reranker)

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
        match, or until it has visited `search.widest`. InputError where these do not go together (`search.request`).
        """
        return self.answer(self.rules.request(queries, k, beam, filter, mode, budget=budget))

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
        found = self.retrieve(self.rules.request(queries, k, beam, filter, mode, budget=budget))
        return found.ranking, found.leaves_QB

    def search_vectors(
        self,
        query_QM: Floats,
        k: int | None = None,
        beam: int | None = None,
        filter: Filter | Mapping[str, Any] | None = None,  # noqa: A002
    ) -> list[Answer]:
        """The best `k` documents of each trained query vector [q, m] in the leaves that it visits, at most `beam`.

        They are not re-ranked, as there is no text to be read. With a filter as in `search`. InputError where the
        router reads tokens.
        """
        return self.answer(self.rules.request(query_QM, k, beam, filter, name="vectors"))

    def answer(self, request: Request, encoded: Encoded | None = None) -> list[Answer]:
        """Answer a request, whose queries may have been encoded before."""
        found = self.retrieve(request, encoded)
        return answers(found.ranking, found.leaves_QB, self.manifest.documents, request.k)

    def retrieve(self, request: Request, encoded: Encoded | None = None) -> Found:
        """What a search finds for a request, whose queries may have been encoded before."""
        queries: Queries | Encoded = request.queries if encoded is None else encoded
        routes = find_routes(self.model, queries, request.beam)
        retriever = Retriever(self.rules, self.model.widen, self.reranker)
        size = len(routes.encoded) if request.pool is None else AT_ONCE
        parts = []
        for start in range(0, max(1, len(routes.encoded)), max(1, size)):
            rows = slice(start, start + size)
            retrieval = retriever(request.part(rows), routes.part(rows))
            parts.append(run_sync(retrieval, lambda work: [self._reply(piece) for piece in work]))
        return parts[0] if len(parts) == 1 else _stacked(parts)

    def _reply(self, work: Work) -> Reply:
        if not isinstance(work, Score):
            return Reply([self.reader.read(work)])
        if self.reranker is None:
            raise TypeError("search: got pairs to score, but no cross-encoder")
        return Reply([self.reranker.score(work.queries, work.documents)])


def _stacked(parts: Sequence[Found]) -> Found:
    """What several groups of queries found as one, in their order."""
    widest = max(part.leaves_QB.shape[1] for part in parts)
    leaves_QB = np.concatenate([padded(part.leaves_QB, widest, -1) for part in parts])
    return Found(stacked([part.ranking for part in parts]), leaves_QB, [names for part in parts for names in part.lost])
