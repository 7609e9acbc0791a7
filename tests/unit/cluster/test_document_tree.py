"""Document trees: how many nodes, who is below whom, and what happens to vectors that are alike."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayhier.cluster.document_tree import grow
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
