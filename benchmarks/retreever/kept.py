"""Arrays that are measured once and kept."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks import cache

Array = npt.NDArray[np.float64]


def kept(path: Path, make: Callable[[], Mapping[str, npt.NDArray[np.float64]]]) -> dict[str, Array]:
    """Arrays by name, measured now or read from an earlier run."""
    if not path.is_file():
        cache.keep(path, make())
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}
