"""Encoded texts as routers take them: a vector of each text, and for some routers scores of its tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats, Ints

Reader = Callable[[Tensor, Tensor], Tensor]
"""A router's function from tokens' vectors [n, t, m] and a mask [n, t], 1 on tokens, to texts' scores [n, w]."""


@dataclass(frozen=True)
class Encoded:
    vectors: Tensor
    token_scores: Tensor | None = None
    """Scores [n, w] by the router's reader. None if a router reads vectors."""

    @classmethod
    def of(cls, vector_NM: Floats) -> Self:
        encoded = cls(torch.from_numpy(np.asarray(vector_NM)))
        if encoded.vectors.dtype == torch.float32:
            vars(encoded)["numpy"] = vector_NM  # known already, and torch takes long for a single vector
        return encoded

    @cached_property
    def numpy(self) -> Floats:
        return np.asarray(self.vectors.float().cpu().numpy())

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: slice | Ints | Tensor) -> "Encoded":
        place = rows if isinstance(rows, slice) else torch.as_tensor(rows)
        return Encoded(self.vectors[place], None if self.token_scores is None else self.token_scores[place])

    def to(self, device: torch.device) -> "Encoded":
        """Copy to a device. Float16 vectors become float32."""
        vectors = self.vectors.to(device)
        token_scores = None if self.token_scores is None else self.token_scores.to(device)
        return Encoded(vectors.float() if vectors.dtype == torch.float16 else vectors, token_scores)
