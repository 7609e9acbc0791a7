"""Leaves side by side below their nodes."""

import numpy as np
import pytest

from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.train.learned_ivf.kmeans_start import even_groups, siblings

from ...draws import unit


def around(centers, each, noise=0.05, seed=0):
    """`each` vectors near every center, shuffled; and the center of each."""
    rng = np.random.default_rng(seed)
    center = rng.permutation(np.repeat(np.arange(len(centers)), each))
    vectors = centers[center] + noise * unit(rng, len(center), centers.shape[1])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), center


@pytest.mark.parametrize(("n", "groups"), [(60, 1), (60, 4), (60, 20), (60, 60), (81, 9)])
def test_groups_are_even(n, groups):
    found = even_groups(unit(np.random.default_rng(0), n, 8), groups, seed=0)
    assert np.bincount(found, minlength=groups).tolist() == [n // groups] * groups


@pytest.mark.parametrize(("n", "groups"), [(10, 3), (7, 2)])
def test_what_does_not_divide_is_refused(n, groups):
    with pytest.raises(ValueError, match=f"{n} vectors do not divide into {groups} even groups"):
        even_groups(unit(np.random.default_rng(0), n, 4), groups, seed=0)


def test_separated_clusters_are_the_groups():
    """Use a k-means that found the groups: with some seeds it does not."""
    vectors, center = around(np.eye(6, 8, dtype=np.float32), 5)
    found = [even_groups(vectors, 6, seed) for seed in range(5)]
    assert any(len(set(zip(group.tolist(), center.tolist(), strict=True))) == 6 for group in found)


def test_nobody_would_rather_change_places():
    """Stable, as deferred acceptance promises: no vector and group prefer each other to what they have."""
    vectors = unit(np.random.default_rng(0), 60, 8)
    group = even_groups(vectors, 6, seed=3)
    score = vectors @ spherical_kmeans(vectors, 6, 3).T
    farthest = [score[group == g, g].min() for g in range(6)]
    for n in range(60):
        for g in range(6):
            assert g == group[n] or score[n, g] <= score[n, group[n]] or score[n, g] <= farthest[g]


@pytest.mark.parametrize(("branching", "height"), [(3, 3), (2, 5), (6, 2), (27, 1)])
def test_an_order_of_all_leaves(branching, height):
    leaves = branching**height
    order = siblings(unit(np.random.default_rng(0), leaves, 8), branching, height, seed=0)
    assert sorted(order.tolist()) == list(range(leaves))


def test_siblings_are_near_each_other():
    """Two levels of clusters: the leaves of a node, and the nodes of a node, are those around one center."""
    tops = np.eye(3, 8, dtype=np.float32)
    nodes, top = around(tops, 3, noise=0.4)
    leaves, node = around(nodes, 3, noise=0.02, seed=1)
    orders = [siblings(leaves, 3, 3, seed) for seed in range(8)]
    assert any(
        all(len(set(own)) == 1 for own in node[order].reshape(9, 3).tolist())
        and all(len(set(own)) == 1 for own in top[node[order]].reshape(3, 9).tolist())
        for order in orders
    )
