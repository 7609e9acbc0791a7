"""Measure how evenly documents are spread over leaves."""

import numpy as np

from rayhier.arrays import Ints


def balance(size_L: Ints) -> dict[str, float]:
    """Compute leaves, empty leaves and imbalance L·Σn²/(Σn)² (faiss's definition; 1 = even) from leaf sizes [L].

    >>> balance(np.array([2, 2, 0, 4]))
    {'leaves': 4, 'empty': 1, 'imbalance': 1.5}
    """
    sizes = size_L.astype(np.float64)
    imbalance = len(sizes) * np.square(sizes).sum() / max(sizes.sum(), 1) ** 2
    return {"leaves": len(sizes), "empty": int((sizes == 0).sum()), "imbalance": float(imbalance)}
