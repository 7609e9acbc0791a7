"""Encoded texts, as routers read them: one vector each, and for routers that read tokens, token vectors."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats, Ints


@dataclass(frozen=True)
class Encoded:
    """Encoded texts, row by row."""

    vectors: Tensor
    """Vectors [n, m]."""
    tokens: Tensor | None = None
    """Token vectors [n, t, m], for routers that read tokens."""
    mask: Tensor | None = None
    """1 on tokens, 0 on padding: [n, t]."""

    @classmethod
    def of(cls, vector_NM: Floats) -> Self:
        """Encoded texts with vectors [n, m] only, without token vectors."""
        return cls(torch.from_numpy(np.asarray(vector_NM)))

    @property
    def numpy(self) -> Floats:
        """Vectors [n, m] as a float32 array."""
        return np.asarray(self.vectors.float().cpu().numpy())

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: slice | Ints | Tensor) -> "Encoded":
        place = rows if isinstance(rows, slice) else torch.as_tensor(rows)
        return Encoded(*(None if one is None else one[place] for one in (self.vectors, self.tokens, self.mask)))  # type: ignore[arg-type]

    def to(self, device: torch.device) -> "Encoded":
        """Copy to a device; float16 vectors become float32."""
        tokens, mask = (None if one is None else one.to(device) for one in (self.tokens, self.mask))
        vectors = self.vectors.to(device)
        return Encoded(vectors.float() if vectors.dtype == torch.float16 else vectors, tokens, mask)
