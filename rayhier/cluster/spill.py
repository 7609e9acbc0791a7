"""A second leaf for a document: the next best, or SOAR's.

Sun et al., "SOAR: Improved Indexing for Approximate Nearest Neighbor Search" (2023): a query that misses a document's
first leaf does so because of the residual r = x - c; the second leaf is therefore chosen so that its own residual is
not parallel to r.
"""

from typing import Literal

import numpy as np

from rayhier.storage.columns import Floats

Spill = Literal["soar", "next_best"]
WEIGHT = 1.0
"""λ of SOAR's parallel part."""
CANDIDATES = 32
"""Next-best leaves among which a second one is chosen."""
CHUNK = 8192


def second_leaves(vectors_NM: Floats, leaf_NC: np.ndarray, centroids_LM: Floats, spill: Spill) -> np.ndarray:
    """Place [n], 1 or more, of each document's second leaf among its candidate leaves [n, c], the first leaf first.

    `soar` takes the least |r'|² + λ (r'·r / |r|)², r and r' the residuals of the document's direction to the unit
    centroids [l, m] of the first and of the other leaf.
    """
    if spill == "next_best":
        return np.ones(len(leaf_NC), dtype=np.int64)
    parts = range(0, len(vectors_NM), CHUNK)
    chosen = [_soar(vectors_NM[i : i + CHUNK], leaf_NC[i : i + CHUNK], centroids_LM) for i in parts]
    return np.concatenate(chosen) if chosen else np.empty(0, np.int64)


def _soar(vectors_NM: Floats, leaf_NC: np.ndarray, centroids_LM: Floats) -> np.ndarray:
    # Centroids are unit vectors: against them a residual says something of unit vectors alone.
    unit_NM = vectors_NM / np.maximum(np.linalg.norm(vectors_NM, axis=1, keepdims=True), 1e-12)
    residual_NCM = unit_NM[:, None, :] - centroids_LM[leaf_NC]
    first_NM = residual_NCM[:, 0]
    length_N1 = np.maximum(np.linalg.norm(first_NM, axis=1, keepdims=True), 1e-12)
    other_NCM = residual_NCM[:, 1:]
    parallel_NC = np.einsum("ncm,nm->nc", other_NCM, first_NM / length_N1)
    loss_NC = np.square(other_NCM).sum(axis=2) + WEIGHT * np.square(parallel_NC)
    return np.asarray(1 + loss_NC.argmin(axis=1))
