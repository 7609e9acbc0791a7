"""Leaves that are split, moved and given up: what the router knows of the others stays as it was."""

import numpy as np
import pytest

from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import LearnedIvf
from rayhier.model.revise import give_up, resized, split, weight_scale
from rayhier.search.routing.coded_router import CodedRouter

from ...draws import unit

M, L = 8, 12


def made(seed=0, leaves=L):
    rng, centroids = np.random.default_rng(seed), unit(1, leaves, M)
    shapes = {"b": (leaves,), "V": (3, M), "U": (M, 3), "log_size_L": (leaves,)}
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    cells = {"centroid_LM": centroids, "price_L": 0.1 * rng.random(leaves, np.float32), "border": np.float32(2)}
    cells |= {"group_GM": np.zeros((0, M), np.float32), "group_L": np.zeros(0, np.int64)}
    weights |= {"W": 7 * centroids} | {f"cells.{name}": array for name, array in cells.items()}
    return LearnedIvf({"type": "learned_ivf", "dimension": M}, weights)


def test_a_halfs_weights_move_as_its_centroid_does_and_it_takes_a_number_given_up():
    router = made()
    halves = unit(5, 2, M)[None]
    after, (number,) = split(router, [4], halves)
    s = weight_scale(router)
    assert s == pytest.approx(7.0, rel=1e-5)
    for leaf, half in ((4, halves[0, 0]), (number, halves[0, 1])):
        wanted = router.W[4] + s * (half - router.cells.centroid_LM[4])
        np.testing.assert_allclose(after.W[leaf], wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(after.cells.centroid_LM[leaf], half, rtol=1e-5, atol=1e-6)
        assert after.cells.price_L[leaf] == 0
        assert after.b[leaf] == router.b[4]
    untouched = [leaf for leaf in range(L) if leaf != 4]
    np.testing.assert_allclose(after.W[untouched], router.W[untouched], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after.cells.price_L[untouched], router.cells.price_L[untouched], rtol=1e-5, atol=1e-6)
    router = resized(made())
    give_up(router, [2, 5])
    after, numbers = split(router, [0, 1, 3], unit(5, 6, M).reshape(3, 2, M))
    assert (numbers, after.n_leaves) == ([2, 5, 12], 13), "numbers of leaves given up come first"
    assert after.in_use.all()


@pytest.mark.parametrize("coded", [False, True])
def test_a_leaf_given_up_is_neither_visited_nor_filled(coded):
    leaves = 1_300 if coded else L
    router = resized(made(leaves=leaves))
    gone = [2, 5, 6]
    give_up(router, gone)
    assert np.flatnonzero(~router.in_use).tolist() == gone
    encoded = Encoded(unit(9, 40, M))
    routes = CodedRouter(router).by_codes(encoded.numpy, 100) if coded else router.choose(encoded, L - 3)
    assert not np.isin(gone, routes).any()
    assert not np.isin(gone, router.place(encoded, min(32, leaves - 3))[0]).any()
    wanted = router.choose(encoded, len(routes[0])).tolist()
    shares = [len({*near} & {*best}) / len(best) for near, best in zip(routes.tolist(), wanted, strict=True)]
    assert np.mean(shares) > 0.9
