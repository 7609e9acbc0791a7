"""What documents are placed by: each by itself, now or when it is added later."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Cells:
    """Centroids of leaves, what a crowded one costs, and who lies in two."""

    centroid_LM: Tensor
    """Unit vectors [leaves, m]; zero for a leaf that held no document."""
    price_L: Tensor
    """What is taken from a document's cosine to each centroid [leaves]."""
    border: float
    """A document lies in a second leaf if its two best cosines, after price, differ by no more than this."""
    compared: int
    """Leaves that a document is compared with, about."""
