"""A text as routers read it."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Encoded:
    """Texts as routers read them."""

    vectors: Tensor
    """Unit vectors [n, m]."""
    tokens: Tensor | None = None
    """Token vectors [n, t, m], for routers that read tokens."""
    mask: Tensor | None = None
    """1 on tokens, 0 on padding: [n, t]."""
