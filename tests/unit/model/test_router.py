"""Routers survive a round trip through their folder."""

import json

import pytest
import torch
from safetensors.torch import save_file

from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import load_router, save_router


@pytest.mark.parametrize(("height", "residual"), [(1, "relu"), (2, "none"), (3, "relu")])
def test_round_trip(tmp_path, height, residual):
    torch.manual_seed(height)
    router = EhiRouter(6, 3, height, residual)
    for parameter in router.parameters():
        torch.nn.init.normal_(parameter)
    save_router(router, tmp_path / "router")
    loaded = load_router(tmp_path / "router")
    texts = Encoded(torch.randn(5, 6))
    for found, wanted in zip(loaded.route(texts, 4), router.route(texts, 4), strict=True):
        assert torch.equal(found, wanted)
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def test_an_unknown_type_is_refused(tmp_path):
    save_router(EhiRouter(6, 3, 1, "relu"), tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"ehi"', '"tiger"'))
    with pytest.raises(ValueError, match=r"config\.json: router type 'tiger'; allowed: 'ehi'"):
        load_router(tmp_path)


def test_weights_of_another_shape_are_refused(tmp_path):
    save_router(EhiRouter(6, 3, 1, "relu"), tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"branching": 3', '"branching": 4'))
    with pytest.raises(RuntimeError, match="size mismatch"):
        load_router(tmp_path)


def test_a_router_of_0_2_0_is_read(tmp_path):
    router = LearnedIvfRouter(6, 3, 2)
    save_router(router, tmp_path)
    named = {f"{name}.0" if name in "Wb" else name: tensor for name, tensor in router.state_dict().items()}
    save_file({**named, "reach_T": torch.zeros(101)}, tmp_path / "router.safetensors")
    old = {"type": "learned_ivf", "dimension": 6, "branching": 3, "height": 1, "rank": 2, "groups": 0}
    (tmp_path / "config.json").write_text(json.dumps(old))
    for name, tensor in load_router(tmp_path).state_dict().items():
        assert torch.equal(tensor, router.state_dict()[name])
    (tmp_path / "config.json").write_text(json.dumps({**old, "height": 2}))
    with pytest.raises(ValueError, match="several levels"):
        load_router(tmp_path)
