"""Queries that stop where an answer has become improbable, against probabilities written out by hand."""

import pytest
import torch

from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import load_router, own_beams, route_all, save_router

M, L, Q = 16, 40, 200


def unit(n, seed):
    found = torch.randn(n, M, generator=torch.Generator().manual_seed(seed))
    return found / found.norm(dim=1, keepdim=True)


def made():
    router = LearnedIvfRouter(M, L, 1, 2)
    router.begin(unit(L, 1))
    router.log_size_L.copy_(torch.rand(L, generator=torch.Generator().manual_seed(2)))
    return router.requires_grad_(requires_grad=False)


def density(router, x_NM):
    """log p / n [N, L], and each answer's leaves: its own and another."""
    return router.log_probs(x_NM)[-1] - router.log_size_L


@pytest.fixture
def router():
    """Calibrated on 200 queries with an answer in two leaves each."""
    router, generator = made(), torch.Generator().manual_seed(3)
    router.calibrate(unit(Q, 4), torch.arange(Q), torch.randint(0, L, (Q, 2), generator=generator))
    return router


@pytest.mark.parametrize("target", [0.5, 0.9, 0.97, 1.0])
def test_that_share_of_the_answers_is_reached(router, target):
    """Answers of the calibration itself, by the leaf that is denser of their two."""
    leaves = torch.randint(0, L, (Q, 2), generator=torch.Generator().manual_seed(3))
    x_NM = unit(Q, 4)
    found = own_beams(router, target).route(Encoded(x_NM), L)[0]
    reached = (found.unsqueeze(2) == leaves.unsqueeze(1)).any(dim=(1, 2)).float().mean()
    assert target - 0.011 <= float(reached) <= target + 0.011


def test_leaves_are_those_above_the_floor(router):
    x_NM, spares = unit(30, 5), own_beams(router, 0.8)
    found, log_p = spares.route(Encoded(x_NM), L)
    for own, probabilities, row in zip(found.tolist(), log_p.tolist(), density(router, x_NM), strict=True):
        wanted = {leaf for leaf, value in enumerate(row.tolist()) if value >= spares.floor} or {int(row.argmax())}
        kept = [leaf for leaf in own if leaf >= 0]
        assert set(kept) == wanted
        assert own == kept + [-1] * (found.shape[1] - len(kept))
        assert [row[leaf].item() for leaf in kept] == sorted((row[leaf].item() for leaf in kept), reverse=True)
        assert all(value == -torch.inf for value in probabilities[len(kept) :])
    assert found.shape[1] == int((found >= 0).sum(dim=1).max()) < L


def test_no_more_than_the_beam_and_never_none(router):
    x_NM = unit(30, 5)
    found = own_beams(router, 1.0).route(Encoded(x_NM), 3)[0]
    assert found.shape == (30, 3)
    plain = route_all(router, Encoded(x_NM), 3)[0]
    assert torch.equal(found[:, 0], plain[:, 0])
    assert ((found == plain) | (found == -1)).all()


def test_sure_queries_visit_fewer_leaves(router):
    sure, unsure = router.cells.centroid_LM[:5], torch.zeros(5, M)
    counts = [(own_beams(router, 0.9).route(Encoded(x), L)[0] >= 0).sum(dim=1) for x in (sure, unsure)]
    assert counts[0].max() < counts[1].min()


def test_what_it_knows_comes_back_from_the_folder(router, tmp_path):
    save_router(router, tmp_path)
    x_NM = unit(30, 5)
    for one, other in zip(
        route_all(own_beams(router, 0.9), Encoded(x_NM), 9),
        route_all(own_beams(load_router(tmp_path), 0.9), Encoded(x_NM), 9),
        strict=True,
    ):
        assert torch.equal(one, other)


def test_a_router_that_was_not_taught_how_is_refused():
    with pytest.raises(ValueError, match="without judged queries"):
        own_beams(made(), 0.9)
    with pytest.raises(ValueError, match="only a learned_ivf router"):
        own_beams(EhiRouter(M, L, 1, "none"), 0.9)
