"""`auto` is bfloat16 only where the processor multiplies it, and CUDA only where there is a device."""

import pytest
import torch

from rayhier.model.precision import resolve, resolve_device
from rayhier.spec import InputError

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
    assert resolve("float16", CPU) == torch.float16


@pytest.mark.parametrize(
    ("asked", "has_cuda", "wanted"),
    [("auto", True, "cuda"), ("auto", False, "cpu"), ("cpu", True, "cpu"), ("cuda", True, "cuda")],
)
def test_device(monkeypatch, asked, has_cuda, wanted):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    assert resolve_device(asked) == torch.device(wanted)


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"encoder\.device: got 'cuda', .*allowed: auto or cpu"):
        resolve_device("cuda")
