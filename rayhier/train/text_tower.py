"""The encoder itself, its last layer or all of it, as what learns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from rayhier.embed.encode import TextEncoder
from rayhier.model.encoder import save_trained
from rayhier.search.lists import Ints
from rayhier.train.tower import Side


class TextTower:
    """A transformer that trains on texts. Dropout is off: a step is a function of its batch alone.

    `encoder` holds float32 weights; `dtype` is the arithmetic of its forward pass (torch.autocast).
    """

    def __init__(
        self,
        encoder: TextEncoder,
        which: Literal["last_layer", "all"],
        texts: Mapping[Side, pa.ChunkedArray],
        dtype: torch.dtype,
    ) -> None:
        self.encoder, self.texts, self.dtype = encoder, texts, dtype
        self.module = encoder.encoder
        self.module.trainable(which)

    @property
    def device(self) -> torch.device:
        """Where vectors come out."""
        return self.encoder.device

    def size(self, side: Side) -> int:
        """Rows of a side."""
        return len(self.texts[side])

    def encode(self, side: Side, rows: Ints) -> Tensor:
        """Vectors of the rows' texts."""
        if not len(rows):
            return torch.zeros(0, self.encoder.dimension, device=self.device)
        tokens = self.encoder.tokenise(self._texts(side, rows))
        order = np.argsort([-len(ids) for ids in tokens], kind="stable")
        with self._autocast():
            vectors: Tensor = self.module(*self.encoder.padded([tokens[row] for row in order])).float()
        back = torch.from_numpy(np.argsort(order)).to(self.device)
        return vectors[back]

    def infer(self, side: Side, rows: Ints) -> Tensor:
        """The same by the one encoding path."""
        with self._autocast():
            return torch.from_numpy(self.encoder.encode(self._texts(side, rows))).to(self.device)

    def save(self, base: Path, max_length: int, folder: Path) -> None:  # noqa: ARG002  the whole encoder is its own
        """All of the trained encoder."""
        save_trained(self.module, max_length, folder)

    def _texts(self, side: Side, rows: Ints) -> list[str]:
        texts: list[str] = self.texts[side].take(pa.array(rows)).to_pylist()
        return texts

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
