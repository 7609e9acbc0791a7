"""Leaf lists against faiss's own indexes."""

import faiss
import numpy as np
import pyarrow as pa
import pytest

from rayhier.cluster.kmeans import nearest, spherical_kmeans
from rayhier.evaluate.systems.documents import BaselineDocuments
from rayhier.evaluate.systems.ivf import KmeansIvf
from rayhier.search.segment.lists import LeafLists

from ..draws import unit

N, M, L, Q, K = 600, 12, 24, 30, 20


@pytest.fixture(scope="module")
def queries():
    return unit(np.random.default_rng(1), Q, M)


def flat(vectors, queries, k):
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index.search(queries, k)


def ivf(vectors, centroids, queries, k, nprobe):
    quantizer = faiss.IndexFlatIP(M)
    quantizer.add(centroids)
    index = faiss.IndexIVFFlat(quantizer, M, len(centroids), faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    index.nprobe = nprobe
    return index.search(queries, k)


def every_leaf(count):
    return np.tile(np.arange(L), (count, 1))


@pytest.mark.parametrize("empty", [0, 9])
def test_all_leaves_are_a_flat_index(vectors, queries, empty):
    leaves = np.random.default_rng(2).integers(empty, L, N)
    scores, rows = LeafLists.build(vectors, leaves, L).scan(queries, every_leaf(Q), K)
    wanted_scores, wanted_rows = flat(vectors, queries, K)
    np.testing.assert_allclose(scores, wanted_scores, atol=1e-5)
    assert rows.tolist() == wanted_rows.tolist()


def test_equal_vectors_in_any_order_have_the_flat_scores(vectors, queries):
    doubled = np.concatenate([vectors, vectors])
    leaves = np.random.default_rng(3).integers(0, L, 2 * N)
    scores, rows = LeafLists.build(doubled, leaves, L).scan(queries, every_leaf(Q), K)
    np.testing.assert_allclose(scores, flat(doubled, queries, K)[0], atol=1e-5)
    assert (rows % N).tolist() == np.repeat(flat(vectors, queries, K // 2)[1], 2, axis=1).tolist()


@pytest.mark.parametrize("nprobe", [1, 3, 10, L])
def test_nearest_centroids_as_leaves_are_faiss_ivf(vectors, queries, nprobe):
    centroids = spherical_kmeans(vectors, L, seed=4)
    lists = LeafLists.build(vectors, nearest(vectors, centroids, 1)[0][:, 0], L)
    scores, rows = lists.scan(queries, nearest(queries, centroids, nprobe)[0], K)
    wanted_scores, wanted_rows = ivf(vectors, centroids, queries, K, nprobe)
    assert rows.tolist() == wanted_rows.tolist()
    np.testing.assert_allclose(scores[rows >= 0], wanted_scores[rows >= 0], atol=1e-5)


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


@pytest.mark.parametrize("nprobe", [1, 4, L])
def test_the_baseline_with_two_lists_a_document_by_its_definition(vectors, queries, nprobe):
    """SOAR's second list by its formula, documents and scores counted in plain Python."""
    found = KmeansIvf(documents(vectors), L, seed=4, leaves=2).rank(queries, nprobe, K)
    centroids = spherical_kmeans(vectors, L, seed=4)
    own = []
    for vector in vectors.astype(np.float64):
        near = np.argsort(-(centroids @ vector))[:32]
        residual = vector - centroids[near[0]]
        unit = residual / np.linalg.norm(residual)
        loss = [np.sum((vector - centroids[c]) ** 2) + np.dot(vector - centroids[c], unit) ** 2 for c in near[1:]]
        own.append((near[0], near[1 + int(np.argmin(loss))]))
    own = np.array(own)
    for number, query in enumerate(queries):
        probed = np.argsort(-(centroids @ query))[:nprobe]
        hits = np.isin(own, probed)
        members = np.flatnonzero(hits.any(axis=1))
        wanted = members[np.argsort(-(vectors[members] @ query))][:K]
        assert rows_of(found)[number] == wanted.tolist()
        assert (found.visited_Q[number], found.scanned_Q[number]) == (len(members), hits.sum())


def test_exact_is_an_argsort(vectors, queries):
    ranking = documents(vectors).exact(queries, K)
    scores = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    order = np.argsort(-scores, axis=1)[:, :K]
    assert rows_of(ranking) == order.tolist()
    np.testing.assert_allclose(ranking.score_QK, np.take_along_axis(scores, order, axis=1), atol=1e-5)
