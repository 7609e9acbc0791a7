"""The IVF baseline and exact search against faiss's own indexes and their definitions."""

import faiss
import numpy as np
import pyarrow as pa
import pytest

from rayhier.cluster.kmeans import nearest, spherical_kmeans
from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.evaluate.baselines.ivf import KmeansIvf

from ..draws import unit

N, M, L, Q, K = 600, 12, 24, 30, 20


@pytest.fixture(scope="module")
def queries():
    return unit(np.random.default_rng(1), Q, M)


def ivf(vectors, centroids, queries, k, nprobe):
    quantizer = faiss.IndexFlatIP(M)
    quantizer.add(centroids)
    index = faiss.IndexIVFFlat(quantizer, M, len(centroids), faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    index.nprobe = nprobe
    return index.search(queries, k)


def documents(vectors):
    """The id of each is its row."""
    ids = pa.array([str(row) for row in range(len(vectors))])
    return BaselineDocuments(ids, ids, vectors)


def rows_of(ranking):
    return [[int(ranking.ids[row]) for row in rows if row >= 0] for rows in ranking.row_QK]


@pytest.mark.parametrize("nprobe", [1, 5, L])
def test_the_ivf_baseline_is_faiss_ivf(vectors, queries, nprobe):
    found = KmeansIvf(documents(vectors), L, seed=4).rank(queries, nprobe, K)
    centroids = spherical_kmeans(vectors, L, seed=4)
    scores, rows = ivf(vectors, centroids, queries, K, nprobe)
    assert rows_of(found) == [[row for row in own if row >= 0] for own in rows.tolist()]
    np.testing.assert_allclose(found.score_QK[rows >= 0], scores[rows >= 0], atol=1e-5)
    sizes = np.bincount(nearest(vectors, centroids, 1)[0][:, 0], minlength=L)
    wanted = sizes[nearest(queries, centroids, nprobe)[0]].sum(axis=1)
    assert found.visited_Q.tolist() == found.scanned_Q.tolist() == wanted.tolist()
