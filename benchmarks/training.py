"""Phases of a training that run in this process, and the vectors of a trained head."""

import time
from pathlib import Path

import numpy as np
import torch

from rayhier.arrays import Floats
from rayhier.storage import files
from rayhier.train.loop import Loop, Phase

SAVED_SECONDS = 60.0
"""Seconds between two states that are kept of a training that goes on."""


def train(phase: Phase, path: Path | None = None, *, last: bool = False) -> Loop:
    """Run all passes. Then go back to the best weights on dev, or keep those of the last pass if `last` is True.

    If there is a path, the result is kept there, and passes are run once.

    A training that was interrupted goes on from a pass of its last minute.
    """
    loop = Loop(phase)
    if path is not None and path.is_file():
        loop.load(path)
    saved = time.monotonic()
    while not loop.ended:
        if loop.started:
            loop.run_epoch()
        else:
            loop.start()
        if path is not None and (loop.ended or time.monotonic() - saved >= SAVED_SECONDS):
            files.write(path, loop.save)
            saved = time.monotonic()
    if not last:
        loop.restore_best()
    phase.finish()
    return loop


@torch.no_grad()
def encode(module: torch.nn.Module, vector_QM: Floats) -> Floats:
    """Vectors [q, m] as a trained head maps them."""
    return np.asarray(module(torch.from_numpy(np.ascontiguousarray(vector_QM))).numpy())
