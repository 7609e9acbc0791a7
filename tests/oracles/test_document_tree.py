"""The lowest level of a document tree against faiss's own spherical k-means."""

import faiss
import numpy as np
import pytest

from rayhier.cluster import document_tree
from rayhier.cluster.document_tree import grow
from rayhier.cluster.kmeans import ITERATIONS

from ..draws import to_unit

N, M, SEEDS = 3000, 16, range(2)


def peer(vectors, k):
    """Mean cosine to the nearest of faiss's centroids, over several seeds."""
    found = []
    for seed in SEEDS:
        kmeans = faiss.Kmeans(M, k, niter=ITERATIONS, spherical=True, seed=seed, min_points_per_centroid=1)
        kmeans.train(vectors)
        found.append((vectors @ to_unit(kmeans.centroids).T).max(axis=1).mean())
    return float(np.mean(found))


def ours(vectors, branching):
    """Mean cosine to the documents' own nodes of the lowest level, over several seeds."""
    trees = [grow(vectors, branching, seed) for seed in SEEDS]
    return float(np.mean([np.einsum("nm,nm->n", vectors, tree.centroids[-1][tree.leaf_N]).mean() for tree in trees]))


@pytest.mark.parametrize("branching", [8, 40])
def test_not_worse_than_faiss_and_in_two_steps_nearly_as_good(clustered, monkeypatch, branching):
    flat, best = ours(clustered, branching), peer(clustered, -(-N // branching))
    assert flat > best - 0.002
    monkeypatch.setattr(document_tree, "FLAT", 10_000)
    assert flat != ours(clustered, branching) > best - 0.02
