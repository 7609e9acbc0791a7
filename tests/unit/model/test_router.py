"""Routers in numpy: they survive a round trip through their folder, equal torch, and tell what they cost."""

import numpy as np
import pytest
import torch

from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.opened_router import open_router
from rayhier.model.retreever import RetreeverRouter
from rayhier.model.router import opened, save_router


def drawn(router):
    """A router with random weights."""
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in router.state_dict().values():
            if tensor.is_floating_point():
                tensor.normal_()
    return router.eval()


@pytest.mark.parametrize(
    "router",
    [
        EhiRouter(6, 3, 1, "relu"),
        EhiRouter(6, 3, 3, "none"),
        LearnedIvfRouter(6, 60, 0),
        LearnedIvfRouter(6, 600, 5),
        RetreeverRouter(6, 4, "mlp", "ancestors", "learned", 0.1, "cosine"),
    ],
)
def test_round_trip(tmp_path, router):
    save_router(drawn(router), tmp_path)
    loaded, texts = open_router(tmp_path), Encoded(np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32))
    for way in ("route", "place"):
        for found, wanted in zip(getattr(loaded, way)(texts, 3), getattr(opened(router), way)(texts, 3), strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert loaded.n_leaves == router.n_leaves


@pytest.mark.parametrize("splits", ["linear", "mlp", "attention"])
@pytest.mark.parametrize("propagation", ["product", "learned"])
def test_a_tree_in_numpy_is_the_tree_in_torch(splits, propagation):
    router = drawn(RetreeverRouter(6, 4, splits, "ancestors", propagation, 0.1, "cosine"))
    tree, texts, mask = opened(router), torch.randn(300, 5, 6), torch.ones(300, 5)
    with torch.no_grad():
        read = (texts, mask) if splits == "attention" else (texts[:, 0],)
        wanted = router.representations.tree(*read)[-1].numpy()
        scores = None if tree.reader is None else tree.reader(texts, mask).numpy()
    encoded = Encoded(texts[:, 0].numpy(), scores)
    np.testing.assert_allclose(tree.log_probs(encoded), wanted, atol=1e-5, rtol=1e-5)
    leaves, log_probs = tree.route(encoded, 5)
    np.testing.assert_allclose(log_probs, -np.sort(-wanted)[:, :5], atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(wanted, leaves, axis=1), log_probs, atol=1e-5, rtol=1e-5)


def test_another_type_is_refused(tmp_path):
    save_router(EhiRouter(6, 3, 1, "relu"), tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"ehi"', '"tiger"'))
    with pytest.raises(ValueError, match=r"config\.json: router type 'tiger'; allowed: 'ehi'"):
        open_router(tmp_path)


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
        assert opened(EhiRouter(4, branching, height, residual)).multiply_adds(beam) == wanted
    assert opened(RetreeverRouter(4, 3, "mlp", "ancestors", "product", 0.0, "tv")).multiply_adds(1) == 128 * 4 + 128 * 7
