"""Encoded texts as routers take them: a vector of each text, and for some routers scores of its tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats, Ints

Reader = Callable[[Tensor, Tensor], Tensor]
"""A router's function from tokens' vectors [n, t, m] and a mask [n, t], 1 on tokens, to texts' scores [n, w]."""


@dataclass(frozen=True)
class Encoded:
    """Vectors [n, m] of texts, as an array or a tensor. The other form is made at first use."""

    source: Tensor | Floats
    token_scores: Tensor | None = None
    """Scores [n, w] by the router's reader. None if a router reads vectors."""

    @cached_property
    def vectors(self) -> Tensor:
        if not isinstance(self.source, np.ndarray):
            return self.source
        is_writeable = self.source.flags.writeable  # arrays from Ray are not, as torch would warn
        return torch.from_numpy(self.source if is_writeable else self.source.copy())

    @cached_property
    def numpy(self) -> Floats:
        if isinstance(self.source, np.ndarray):
            return np.asarray(self.source, np.float32)
        return np.asarray(self.source.float().cpu().numpy())

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, rows: slice | Ints) -> "Encoded":
        return Encoded(self.source[rows], None if self.token_scores is None else self.token_scores[rows])

    def to(self, device: torch.device) -> "Encoded":
        """Copy to a device. Float16 vectors become float32."""
        vectors = self.vectors.to(device)
        token_scores = None if self.token_scores is None else self.token_scores.to(device)
        return Encoded(vectors.float() if vectors.dtype == torch.float16 else vectors, token_scores)
