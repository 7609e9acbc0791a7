"""Where the encoder runs, and in which arithmetic."""

import torch

from rayhier.spec import InputError
from rayhier.spec.encoder import Device, Precision


def resolve_device(device: Device) -> torch.device:
    """`auto` is CUDA in a process that sees such a device; InputError where `cuda` is asked and there is none."""
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise InputError("encoder.device: got 'cuda', but this process sees no CUDA device; allowed: auto or cpu")
    return torch.device("cuda" if has_cuda and device != "cpu" else "cpu")


def resolve(precision: Precision, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the device multiplies it in hardware, else float32."""
    match precision:
        case "float32":
            return torch.float32
        case "bfloat16":
            return torch.bfloat16
        case "float16":
            return torch.float16
        case "auto":
            return torch.bfloat16 if _multiplies_bfloat16(device) else torch.float32


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return any(bool(capabilities.get(name)) for name in ("avx512_bf16", "amx_bf16", "bf16"))
