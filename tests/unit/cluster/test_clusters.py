"""Clusters of vectors where k-means leaves one empty."""

import numpy as np

from rayhier.cluster import document_tree


def test_the_largest_cluster_is_cut_for_an_empty_one(monkeypatch):
    """Of ten and four vectors and none, the ten become two, whose centroids are their directions."""
    rng, fit = np.random.default_rng(0), document_tree.fit
    near = np.repeat(np.eye(3, dtype=np.float32), [6, 4, 4], axis=0)
    vector_NM = near + 0.01 * rng.normal(size=near.shape).astype(np.float32)
    vector_NM /= np.linalg.norm(vector_NM, axis=1, keepdims=True)
    parted_N = np.repeat([0, 1, 0], [6, 4, 4])

    def leaves_one_empty(vectors, rows, k, seed):
        return (np.eye(3, dtype=np.float32), parted_N) if k == 3 else fit(vectors, rows, k, seed)

    monkeypatch.setattr(document_tree, "fit", leaves_one_empty)
    made = document_tree.cluster(vector_NM, 3, seed=0)
    assert np.bincount(made.own_N).tolist() in ([6, 4, 4], [4, 4, 6])
    assert (made.own_N[6:10] == 1).all()
    assert len(set(made.own_N[:6].tolist())) == len(set(made.own_N[10:].tolist())) == 1
    for number in (0, 2):
        mean_M = vector_NM[made.own_N == number].mean(axis=0)
        np.testing.assert_allclose(made.centroid_KM[number], mean_M / np.linalg.norm(mean_M), atol=1e-6)
