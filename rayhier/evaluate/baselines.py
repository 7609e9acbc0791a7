"""The controls over parts of a corpus: exact search and k-means IVF, with one list a document or two."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from rayhier.cluster.kmeans import nearest, spherical_kmeans
from rayhier.evaluate.curve import System, beams, measure_curve, reach
from rayhier.evaluate.found import Found, merge
from rayhier.evaluate.measures import Judge, Queries
from rayhier.evaluate.parts import Parts
from rayhier.search.lists import Ints
from rayhier.storage.columns import Floats

FEWEST_LISTS = 16
TUNED_MEASURE = "R@100"
TUNED_SHARE = 0.95
DEPTH = 100
SAMPLE = 256
"""Points a list that k-means sees, faiss's own limit."""


@dataclass(frozen=True)
class Collection:
    """A corpus under one encoder, in parts: each a `part.Part`, wherever it lives."""

    parts: Parts
    counts: list[int] = field(default_factory=list)
    """Documents of each part."""

    @classmethod
    def of(cls, parts: Parts) -> "Collection":
        """Count what the parts hold."""
        return cls(parts, parts.call("count"))

    @property
    def documents(self) -> int:
        """Documents of all parts; passages where the corpus has them."""
        return sum(self.counts)

    def exact(self, query_QM: Floats, k: int) -> Found:
        """Every document scored."""
        return merge(self.parts.call("exact", query_QM, k), k)

    def system(
        self,
        name: str,
        lists: str,
        query_QM: Floats,
        k: int,
        probe: Callable[[int], Ints],
        routing: Callable[[int], float],
    ) -> System:
        """Lists of the parts as a system: `probe` says which leaves [q, β] each query searches."""
        asked = self.parts.send(query_QM)
        leaves = len(self.sizes(lists))

        def search(beam: int) -> Found:
            return merge(self.parts.call("search", lists, asked, probe(beam), k), k)

        return System(name, self.documents, beams(leaves), search, routing)

    def sizes(self, lists: str) -> Ints:
        """Rows of each leaf."""
        return np.asarray(np.sum(self.parts.call("sizes", lists), axis=0))

    def sample(self, most: int, seed: int) -> Floats:
        """At most so many vectors: all, or drawn by place in the corpus, whatever its parts."""
        n = self.documents
        generator = np.random.default_rng(seed)
        rows = np.arange(n) if n <= most else np.sort(generator.choice(n, most, replace=False, shuffle=False))
        begin = np.cumsum([0, *self.counts])
        own = [(rows[(rows >= low) & (rows < high)] - low,) for low, high in pairwise(begin)]
        return np.concatenate(self.parts.each("sample", own))


def faiss_ivf(
    name: str, collection: Collection, query_QM: Floats, k: int, lists: int, seed: int, leaves: int = 1
) -> System:
    """Spherical k-means lists, probed by nearest centroid, as `IndexIVFFlat` does; routing costs its centroids.

    With two leaves a document lies in a second list too, which SOAR chooses.
    """
    centroids = spherical_kmeans(collection.sample(SAMPLE * lists, seed), lists, seed)
    collection.parts.call("partition", name, centroids, leaves)
    order_QL: Ints = nearest(query_QM, centroids, lists)[0]
    return collection.system(name, name, query_QM, k, lambda beam: order_QL[:, :beam], lambda _: float(lists))


def tuned_lists(name: str, collection: Collection, dev: Queries, seed: int, leaves: int = 1) -> int:
    """The power of two from 16 to N/8 with the least cost for 95% of exact R@100 on these (dev) queries."""
    judge = Judge(dev, [TUNED_MEASURE])
    target = TUNED_SHARE * judge.mean(collection.exact(dev.vector_QM, DEPTH).ranking)[TUNED_MEASURE]
    costs = {}
    for lists in list_choices(collection.documents):
        system = faiss_ivf(name, collection, dev.vector_QM, DEPTH, lists, seed, leaves)
        costs[lists] = reach(measure_curve(system, judge), TUNED_MEASURE, target)
    return min(costs, key=lambda lists: costs[lists] if np.isfinite(costs[lists]) else np.inf)


def list_choices(documents: int) -> list[int]:
    """Powers of two from 16 to N/8; where there are none, as many as N/8 allows.

    >>> list_choices(1000)
    [16, 32, 64]
    """
    choices = []
    lists = FEWEST_LISTS
    while lists <= documents / 8:
        choices.append(lists)
        lists *= 2
    return choices or [max(1, documents // 8)]


def shares(things: Sequence[object], workers: int) -> list[list[int]]:
    """Places of things, in order, for at most so many workers, none without any.

    >>> shares("abcde", 2)
    [[0, 1, 2], [3, 4]]
    """
    parts = np.array_split(np.arange(len(things)), min(workers, len(things)))
    return [part.tolist() for part in parts]
