"""`auto` is the faster of two arithmetics, measured once, and CUDA only where there is a device."""

import pytest
import torch

from rayhier.model import precision
from rayhier.model.precision import best_device, resolve

CPU = torch.device("cpu")
SLOW, FAST = {"bfloat16": 2, "float32": 1}, {"bfloat16": 1, "float32": 2}


@pytest.mark.parametrize(
    ("name", "capability", "times", "wanted", "measurements"),
    [
        ("auto", "avx512_bf16", SLOW, "float32", 1),
        ("auto", "amx_bf16", FAST, "bfloat16", 1),
        ("auto", "bf16", FAST, "bfloat16", 1),
        ("auto", "avx512_f", FAST, "float32", 0),
        ("float32", "bf16", FAST, "float32", 0),
        ("float16", "bf16", FAST, "float16", 0),
    ],
)
def test_auto_is_the_faster_measured_once(name, capability, times, wanted, measurements, monkeypatch):
    measured, seconds = [], {getattr(torch, kind): time for kind, time in times.items()}
    precision._faster.cache_clear()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {capability: True})
    monkeypatch.setattr(precision, "seconds", lambda device: measured.append(device) or seconds)
    assert [resolve(name, CPU) for _ in range(3)] == [getattr(torch, wanted)] * 3
    assert measured == [CPU] * measurements
    precision._faster.cache_clear()


def test_the_best_device(monkeypatch):
    for has_cuda, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_cuda=has_cuda: has_cuda)
        assert best_device() == torch.device(device)
