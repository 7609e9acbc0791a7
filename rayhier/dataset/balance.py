"""Measure how evenly rows are spread over leaves."""

import numpy as np

from rayhier.arrays import Ints


def balance(size_L: Ints) -> dict[str, float]:
    """Count leaves and empty leaves, and compute the imbalance, from the number n of rows in each leaf, [L].

    Imbalance is L·Σn²/(Σn)², as in faiss. Imbalance is 1 if all leaves have the same size.

    >>> balance(np.array([2, 2, 0, 4]))
    {'leaves': 4, 'empty': 1, 'imbalance': 1.5}
    """
    sizes = size_L.astype(np.float64)
    imbalance = len(sizes) * np.square(sizes).sum() / max(sizes.sum(), 1) ** 2
    return {"leaves": len(sizes), "empty": int((sizes == 0).sum()), "imbalance": float(imbalance)}
