"""Measure the index like any other system. The index is opened and searched as in every search."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Self

from rayhier.arrays import Values
from rayhier.dataset.ranking import Ranking, stacked
from rayhier.evaluate.alone import seconds_of, timed_rows
from rayhier.evaluate.curve import System, beams
from rayhier.model.encoded import Encoded
from rayhier.search.retrieve import Scan
from rayhier.search.routing.routes import Model, find_routes
from rayhier.search.snapshot import Snapshot
from rayhier.spec import JobSpec
from rayhier.storage.artifact import Artifact
from rayhier.storage.leaf_map import BUILT, LeafMap

TOGETHER = 1_024
"""Largest number of queries that are searched together."""


class IndexSearch:
    """A whole opened index, as it was built, and the queries to search it for."""

    def __init__(self, snapshot: Snapshot, texts: Sequence[str], encoded: Encoded, k: int) -> None:
        """Take queries as texts, and as the model encodes them. `k` is the number of results per query."""
        self._snapshot, self._texts, self._encoded, self._k = snapshot, texts, encoded, k
        self._where = snapshot.spec.measured

    @classmethod
    def open(
        cls,
        spec: JobSpec,
        model: Artifact,
        index: Artifact,
        read: Mapping[str, Artifact],
        texts: Sequence[str],
        encoded: Encoded,
        k: int,
    ) -> Self:
        opened = Model.open(model, spec, calibration=read.get("calibration"))
        return cls(Snapshot(spec, LeafMap.open(index.root, BUILT), opened, read), texts, encoded, k)

    def scan(self, beam: int) -> Ranking:
        return stacked([self._scanned(rows, beam) for rows in self._batches()])

    def search(self, beam: int) -> Ranking:
        """Search with the spec's settings and a beam of at least `beam` leaves. With a beam of 0, search by a level."""
        rankings = []
        for rows in self._batches():
            encoded = self._encoded[rows]
            request = self._snapshot.rules.request(encoded.numpy, self._k, beam or None, self._where)
            rankings.append(self._snapshot.retrieve(replace(request, needs="ids"), encoded).ranking)
        return stacked(rankings)

    def seconds(self, beam: int) -> Values:
        timed = timed_rows(len(self._texts)).tolist()
        return seconds_of(self._scanned, [(slice(row, row + 1), beam) for row in timed])

    def served(self, mode: str | None, budget: int | None) -> tuple[Ranking, float]:
        """Search the texts as a server does, and return the seconds. A budget of 0 re-ranks nothing."""
        self._snapshot.model.load()
        began, spends = time.perf_counter(), None if self._snapshot.reranker is None else budget
        rankings = []
        for rows in self._batches():
            texts, rules = self._texts[rows], self._snapshot.rules
            request = rules.request(texts, self._k, filter=self._where, mode=mode, budget=spends)
            rankings.append(self._snapshot.retrieve(request).ranking)
        return stacked(rankings), time.perf_counter() - began

    def _batches(self) -> list[slice]:
        return [slice(begin, begin + TOGETHER) for begin in range(0, len(self._texts), TOGETHER)]

    def _scanned(self, rows: slice, beam: int) -> Ranking:
        routes = find_routes(self._snapshot.model, self._encoded[rows], beam)
        scan = Scan(routes.encoded.numpy, routes.leaves_QB, self._k, self._where, "ids")
        ranking: Ranking = self._snapshot.reply(scan).parts[0]
        return ranking


def index_system(name: str, searches: IndexSearch, model: Model, documents: int, dimension: int) -> System:
    """Make a system of an index over its leaves. The cost of routing is the router's multiply-adds, as dot products."""
    router = model.router
    return System(
        name,
        documents,
        beams(router.n_leaves, documents),
        searches.scan,
        lambda beam: router.multiply_adds(beam) / dimension,
        searches.seconds,
    )


def as_searched(system: System, searches: IndexSearch) -> System:
    """Return the system as the spec searches it with a filter: it visits more leaves if few documents match."""
    return replace(system, rank=searches.search, seconds=None)


def level_system(
    name: str, searches: IndexSearch, model: Model, documents: int, dimension: int, level: int, listed: int
) -> System:
    """Make a system that compares all documents by a level of ReTreever's tree, and rescores `listed` results."""

    @cache
    def rank(_: int) -> Ranking:
        return searches.search(0)

    level_cost = (model.tree.multiply_adds(1) + documents * 2**level) / dimension
    return System(name, documents, [listed], rank, lambda _: level_cost)
