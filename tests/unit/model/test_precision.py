"""`auto` is bfloat16 only where the processor multiplies it."""

import pytest
import torch

from rayhier.model.precision import resolve

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("capabilities", "wanted"),
    [
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": True, "avx512_bf16": False}, torch.bfloat16),
        ({"bf16": True}, torch.bfloat16),
        ({"avx512_bf16": False, "amx_bf16": False, "avx2": True}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_auto(monkeypatch, capabilities, wanted):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert resolve("auto", CPU) == wanted


def test_a_named_precision_is_kept(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert resolve("float32", CPU) == torch.float32
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    assert resolve("bfloat16", CPU) == torch.bfloat16
