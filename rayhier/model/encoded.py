"""Encoded texts, as routers read them: one vector each, and where a router reads tokens, its scores of these."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats, Ints

Reader = Callable[[Tensor, Tensor], Tensor]
"""Tokens' vectors [n, t, m] and a mask [n, t], 1 on tokens -> scores [n, w], a router's only input from tokens."""


@dataclass(frozen=True)
class Encoded:
    """Encoded texts, row by row."""

    vectors: Tensor
    """Vectors [n, m]."""
    token_scores: Tensor | None = None
    """Scores [n, w] that the router's reader gives the texts' tokens, for routers that read tokens."""

    @classmethod
    def of(cls, vector_NM: Floats) -> Self:
        """Encoded texts with vectors [n, m] only."""
        return cls(torch.from_numpy(np.asarray(vector_NM)))

    @property
    def numpy(self) -> Floats:
        """Vectors [n, m] as a float32 array."""
        return np.asarray(self.vectors.float().cpu().numpy())

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: slice | Ints | Tensor) -> "Encoded":
        place = rows if isinstance(rows, slice) else torch.as_tensor(rows)
        return Encoded(self.vectors[place], None if self.token_scores is None else self.token_scores[place])

    def to(self, device: torch.device) -> "Encoded":
        """Copy to a device; float16 vectors become float32."""
        vectors = self.vectors.to(device)
        token_scores = None if self.token_scores is None else self.token_scores.to(device)
        return Encoded(vectors.float() if vectors.dtype == torch.float16 else vectors, token_scores)
