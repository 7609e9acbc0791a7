"""Hold encoded texts for routers: a vector of each text, and for some routers scores of its tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rayhier.arrays import Floats, Ints

Reader = Callable[[Any, Any], Any]
"""Function of a router, in torch, that maps tokens' vectors [n, t, m] and a mask [n, t] to scores [n, w]."""


@dataclass(frozen=True)
class Encoded:
    source: Floats
    """Vectors [n, m], float16 or float32."""
    token_scores: Floats | None = None
    """Scores [n, w] by the router's reader. None if a router reads vectors."""

    @cached_property
    def numpy(self) -> Floats:
        return np.asarray(self.source, np.float32)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, rows: slice | Ints) -> "Encoded":
        return Encoded(self.source[rows], None if self.token_scores is None else self.token_scores[rows])
