"""Results that are kept under keys, so that an interrupted benchmark goes on."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rayhier.job.stages import STAGES
from rayhier.storage import files

VERSION = 2
"""Raised when a benchmark counts in another way what it keeps."""


def key(*parts: Any) -> str:
    """16 hex digits of all that a result depends on: the code's versions, and parts that JSON can hold.

    >>> key({"seed": 0}) == key({"seed": 0}), key({"seed": 0}) == key({"seed": 1})
    (True, False)
    """
    text = json.dumps([VERSION, {name: stage.code for name, stage in STAGES.items()}, *parts], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def keep(path: Path, values: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays to an .npz file that is there as a whole or not at all."""

    def write(place: Path) -> None:
        with place.open("wb") as opened:
            np.savez(opened, **values)  # type: ignore[arg-type]

    files.write(path, write)


def kept(path: Path, make: Callable[[], Mapping[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    """Arrays by name, made now or read from an earlier run."""
    if not path.is_file():
        keep(path, make())
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}
