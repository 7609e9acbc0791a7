"""Type names of the numpy arrays that modules pass on. Variable names end in their shape: `vector_NM` is [N, M]."""

import math
import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float64]
"""Array of measures such as recall, and of statistics computed from measures."""
Names = npt.NDArray[np.object_]
"""Array of ids of documents or queries, as Python strings."""

IN_MEMORY = 1 << 30
"""Largest number of bytes of an array of vectors that a process holds in memory. Larger arrays lie in files."""


def for_vectors(*shape: int) -> Floats:
    """Make an array to be filled with vectors: float32 in memory, or float16 in a file if the array is large."""
    small = math.prod(shape) * 4 <= IN_MEMORY
    return np.empty(shape, np.float32) if small else mapped(shape, np.float16)


def mapped(shape: tuple[int, ...], kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Make an array in an unnamed temporary file, which needs no clean-up. The system can take the memory back."""
    with tempfile.TemporaryFile() as file:  # the mapping outlives the file's handle
        if hasattr(os, "posix_fallocate"):  # a full disk fails here, and does not end the process later
            os.posix_fallocate(file.fileno(), 0, math.prod(shape) * np.dtype(kind).itemsize)
        return np.asarray(np.memmap(file, kind, "w+", shape=shape))
