"""A corpus under one encoder, in parts that several processes may hold."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats, Ints
from rayhier.dataset.holdout import Holdout, holdout_size
from rayhier.dataset.ranking import Ranking, merge
from rayhier.evaluate.curve import System, beams
from rayhier.evaluate.part import Part
from rayhier.evaluate.workers import Parts


@dataclass(frozen=True)
class Collection:
    """Documents and their vectors, in this process or in several."""

    parts: Parts[Part]
    counts: list[int] = field(default_factory=list)
    """Documents of each part."""
    matching: int = 0
    """Documents that are searched: all, or those that match the evaluation's filter."""

    @classmethod
    def of(cls, parts: Parts[Part]) -> "Collection":
        """Make a collection of parts; counts the documents of each."""
        return cls(parts, parts.call(Part.count), sum(parts.call(Part.count_matching)))

    @property
    def documents(self) -> int:
        """Documents of all parts; passages where the corpus has them."""
        return sum(self.counts)

    def judged(self, names: Iterable[str]) -> set[str]:
        """Those of some results' ids that are searched."""
        ids = self.parts.call(Part.judged, pa.array(sorted(names), pa.string()))
        return {name for part in ids for name in part.to_pylist()}

    def exact(self, query_QM: Floats, k: int) -> Ranking:
        """Rank the best k results of each query [q, m]; every document that is searched is scored."""
        return merge(self.parts.call(Part.exact, query_QM, k), k)

    def holdout(self) -> Holdout:
        """A tenth of the documents, at most 1,000, by hash of the id."""
        most = holdout_size(self.documents)
        return Holdout.merge(self.parts.call(Part.holdout, most), most)

    def system(
        self,
        name: str,
        leaves: str,
        query_QM: Floats,
        k: int,
        probe: Callable[[int], Ints],
        routing: Callable[[int], float],
    ) -> System:
        """Return a system that scans the parts' leaves; `probe` returns the leaves [q, β] that each query visits."""
        queries = self.parts.send(query_QM)

        def rank(beam: int) -> Ranking:
            return merge(self.parts.call(Part.scan, leaves, queries, probe(beam), k), k)

        return System(name, self.matching, beams(len(self.sizes(leaves))), rank, routing)

    def sizes(self, leaves: str) -> Ints:
        """Count the rows of each leaf."""
        return np.asarray(np.sum(self.parts.call(Part.sizes, leaves), axis=0))

    def sample(self, most: int, seed: int) -> Floats:
        """Return at most `most` vectors: all, or a random sample that is the same however the corpus is split."""
        n = self.documents
        generator = np.random.default_rng(seed)
        rows = np.arange(n) if n <= most else np.sort(generator.choice(n, most, replace=False, shuffle=False))
        begin = np.cumsum([0, *self.counts])
        arguments = [(rows[(rows >= low) & (rows < high)] - low,) for low, high in pairwise(begin)]
        return np.concatenate(self.parts.each(Part.sample, arguments))
