"""A corpus under one encoder, in parts that one process or several processes hold."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.holdout import Holdout, holdout_size
from rayhier.dataset.ranking import Ranking, merge
from rayhier.evaluate.alone import one_core, seconds, seconds_of, timed_rows
from rayhier.evaluate.curve import System, beams
from rayhier.evaluate.part import Part
from rayhier.evaluate.workers import Parts


@dataclass(frozen=True)
class Collection:
    """Documents and their vectors, in parts that this process or several processes hold."""

    parts: Parts[Part]
    counts: list[int] = field(default_factory=list)
    """Number of documents in each part."""
    matching: int = 0
    """Number of documents that are searched: all, or those that match the evaluation's filter."""

    @classmethod
    def of(cls, parts: Parts[Part]) -> "Collection":
        """Make a collection of parts, and count the documents of each part."""
        return cls(parts, parts.call(Part.count), sum(parts.call(Part.count_matching)))

    @property
    def documents(self) -> int:
        """Number of documents in all parts; of passages where the corpus is cut into passages."""
        return sum(self.counts)

    def judged(self, names: Iterable[str]) -> set[str]:
        """Return the ids, among `names`, of the results that are searched."""
        ids = self.parts.call(Part.judged, pa.array(sorted(names), pa.string()))
        return {name for part in ids for name in part.to_pylist()}

    def exact(self, query_QM: Floats, k: int) -> Ranking:
        """Rank the best k results of each query [q, m] by scores of all documents that are searched."""
        return merge(self.parts.call(Part.exact, query_QM, k), k)

    def holdout(self) -> Holdout:
        """Hold out documents to serve as dev queries: a tenth, at most 1,000, those first by a hash of the id."""
        most = holdout_size(self.documents)
        return Holdout.merge(self.parts.call(Part.holdout, most), most)

    def system(
        self,
        name: str,
        leaves: str,
        query_QM: Floats,
        k: int,
        probe: Callable[[int, slice], Ints],
        routing: Callable[[int], float],
    ) -> System:
        """Make a system to measure, which scans the parts' leaves named `leaves` for queries [q, m].

        `probe(beam, rows)` returns the leaves [r, beam] that the queries of a slice visit, `routing(beam)` the dot
        products of routing a query.
        """
        queries, timed = self.parts.send(query_QM), [slice(row, row + 1) for row in timed_rows(len(query_QM)).tolist()]

        def rank(beam: int) -> Ranking:
            return merge(self.parts.call(Part.scan, leaves, queries, probe(beam, slice(None)), k), k)

        def alone(beam: int) -> Values:
            with one_core():
                routed = np.array([seconds(probe, beam, row) for row in timed])
            calls = [(leaves, query_QM[row], probe(beam, row), k) for row in timed]
            scanned = self.parts.call(seconds_of, Part.scan, calls)
            return np.asarray(routed + np.sum(scanned, axis=0))

        return System(name, self.matching, beams(len(self.sizes(leaves))), rank, routing, alone)

    def sizes(self, leaves: str) -> Ints:
        """Count the rows of all parts in each leaf, [leaves]; `leaves` names the system that the leaves belong to."""
        return np.asarray(np.sum(self.parts.call(Part.sizes, leaves), axis=0))

    def sample(self, most: int, seed: int) -> Floats:
        """Return at most `most` vectors [n, m]: all, or a random sample that does not depend on the parts."""
        n = self.documents
        generator = np.random.default_rng(seed)
        rows = np.arange(n) if n <= most else np.sort(generator.choice(n, most, replace=False, shuffle=False))
        begin = np.cumsum([0, *self.counts])
        arguments = [(rows[(rows >= low) & (rows < high)] - low,) for low, high in pairwise(begin)]
        return np.concatenate(self.parts.each(Part.sample, arguments))
