"""What turns queries and documents into vectors and learns to: a head on stored vectors, or the encoder itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rayhier.model.encoder import ResidualHead, save_encoder
from rayhier.search.lists import Ints
from rayhier.storage.columns import Floats

Side = Literal["query", "document", "dev"]
"""Training queries, documents, dev queries."""
BATCH = 16384


class Tower(Protocol):
    """Encodes rows of each side."""

    @property
    def module(self) -> nn.Module:
        """Holds what learns."""

    @property
    def device(self) -> torch.device:
        """Where vectors come out."""

    def size(self, side: Side) -> int:
        """Rows of a side."""

    def encode(self, side: Side, rows: Ints) -> Tensor:
        """Vectors [n, m] of rows, with gradient."""

    def infer(self, side: Side, rows: Ints) -> Tensor:
        """Vectors [n, m] of rows, without."""

    def save(self, base: Path, max_length: int, folder: Path) -> None:
        """Write the trained encoder as a sentence-transformers folder; `base` is the untrained one's."""


class HeadTower:
    """A residual head on stored vectors of the frozen encoder: embed once, train in seconds (ours)."""

    def __init__(self, head: ResidualHead, stored: Mapping[Side, Floats], device: torch.device) -> None:
        self.module = head.to(device)
        self.stored = stored
        self.device = device

    def size(self, side: Side) -> int:
        """Rows of a side."""
        return len(self.stored[side])

    def encode(self, side: Side, rows: Ints) -> Tensor:
        """Trained vectors of stored ones."""
        vectors: Tensor = self.module(torch.from_numpy(self.stored[side][rows]).to(self.device))
        return vectors

    @torch.no_grad()
    def infer(self, side: Side, rows: Ints) -> Tensor:
        """The same in batches, so that memory does not grow with n."""
        parts = [self.encode(side, part) for part in np.array_split(rows, max(1, -(-len(rows) // BATCH)))]
        return torch.cat(parts)

    def save(self, base: Path, max_length: int, folder: Path) -> None:
        """The base encoder with the head behind it."""
        save_encoder(base, self.module, max_length, folder)
