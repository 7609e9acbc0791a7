"""Find the GPU on which this process may compute, without loading torch where there is none."""

from functools import cache
from pathlib import Path

DRIVERS = "/dev/nvidiactl", "/dev/dxg"
"""Files that the drivers of NVIDIA's GPUs make. Without them, torch need not be loaded to look for a GPU."""


@cache
def gpu() -> str | None:
    """Return the device on which this process may compute: "cuda", or None for the CPU."""
    if not any(Path(driver).exists() for driver in DRIVERS):
        return None
    try:
        from rayhier.model.precision import best_device
    except ImportError:  # torch is not installed
        return None
    return "cuda" if best_device().type == "cuda" else None
