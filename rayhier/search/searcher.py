"""Search over a published leaf map: encode -> route -> scan leaves -> best k."""

import contextlib
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from rayhier.arrays import Floats
from rayhier.model.encoded import Encoded
from rayhier.search.answer import Answer, answers
from rayhier.search.index import open_leaves, open_levels, reading_leaf_map
from rayhier.search.level import LevelScan
from rayhier.search.model import Model
from rayhier.search.scan import LeafScan
from rayhier.search.widen import Goal, Widening
from rayhier.spec import InputError
from rayhier.spec.filter import Filter, parse
from rayhier.storage import current
from rayhier.storage.leaf_map import Manifest
from rayhier.storage.paths import Location


class Searcher:
    """An open index that answers queries; vacuum keeps its version until it is closed or garbage-collected."""

    def __init__(
        self,
        model: Model,
        leaves: LeafScan,
        manifest: Manifest,
        pins: contextlib.ExitStack | None = None,
        levels: LevelScan | None = None,
    ) -> None:
        """Search leaves; where the spec asks for that, `levels` instead."""
        self.model, self.leaves, self.manifest, self.levels = model, leaves, manifest, levels
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
            leaves = open_leaves(now.spec, leaf_map)
            levels = open_levels(model, leaf_map, leaves)
            return cls(model, leaves, leaf_map.manifest, pins.pop_all(), levels)

    def search(
        self,
        queries: Sequence[str],
        k: int | None = None,
        beam: int | None = None,
        filter: Filter | Mapping[str, Any] | None = None,  # noqa: A002 the name in every interface
    ) -> list[Answer]:
        """The best `k` documents of each query in the leaves that it visits, at most `beam`; defaults: the spec's.

        With a filter, parsed or as JSON, of those that it lets through; a query then visits more leaves until enough
        match, or until it has visited `search.widest`. InputError where the filter is none over the corpus's declared
        fields, or a beam is given, but `search.how` is level.
        """
        search = self.model.spec.search
        if beam is not None and self.levels is not None:
            raise InputError(f"beam: got {beam}, but search.how is level, which visits no leaves; allowed: none")
        visits = beam or search.leaves_visited(len(self.manifest.counts), self.manifest.rows)
        return self.search_encoded(self.model.encode(queries), k or search.k, visits, self._wanted(filter))

    def search_vectors(
        self,
        query_QM: Floats,
        k: int,
        beam: int,
        filter: Filter | Mapping[str, Any] | None = None,  # noqa: A002
    ) -> list[Answer]:
        """The best `k` documents of each trained query vector [q, m] in the leaves that it visits, at most `beam`.

        With a filter as in `search`. InputError where the router reads tokens.
        """
        return self.search_encoded(Encoded.of(query_QM), k, beam, self._wanted(filter))

    def search_encoded(self, encoded: Encoded, k: int, beam: int, wanted: Filter | None = None) -> list[Answer]:
        """The best `k` documents of each encoded query in at most `beam` leaves, or by a level where the spec says.

        With a filter as in `search`.
        """
        total = self.manifest.documents
        if self.levels is not None:
            query = self.levels.how.query(self.model.tree, encoded)
            ranking = self.levels.scan(query, k, self.model.spec.search.shortlisted(k), wanted)
            return answers(ranking, np.zeros((len(encoded), 0), np.int64), total, k)
        leaves = self.model.router.n_leaves
        most = beam if wanted is None else self.model.spec.search.leaves_widened(leaves)
        widening = Widening(self.model.route(encoded, beam)[0], Goal.of(k, beam, leaves, self.manifest.rows, most))
        while True:
            asked = encoded[widening.asked_A]
            widening.put(self.leaves.scan(asked.numpy, widening.leaves, k, wanted))
            if widening.done:
                return answers(widening.ranking, widening.leaves_QB, total, k)
            widening.visit(self.model.widen(encoded[widening.asked_A], widening.wider))

    def _wanted(self, given: Filter | Mapping[str, Any] | None) -> Filter | None:
        return parse(given, self.model.spec.corpus.field_types) if isinstance(given, Mapping) else given
