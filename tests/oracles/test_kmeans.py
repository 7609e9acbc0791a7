"""Spherical k-means against plain Lloyd iterations, and the lowest level of a document tree against faiss's k-means."""

import faiss
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rayhier.cluster import document_tree, kmeans
from rayhier.cluster.document_tree import grow
from rayhier.cluster.kmeans import ITERATIONS, spherical_kmeans

from ..draws import to_unit

N, M, K = 3000, 16, 30


def objective(vectors, centroids):
    """Mean cosine to the nearest centroid, whatever the centroids' lengths."""
    return float((vectors @ to_unit(centroids).T).max(axis=1).mean())


def test_one_iteration_more_is_one_lloyd_step(clustered):
    before, after = (spherical_kmeans(clustered, K, 3, iterations) for iterations in (4, 5))
    own = (clustered @ before.T).argmax(axis=1)
    wanted = [clustered[own == k].sum(axis=0) if (own == k).any() else before[k] for k in range(K)]
    np.testing.assert_allclose(after, to_unit(np.stack(wanted)), atol=1e-5)


def test_torch_is_as_good_as_faiss(clustered):
    lists = [kmeans.lloyd(clustered, 200, seed, ITERATIONS, "cpu") for seed in range(4)]
    theirs = np.mean([objective(clustered, spherical_kmeans(clustered, 200, seed)) for seed in range(4)])
    assert abs(np.mean([objective(clustered, found) for found in lists]) - theirs) < 0.001
    crowded = kmeans.lloyd(np.repeat(clustered[:40], 5, axis=0), 80, 0, ITERATIONS, "cpu")
    np.testing.assert_allclose(np.linalg.norm(crowded, axis=1), 1, atol=1e-5)
    start = clustered[:K]
    np.testing.assert_allclose(
        kmeans.lloyd(clustered, K, 0, 5, "cpu", start), kmeans.refined(clustered, start, 5), atol=1e-4
    )


def test_two_steps_are_nearly_as_good_as_one(clustered, monkeypatch):
    flat = np.mean([objective(clustered, spherical_kmeans(clustered, 200, seed)) for seed in range(3)])
    monkeypatch.setattr(kmeans, "FLAT", 1)
    found = [spherical_kmeans(clustered, 200, seed) for seed in range(3)]
    assert all(one.shape == (200, M) for one in found)
    np.testing.assert_allclose(np.linalg.norm(found[0], axis=1), 1, atol=1e-5)
    assert np.mean([objective(clustered, one) for one in found]) > flat - 0.01
    assert np.array_equal(found[0], spherical_kmeans(clustered, 200, 0))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(0, 300))
def test_shares_are_whole_and_no_larger_than_what_is_shared(sizes, wanted):
    k = min(wanted, sum(sizes))
    assume(sum(sizes) > 0)
    shares = kmeans.divide(np.array(sizes), k)
    assert shares.sum() == k
    assert (shares <= sizes).all()
    assert (shares >= 0).all()
    exact = k * np.array(sizes) / sum(sizes)
    assert (np.abs(shares - exact) < 1 + 1e-9).all()


@pytest.mark.parametrize("branching", [8, 40])
def test_a_tree_is_not_worse_than_faiss_and_in_two_steps_nearly_as_good(clustered, monkeypatch, branching):
    def ours():
        """Mean cosine to the documents' own nodes of the lowest level."""
        trees = [grow(clustered, branching, seed) for seed in range(2)]
        return np.mean([(clustered * tree.centroids[-1][tree.leaf_N]).sum(axis=1).mean() for tree in trees])

    best = []
    for seed in range(2):
        fitted = {"niter": ITERATIONS, "spherical": True, "seed": seed, "min_points_per_centroid": 1}
        theirs = faiss.Kmeans(M, -(-N // branching), **fitted)
        theirs.train(clustered)
        best.append(objective(clustered, theirs.centroids))
    flat = ours()
    assert flat > np.mean(best) - 0.002
    monkeypatch.setattr(document_tree, "FLAT", 10_000)
    assert flat != ours() > np.mean(best) - 0.02
