"""Document trees: how many nodes, who is below whom, and what happens to vectors that are alike."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayhier.cluster import document_tree
from rayhier.cluster.document_tree import cluster, grow
from rayhier.spec.train.hce import node_counts

from ...draws import to_unit

N, M = 300, 8


@given(st.integers(1, 10**9), st.integers(2, 1000))
def test_a_tree_is_as_high_as_it_must_be(documents, branching):
    counts = node_counts(documents, branching)
    height = len(counts) + 1
    assert branching**height >= documents
    assert height == 1 or branching ** (height - 1) < documents
    for more, fewer in zip([documents, *counts[::-1]], [*counts[::-1], 1], strict=True):
        assert fewer == math.ceil(more / branching)


def test_no_vectors_and_nodes_of_one_child_are_refused(vectors):
    """Such nodes would never end."""
    for branching in (1, 0, -3):
        with pytest.raises(ValueError, match=f"branching: got {branching}; allowed: 2 or more"):
            grow(vectors, branching, seed=0)
    with pytest.raises(ValueError, match="documents: got 0; allowed: 1 or more"):
        grow(vectors[:0], 8, seed=0)


@settings(max_examples=40)
@given(st.integers(1, 120), st.integers(2, 9), st.integers(1, 120), st.integers(0, 3), st.sampled_from(["f2", "f4"]))
def test_every_document_has_one_path_of_fixed_length(documents, branching, distinct, seed, kind):
    """Also where many documents are the same, and where opposite vectors cancel out."""
    pool = to_unit(np.random.default_rng(distinct).normal(size=(distinct, 3)))
    pool = np.concatenate([pool, -pool[:2]])
    own = np.random.default_rng(seed).integers(0, len(pool), documents)
    tree = grow(pool[own].astype(kind), branching, seed)
    counts = node_counts(documents, branching)
    assert [len(one) for one in tree.centroids] == [len(one) for one in tree.parents] == counts
    for parents, above in zip(tree.parents, [1, *counts], strict=False):
        assert set(parents.tolist()) <= set(range(above))
    paths = tree.paths()
    assert paths.shape == (documents, len(counts))
    for level in range(len(counts)):
        parents = tree.parents[level][paths[:, level]]
        assert np.array_equal(parents, paths[:, level - 1] if level else np.zeros(documents))
        np.testing.assert_allclose(np.linalg.norm(tree.centroids[level], axis=1), 1, atol=1e-5)
    assert np.array_equal(tree.leaf_N, paths[:, -1] if counts else np.zeros(documents))
    if counts:
        assert (np.bincount(tree.leaf_N, minlength=counts[-1]) == 0).sum() == max(0, counts[-1] - len(np.unique(own)))


def test_the_largest_cluster_is_cut_for_an_empty_one(monkeypatch):
    """Of ten and four vectors and none, the ten become two, whose centroids are their directions."""
    rng, fit = np.random.default_rng(0), document_tree.fit
    near = np.repeat(np.eye(3, dtype=np.float32), [6, 4, 4], axis=0)
    vector_NM = to_unit(near + 0.01 * rng.normal(size=near.shape))
    parted_N = np.repeat([0, 1, 0], [6, 4, 4])

    def leaves_one_empty(vectors, rows, k, seed):
        return (np.eye(3, dtype=np.float32), parted_N) if k == 3 else fit(vectors, rows, k, seed)

    monkeypatch.setattr(document_tree, "fit", leaves_one_empty)
    centroid_KM, own_N = cluster(vector_NM, 3, seed=0)
    assert np.bincount(own_N).tolist() in ([6, 4, 4], [4, 4, 6])
    assert (own_N[6:10] == 1).all()
    assert len(set(own_N[:6].tolist())) == len(set(own_N[10:].tolist())) == 1
    for number in (0, 2):
        mean_M = vector_NM[own_N == number].mean(axis=0)
        np.testing.assert_allclose(centroid_KM[number], mean_M / np.linalg.norm(mean_M), atol=1e-6)
