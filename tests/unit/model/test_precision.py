"""`auto` is the faster of two arithmetics, measured once, and CUDA only where there is a device."""

import pytest
import torch

from rayhier.model import precision
from rayhier.model.precision import best_device, resolve

CPU = torch.device("cpu")
BFLOAT16, FLOAT32 = torch.bfloat16, torch.float32


@pytest.fixture
def clocked(monkeypatch):
    """`clocked(capability, {dtype: seconds})`: what there is to measure; returns the list of measurements."""
    measured = []

    def set_up(capabilities, times):
        precision._faster.cache_clear()
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(capabilities, True))
        monkeypatch.setattr(precision, "seconds", lambda device: measured.append(device) or times)
        return measured

    yield set_up
    precision._faster.cache_clear()


@pytest.mark.parametrize(
    ("times", "wanted"), [({BFLOAT16: 0.002, FLOAT32: 0.001}, FLOAT32), ({BFLOAT16: 0.001, FLOAT32: 0.002}, BFLOAT16)]
)
@pytest.mark.parametrize("capability", ["avx512_bf16", "amx_bf16", "bf16"])
def test_auto_is_the_faster_measured_once(clocked, capability, times, wanted):
    measured = clocked([capability], times)
    assert [resolve("auto", CPU) for _ in range(3)] == [wanted] * 3
    assert measured == [CPU]


def test_what_cannot_multiply_bfloat16_measures_nothing(clocked):
    measured = clocked(["avx512_f", "avx2"], {BFLOAT16: 0.001, FLOAT32: 0.002})
    assert resolve("auto", CPU) == FLOAT32
    assert not measured


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_a_named_precision_is_kept_and_measures_nothing(clocked, name):
    measured = clocked(["avx512_bf16"], {BFLOAT16: 0.001, FLOAT32: 0.002})
    assert resolve(name, CPU) == getattr(torch, name)
    assert not measured


@pytest.mark.parametrize(("has_cuda", "device"), [(True, "cuda"), (False, "cpu")])
def test_the_best_device(monkeypatch, has_cuda, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    assert best_device() == torch.device(device)
