"""A collection under an encoder, the indexes on its vectors, and what a beam finds, visits and costs.

No leaf is scanned. A relevant document is found if two conditions hold. One of its leaves is visited, and fewer than
100 visited documents score higher. So one product of all queries with all documents serves every system and every beam.
The recall equals that of a scan, except for ties.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.collection import Collection
from benchmarks.training import encode, train
from rayhier.arrays import Bools, Floats, Ints
from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.dataset.queries import Queries, relevant
from rayhier.dataset.ranking import Ranking
from rayhier.evaluate.curve import Point
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.spec import JobSpec
from rayhier.spec.index import IndexSpec
from rayhier.spec.router import LearnedIvfRouting
from rayhier.spec.train import ContrastTraining, HceTraining
from rayhier.train.contrast import Contrast
from rayhier.train.data import judged_pairs
from rayhier.train.examples import Examples
from rayhier.train.learned_ivf.kmeans_start import empty_router, leaf_sizes, make_router, settle
from rayhier.train.learned_ivf.router_phase import RouterPhase, Targets

DEPTH = 100


@dataclass(frozen=True)
class Questions:
    """Queries to be answered: base vectors [q, m], and what is relevant to each."""

    vector_QM: Floats
    documents: int
    key_A: Ints
    """Sorted query · documents + document of what is relevant."""
    count_Q: Ints

    @classmethod
    def of(cls, queries: Queries, ids: Sequence[str]) -> "Questions":
        """Queries over documents by id."""
        place = {name: row for row, name in enumerate(ids)}
        judged = [relevant(queries.grades[query]) for query in queries.ids]
        key = [q * len(ids) + place[name] for q, names in enumerate(judged) for name in names if name in place]
        counts = np.array([len(names) for names in judged], dtype=np.int64)
        return cls(queries.vector_QM, len(ids), np.sort(np.array(key, dtype=np.int64)), counts)

    def recall(self, ranking: Ranking) -> Floats:
        """R@k [q] of rankings whose ids are document rows."""
        found_QK = ranking.row_QK >= 0
        document_QK = ranking.ids.astype(np.int64)[np.where(found_QK, ranking.row_QK, 0)]
        key_QK = np.arange(len(document_QK))[:, None] * self.documents + document_QK
        hit_QK = found_QK & np.isin(key_QK, self.key_A)
        return np.asarray(hit_QK.sum(axis=1) / np.maximum(self.count_Q, 1), dtype=np.float32)


@dataclass(frozen=True)
class Row:
    """One beam: of every query its recall, and visited and cost as fractions of the corpus."""

    beam: int
    recall_Q: Floats
    visited_Q: Floats
    cost_Q: Floats

    def point(self) -> Point:
        """The means over queries, as a point of a curve."""
        mean = {"R@100": float(self.recall_Q.mean())}
        return Point(self.beam, float(self.visited_Q.mean()), 0.0, float(self.cost_Q.mean()), 0.0, mean)


class Relevance:
    """Relevant documents of some queries under one encoder, and which documents outrank them."""

    def __init__(self, questions: Questions, query_QM: Floats, document_NM: Floats) -> None:
        self.questions = questions
        self.query_P, self.document_P = np.divmod(questions.key_A, questions.documents)
        self.higher: dict[int, Ints] = {}
        begin_Q = np.searchsorted(self.query_P, np.arange(len(query_QM) + 1))
        for first in range(0, len(query_QM), 256):
            score_QN = query_QM[first : first + 256] @ document_NM.T
            for row, score_N in enumerate(score_QN, start=first):
                for pair in range(begin_Q[row], begin_Q[row + 1]):
                    higher = np.flatnonzero(score_N > score_N[self.document_P[pair]])
                    if len(higher) >= DEPTH:
                        self.higher[pair] = higher

    def exact(self) -> Floats:
        """R@100 [q] of a scan of all documents."""
        found_P = np.ones(len(self.query_P), dtype=bool)
        found_P[list(self.higher)] = False
        return self.recall(found_P)

    def recall(self, found_P: Bools) -> Floats:
        """R@100 [q] where these pairs are found."""
        hits_Q = np.bincount(self.query_P, weights=found_P, minlength=len(self.questions.count_Q))
        return np.asarray(hits_Q / np.maximum(self.questions.count_Q, 1), dtype=np.float32)

    def within(self, probed_QL: Bools, leaf_NR: Ints) -> Floats:
        """R@100 [q] where these leaves are visited: bool [q, l]."""
        found_P = np.asarray(probed_QL[self.query_P[:, None], leaf_NR[self.document_P]].any(axis=1))
        for pair, higher in self.higher.items():
            if found_P[pair]:
                found_P[pair] = probed_QL[self.query_P[pair], leaf_NR[higher]].any(axis=1).sum() < DEPTH
        return self.recall(found_P)


class Places:
    """Where documents lie, one leaf or two (the first again where there is no second): counts what leaves hold."""

    def __init__(self, leaf_NR: Ints, n_leaves: int) -> None:
        self.leaf_NR, self.n_leaves = leaf_NR, n_leaves
        self.sizes = leaf_sizes(leaf_NR, n_leaves)
        pair_A2 = leaf_NR[leaf_NR[:, 0] != leaf_NR[:, -1]]
        shape = (n_leaves, n_leaves)
        self._both_LL = csr_matrix((np.ones(len(pair_A2)), (pair_A2[:, 0], pair_A2[:, -1])), shape=shape)

    def probed(self, leaves_QB: Ints) -> Bools:
        """Which leaves are visited: bool [q, l]; -1 names none."""
        probed_QL = np.zeros((len(leaves_QB), self.n_leaves + 1), dtype=bool)
        np.put_along_axis(probed_QL, leaves_QB, values=True, axis=1)
        return probed_QL[:, :-1]

    def counts(self, probed_QL: Bools) -> tuple[Ints, Ints]:
        """Distinct documents [q] and rows [q] of visited leaves."""
        scanned_Q = probed_QL @ self.sizes
        probed = csr_matrix(probed_QL.astype(np.float64))
        twice_Q = np.asarray((probed @ self._both_LL).multiply(probed).sum(axis=1)).reshape(-1)
        return scanned_Q - np.rint(twice_Q).astype(np.int64), scanned_Q


@dataclass(frozen=True)
class Index:
    """A router, and the leaves [n, 2] of its documents: the first again where there is no second."""

    router: LearnedIvfRouter
    leaf_NR: Ints


class View:
    """A collection under one encoder and all that is built on its vectors; `folder` keeps what was trained."""

    def __init__(
        self, collection: Collection, examples: Examples, seed: int, folder: Path, *, base: bool = False
    ) -> None:
        self.collection, self.examples, self.seed, self.folder = collection, examples, seed, folder
        self.trains = not base and not examples.same
        self._centroids: dict[int, Floats] = {}
        self._relevance: dict[int, Relevance] = {}
        self._indexes: dict[tuple[LearnedIvfRouting, IndexSpec], Index] = {}

    @cached_property
    def encoder(self) -> Contrast:
        """Encoder, untrained, or trained by judged pairs with the settings of the collection's spec."""
        training = self.collection.spec.train
        assert isinstance(training, ContrastTraining | HceTraining)
        phase = self.collection.encoder(self.examples, training, self.seed)
        if self.trains:
            train(phase, self.folder / "encoder.safetensors")
        return phase

    @cached_property
    def vectors(self) -> Floats:
        """Vectors of the documents [n, m]."""
        return self.encode(self.collection.documents.vector_NM)

    def encode(self, vector_NM: Floats) -> Floats:
        """Vectors of texts by those of the base encoder."""
        return encode(self.encoder.tower.module, vector_NM) if self.trains else vector_NM

    def relevance(self, questions: Questions) -> Relevance:
        """What is relevant to some queries, and what outranks it here."""
        if id(questions) not in self._relevance:
            self._relevance[id(questions)] = Relevance(questions, self.encode(questions.vector_QM), self.vectors)
        return self._relevance[id(questions)]

    def centroids(self, leaves: int) -> Floats:
        """Spherical k-means of the documents."""
        if leaves not in self._centroids:
            self._centroids[leaves] = spherical_kmeans(self.vectors, leaves, self.seed)
        return self._centroids[leaves]

    @cached_property
    def targets(self) -> tuple[Targets, Targets]:
        """Targets that teach routers, and the dev queries' answers."""
        query_QM, dev_QM = (self.encoder.pairs.side(side) for side in ("query", "dev"))
        pairs = judged_pairs(self.collection.dev, self.collection.documents).pair_P2
        targets = Targets.of(self.examples, query_QM, self.vectors, self.seed)
        return targets, Targets.judged(dev_QM, pairs)

    def index(self, spec: JobSpec) -> Index:
        """The router of a spec, taught where there are judged queries, and where it puts documents."""
        own = spec.router
        assert isinstance(own, LearnedIvfRouting)
        key = own, spec.index
        if key not in self._indexes:
            router = make_router(own, self.vectors, self.seed)
            leaf_NR = settle(router, self.vectors, spec, self.seed)
            if not self.examples.same:
                train(RouterPhase(router, leaf_NR, *self.targets, self.seed))
            self._indexes[key] = Index(router, leaf_NR)
        return self._indexes[key]

    def untaught(self, spec: JobSpec) -> Index:
        """An index before it is taught: documents as they lie, leaves by their centroids, no bend."""
        index, own, (n, m) = self.index(spec), spec.router, self.vectors.shape
        assert isinstance(own, LearnedIvfRouting)
        router = empty_router(own, n, m, self.seed)
        router.begin(index.router.cells.centroid_LM)
        return Index(router, index.leaf_NR)
