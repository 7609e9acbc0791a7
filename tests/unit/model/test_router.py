"""Routers survive a round trip through their folder; what an EhiRouter costs."""

import pytest
import torch

from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import load_router, place_all, route_all, save_router


@pytest.mark.parametrize(
    "router",
    [EhiRouter(6, 3, 1, "relu"), EhiRouter(6, 3, 3, "none"), LearnedIvfRouter(6, 60, 0), LearnedIvfRouter(6, 600, 5)],
)
def test_round_trip(tmp_path, router):
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in [*router.parameters(), *(own for own in router.buffers() if own.is_floating_point())]:
            tensor.normal_()
    save_router(router, tmp_path)
    loaded, texts = load_router(tmp_path), Encoded(torch.randn(5, 6))
    for way in (route_all, place_all):
        for found, wanted in zip(way(loaded, texts, 3), way(router, texts, 3), strict=True):
            assert torch.equal(found, wanted)
    assert loaded.n_leaves == router.n_leaves
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def test_another_type_or_shape_is_refused(tmp_path):
    save_router(EhiRouter(6, 3, 1, "relu"), tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"branching": 3', '"branching": 4'))
    with pytest.raises(RuntimeError, match="size mismatch"):
        load_router(tmp_path)
    config.write_text(config.read_text().replace('"ehi"', '"tiger"'))
    with pytest.raises(ValueError, match=r"config\.json: router type 'tiger'; allowed: 'ehi'"):
        load_router(tmp_path)


COSTS = {
    # H = 1, m = 4: U is 4 x 4, W is 3 x 4.
    (3, 1, "relu", 1): 16 + 12,
    (3, 1, "none", 2): 12,
    # The second level's input is 4 + 3 wide: 49 + 21 at each node expanded.
    (3, 2, "relu", 2): 28 + 2 * 70,
    (3, 2, "relu", 9): 28 + 3 * 70,
    # 4, 6, 8 wide and at most 1, 2, 4 nodes a level.
    (2, 3, "none", 8): 8 + 2 * 12 + 4 * 16,
}


def test_multiply_adds():
    for (branching, height, residual, beam), wanted in COSTS.items():
        assert EhiRouter(4, branching, height, residual).multiply_adds(beam) == wanted
