"""Targets that train a router: queries, and documents as queries, each with the documents that answer it."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import nearest
from rayhier.spec.router.learned_ivf import DOCUMENTS_A_QUERY, Teaching
from rayhier.train.examples import Examples

MOST_JUDGED = 10
"""Number of a query's judged answers up to which each has the full weight; more answers share the weight of so many."""


@dataclass(frozen=True)
class Targets:
    """Vectors [t, m] of queries, and pairs (query row, document row) of their answers, sorted, with weights [p]."""

    vector_TM: Floats
    pair_P2: Ints
    weight_P: Floats

    @classmethod
    def none(cls, dimension: int) -> Self:
        """Make an empty set of targets for vectors of size `dimension`."""
        return cls(np.zeros((0, dimension), np.float32), np.zeros((0, 2), np.int64), np.zeros(0, np.float32))

    @classmethod
    def judged(cls, query_QM: Floats, pair_P2: Ints) -> Self:
        """Make targets of queries' vectors and judged pairs (query row, document row); each query weighs 1."""
        pairs = pair_P2[np.argsort(pair_P2[:, 0], kind="stable")]
        return cls(query_QM, pairs, (1 / np.bincount(pairs[:, 0])[pairs[:, 0]]).astype(np.float32))

    @classmethod
    def of(cls, examples: Examples, query_QM: Floats, document_NM: Floats, spec: Teaching, seed: int) -> Self:
        """Make targets from trained vectors of queries [q, m] and of a sample of the documents [n, m].

        The answers of a query are its judged and its exact nearest documents; those of a document are the document
        itself and its exact nearest documents. `spec` has the weights and numbers of each.
        """
        most = min(spec.most, DOCUMENTS_A_QUERY * len(query_QM))
        rows = np.random.default_rng([seed, 2]).permutation(len(document_NM))[:most]
        vector_TM = query_QM if spec.documents == 0 else np.concatenate([query_QM, document_NM[rows]])
        judged_P2, judged_P = _judged(examples.pair_P2, spec)
        near_P2, near_P = _near(vector_TM, document_NM, spec.neighbours, 1.0)
        itself_P2 = np.stack([np.arange(len(query_QM), len(vector_TM)), rows[: len(vector_TM) - len(query_QM)]], axis=1)
        near_P[near_P2[:, 0] >= len(query_QM)] = spec.documents
        # A document is usually its own nearest, but not always among copies or by dot products.
        itself_P2 = itself_P2[~np.isin(_keys(itself_P2, len(document_NM)), _keys(near_P2, len(document_NM)))]
        pair_P2 = np.concatenate([judged_P2, near_P2, itself_P2])
        weight_P = np.concatenate([judged_P, near_P, np.full(len(itself_P2), spec.documents, np.float32)])
        order = np.argsort(pair_P2[:, 0], kind="stable")
        return cls(vector_TM, pair_P2[order], weight_P[order])


def _keys(pair_P2: Ints, documents: int) -> Ints:
    return pair_P2[:, 0] * documents + pair_P2[:, 1]


def _judged(pair_P2: Ints, spec: Teaching) -> tuple[Ints, Floats]:
    """Return judged pairs with weights; where a query has more than ten, its pairs weigh as much as ten."""
    count_P = np.bincount(pair_P2[:, 0])[pair_P2[:, 0]]
    return pair_P2, (spec.judged * np.minimum(1.0, MOST_JUDGED / count_P)).astype(np.float32)


def _near(vector_TM: Floats, document_NM: Floats, count: int, weight: float) -> tuple[Ints, Floats]:
    if count == 0:
        return np.zeros((0, 2), np.int64), np.zeros(0, np.float32)
    near = nearest(vector_TM, document_NM, min(count, len(document_NM)))[0]
    pairs = np.stack([np.repeat(np.arange(len(near)), near.shape[1]), near.reshape(-1)], axis=1)
    return pairs, np.full(len(pairs), weight, np.float32)
