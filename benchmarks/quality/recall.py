"""Recall, documents visited and cost of a beam from where documents lie alone: no leaf is scanned.

A relevant document comes back if one of its leaves is visited and fewer than 100 visited documents score higher, so one
product of all queries with all documents serves every system and every beam. Equal to scanning but for ties.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.queries import Queries, relevant
from rayhier.dataset.ranking import Ranking
from rayhier.evaluate.curve import Point
from rayhier.train.learned_ivf.kmeans_start import leaf_sizes

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
