"""Leaves that are split, moved and given up: what the router knows of the others stays as it was."""

import numpy as np
import pytest
import torch

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.revise import give_up, in_use, resized, split, weight_scale
from rayhier.model.router import place_all, route_all
from rayhier.search.routing.coded_router import CodedRouter

from ...draws import unit

M, L = 8, 12


def made(seed=0, leaves=L):
    torch.manual_seed(seed)
    router = LearnedIvfRouter(M, leaves, 3)
    router.begin(torch.from_numpy(unit(1, router.n_leaves, M)), 7.0)
    with torch.no_grad():
        router.U.copy_(torch.randn(M, 3))
        router.b.copy_(torch.randn(router.n_leaves))
        router.log_size_L.copy_(torch.rand(router.n_leaves))
    router.cells.price_L.copy_(0.1 * torch.rand(router.n_leaves))
    return router.eval().requires_grad_(requires_grad=False)


def test_a_halfs_weights_move_as_its_centroid_does_and_it_takes_a_number_given_up():
    router = made()
    halves = torch.from_numpy(unit(5, 2, M))[None]
    after, (number,) = split(router, [4], halves)
    s = weight_scale(router)
    assert s == pytest.approx(7.0, rel=1e-5)
    for leaf, half in ((4, halves[0, 0]), (number, halves[0, 1])):
        wanted = router.W[4] + s * (half - router.cells.centroid_LM[4])
        torch.testing.assert_close(after.W[leaf], wanted)
        torch.testing.assert_close(after.cells.centroid_LM[leaf], half)
        assert after.cells.price_L[leaf] == 0
        assert after.b[leaf] == router.b[4]
    untouched = [leaf for leaf in range(L) if leaf != 4]
    torch.testing.assert_close(after.W[untouched], router.W[untouched])
    torch.testing.assert_close(after.cells.price_L[untouched], router.cells.price_L[untouched])
    router = resized(made())
    give_up(router, [2, 5])
    after, numbers = split(router, [0, 1, 3], torch.from_numpy(unit(5, 6, M)).view(3, 2, M))
    assert (numbers, after.n_leaves) == ([2, 5, 12], 13), "numbers of leaves given up come first"
    assert in_use(after).all()


@pytest.mark.parametrize("coded", [False, True])
def test_a_leaf_given_up_is_neither_visited_nor_filled(coded):
    leaves = 1_300 if coded else L
    router = resized(made(leaves=leaves))
    gone = [2, 5, 6]
    give_up(router, gone)
    assert (~in_use(router)).nonzero()[:, 0].tolist() == gone
    encoded = Encoded(unit(9, 40, M))
    routes = CodedRouter(router).by_codes(encoded.numpy, 100) if coded else route_all(router, encoded, L - 3)[0]
    assert not np.isin(gone, np.asarray(routes)).any()
    assert not np.isin(gone, place_all(router, encoded, min(32, leaves - 3))[0].numpy()).any()
    wanted = route_all(router, encoded, len(routes[0]))[0].tolist()
    shares = [
        len({*near} & {*best}) / len(best) for near, best in zip(np.asarray(routes).tolist(), wanted, strict=True)
    ]
    assert np.mean(shares) > 0.9
