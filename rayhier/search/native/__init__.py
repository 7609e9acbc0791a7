"""The scan of rows in lists: by a native extension, or by numpy if there is no extension.

The extension is the module `rayhier_native`, outside the package `rayhier`, because a job's own sources may shadow an
installed package. `reference.py` defines what both implementations compute.
"""

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from rayhier.progress import say
from rayhier.search.native import reference
from rayhier.search.native.reference import CodedFile
from rayhier.threads import get_threads

ABI = 2
"""Version of the extension's interface that this package calls."""
FEWEST_A_THREAD = 8
"""Fewest queries for each thread of a scan. With fewer than twice as many queries, a scan has one thread."""


@cache
def extension() -> Any:
    """Return the extension. None, after a notice, if it is missing or has another version."""
    try:
        rayhier_native = importlib.import_module("rayhier_native")
    except ImportError as error:
        reason = str(error)
    else:
        if rayhier_native.ABI == ABI:
            return rayhier_native
        reason = f"rayhier_native has version {rayhier_native.ABI}, not {ABI}"
    say(f"search: numpy scans the index, which takes longer ({reason})")
    return None


def form() -> str:
    """Return the name of the code that scans: `numpy`, or the native kernel that fits this processor best."""
    return "numpy" if extension() is None else f"native code ({extension().kernels()[0]})"


def scanned_rows(dimension: int, leaves: int, files: Sequence[CodedFile]) -> Any:
    """Open rows for scans: `reference.CodedRows`, or the extension's class with the same methods."""
    kind = reference.CodedRows if extension() is None else extension().CodedRows
    return kind(dimension, leaves, [tuple(file) for file in files])


def columns(files: Sequence[Sequence[Any]]) -> Any:
    """Open columns to read single rows: `reference.Columns`, or the extension's class with the same method."""
    kind = reference.Columns if extension() is None else extension().Columns
    return kind(files)


def threads_for(queries: int) -> int:
    most = queries // FEWEST_A_THREAD
    return min(get_threads(), most) if most > 1 else 1
