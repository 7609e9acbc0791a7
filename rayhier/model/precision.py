"""Choose the device and the number format (float32, bfloat16, float16) in which the encoder computes."""

import contextlib
import functools
import time
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import linear

from rayhier.spec.encoder import Precision

ROWS, M, INNER = {"cpu": 512, "cuda": 16_384}, 384, 1536
"""Size of the two layers that are timed, as in a small encoder. ROWS: number of tokens, by type of device. M: width of
a token's vector. INNER: width between the layers."""
ROUNDS = 4
"""Rounds of timing. The fastest round counts, because the first round initialises libraries."""


_uses_gpus = True


def best_device() -> torch.device:
    """Return CUDA if this process has a GPU and may use it, else the CPU."""
    return torch.device("cuda" if _uses_gpus and torch.cuda.is_available() else "cpu")


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Let `best_device` return the CPU in the block, as in a process of Ray that reserves no GPU."""
    global _uses_gpus
    _uses_gpus = False
    try:
        yield
    finally:
        _uses_gpus = True


def resolve(precision: Precision, device: torch.device) -> torch.dtype:
    """Choose the number format. `auto` is the faster of bfloat16 and float32, measured once per process."""
    match precision:
        case "float32":
            return torch.float32
        case "bfloat16":
            return torch.bfloat16
        case "float16":
            return torch.float16
        case "auto":
            return _faster(device)


@functools.cache
def _faster(device: torch.device) -> torch.dtype:
    if not _multiplies_bfloat16(device):
        return torch.float32
    least = seconds(device)
    return min(least, key=lambda dtype: least[dtype])


@torch.inference_mode()
def seconds(device: torch.device) -> dict[torch.dtype, float]:
    """Time two linear layers in bfloat16 and in float32. Returns the seconds of the fastest round for each."""
    rows = ROWS[device.type]
    operands = {
        dtype: tuple(torch.ones(shape, dtype=dtype, device=device) for shape in ((rows, M), (INNER, M), (M, INNER)))
        for dtype in (torch.bfloat16, torch.float32)
    }
    rounds = [{dtype: _timed(device, *operands[dtype]) for dtype in operands} for _ in range(ROUNDS)]
    return {dtype: min(times[dtype] for times in rounds) for dtype in operands}


def _timed(device: torch.device, x_NM: Tensor, wide_IM: Tensor, narrow_MI: Tensor) -> float:
    began = time.perf_counter()
    linear(linear(x_NM, wide_IM), narrow_MI)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return any(bool(capabilities.get(name)) for name in ("avx512_bf16", "amx_bf16", "bf16"))
