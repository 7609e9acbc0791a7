"""Hierarchical k-means and the router fitted to it: against clusters known beforehand."""

import numpy as np
import pytest
import torch

from rayhier.cluster.kmeans import hierarchical_kmeans
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.router import opened
from rayhier.train.ehi import walk, warm_start

from ..draws import to_unit

B, M, EACH = 4, 24, 30


@pytest.fixture(scope="module")
def planted():
    """Four far groups of four near groups of thirty vectors: (vectors, far group, near group)."""
    rng = np.random.default_rng(0)
    far = np.repeat(np.eye(M)[:B], B, axis=0)
    near = far + 0.5 * rng.normal(size=(B * B, M)) / np.sqrt(M)
    group = np.repeat(np.arange(B * B), EACH)
    vectors = near[group] + 0.05 * rng.normal(size=(len(group), M)) / np.sqrt(M)
    unit = to_unit(vectors).astype(np.float32)
    return unit, group // B, group


def descend(vectors, levels):
    """Path [n, height] of each vector to the nearest child on each level."""
    path = np.zeros((len(vectors), 0), int)
    for level in levels:
        node = path @ level.shape[1] ** np.arange(path.shape[1])[::-1]
        child = np.einsum("nm,nbm->nb", vectors, level[node]).argmax(axis=1)
        path = np.column_stack([path, child])
    return path


def same_partition(found, wanted):
    pairs = set(zip(found.tolist(), wanted.tolist(), strict=True))
    return len(pairs) == len(set(found.tolist())) == len(set(wanted.tolist()))


def test_a_node_with_fewer_documents_than_children(planted):
    levels = hierarchical_kmeans(planted[0][:7], 3, 3, seed=0)
    assert [level.shape for level in levels] == [(1, 3, M), (3, 3, M), (9, 3, M)]
    sizes = np.bincount(descend(planted[0][:7], levels)[:, 0], minlength=3)
    assert [int(level.any(axis=1).sum()) for level in levels[1]] == np.minimum(sizes, 3).tolist()


def test_a_walk_draws_from_its_nodes_and_never_a_missing_child(planted):
    vectors = torch.from_numpy(planted[0][:7])
    centroids = [torch.from_numpy(level) for level in hierarchical_kmeans(planted[0][:7], 3, 2, seed=0)]
    path, targets = walk(vectors.repeat(50, 1), centroids, torch.Generator().manual_seed(0))
    for level, target in enumerate(targets):
        torch.testing.assert_close(target.sum(dim=1), torch.ones(350))
        assert (target.gather(1, path[:, [level]]) > 0).all()
    node = centroids[1][path[:, 0]]
    wanted = (20 * (vectors.repeat(50, 1).unsqueeze(1) * node).sum(2)).masked_fill(~node.any(2), -torch.inf)
    torch.testing.assert_close(targets[1], wanted.softmax(dim=1))


def test_a_warm_started_tree_routes_as_the_clustering(planted):
    """Its best leaf is the clustering's, and so is the order of all its leaves."""
    vectors, far, _ = planted
    torch.manual_seed(0)
    router = EhiRouter(M, B, 2, "relu")
    warm_start(router, vectors, seed=0)
    leaves, log_probs = opened(router).route(Encoded(vectors), B * B)
    levels = hierarchical_kmeans(vectors, B, 2, seed=0)
    assert (leaves[:, 0] == descend(vectors, levels) @ [B, 1]).mean() > 0.9
    assert same_partition(leaves[:, 0] // B, far)
    first, second = (torch.from_numpy(level) for level in levels)
    x = torch.from_numpy(vectors)
    parent = (20 * x @ first[0].T).log_softmax(dim=1)
    child = (20 * torch.einsum("nm,pbm->npb", x, second)).log_softmax(dim=2)
    wanted = (parent.unsqueeze(2) + child).flatten(1)
    chosen = wanted.gather(1, torch.from_numpy(leaves)).numpy()
    assert np.abs(log_probs - chosen)[chosen > np.log(0.01)].mean() < 0.1
