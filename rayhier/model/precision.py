"""Which arithmetic the encoder runs in."""

from typing import Literal

import torch

Precision = Literal["auto", "float32", "bfloat16"]


def resolve(precision: Precision, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the device multiplies it in hardware, else float32."""
    match precision:
        case "float32":
            return torch.float32
        case "bfloat16":
            return torch.bfloat16
        case "auto":
            return torch.bfloat16 if _multiplies_bfloat16(device) else torch.float32


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return any(bool(capabilities.get(name)) for name in ("avx512_bf16", "amx_bf16", "bf16"))
