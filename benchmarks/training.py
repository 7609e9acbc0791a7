"""Phases of a training carried out in this process, and what a trained head makes of vectors."""

from pathlib import Path

import numpy as np
import torch

from rayhier.arrays import Floats
from rayhier.storage import files
from rayhier.train.loop import Loop, Phase


def train(phase: Phase, path: Path | None = None) -> Loop:
    """Carry out every pass, then go back to the best on dev; with a path, passes are made once and kept there."""
    loop = Loop(phase)
    if path is not None and path.is_file():
        loop.load(path)
    else:
        loop.start()
        while not loop.ended:
            loop.run_epoch()
        if path is not None:
            files.write(path, loop.save)
    loop.restore_best()
    phase.finish()
    return loop


@torch.no_grad()
def encode(module: torch.nn.Module, vector_QM: Floats) -> Floats:
    """Vectors [q, m] as a trained head maps them."""
    return np.asarray(module(torch.from_numpy(vector_QM)).numpy())
