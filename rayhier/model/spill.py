"""Choose a document's second leaf by SOAR (Sun et al., 2023): the residuals to both leaves should not be parallel."""

import numpy as np

from rayhier.arrays import Floats

WEIGHT = 1.0
"""λ, the weight in SOAR's loss of the part of a residual that is parallel to the first leaf's residual."""
CANDIDATES = 32
"""Number of nearest leaves, including the first leaf, from which the second leaf is chosen."""
VECTORS = 64
"""Number of documents whose second leaf is chosen at a time. Centroids then fit in the cache: three times as fast."""


def second_leaves(
    vectors_NM: Floats,
    leaf_NC: np.ndarray,
    centroids_LM: Floats,
    price_L: Floats | None = None,
    border: float | None = None,
) -> np.ndarray:
    """Choose each document's second leaf among its nearest leaves [n, c]. Returns the column [n] of this leaf, from 1.

    A leaf's price keeps leaves even in size. A leaf scores cosine - price. If the best two scores differ by more than
    `border`, the document has no second leaf (column 0). The choice minimises `|r'|² + λ (r'·r / |r|)² + 2 price`. The
    document's unit vector differs by r from the first centroid, and by r' from the candidate's.
    """
    prices = np.zeros(len(centroids_LM), np.float32) if price_L is None else price_L
    if border is not None:
        near = gaps(vectors_NM, leaf_NC, centroids_LM, prices) <= border
        places = np.zeros(len(leaf_NC), dtype=np.int64)
        places[near] = second_leaves(vectors_NM[near], leaf_NC[near], centroids_LM, prices)
        return places
    parts = range(0, len(vectors_NM), VECTORS)
    chosen = [_soar(vectors_NM[i : i + VECTORS], leaf_NC[i : i + VECTORS], centroids_LM, prices) for i in parts]
    return np.concatenate(chosen) if chosen else np.empty(0, np.int64)


def gaps(vectors_NM: Floats, leaf_NC: np.ndarray, centroids_LM: Floats, price_L: Floats) -> Floats:
    """Compute the differences [n] of (cosine - price) between documents' first and next leaves."""
    unit_NM = _unit(vectors_NM)
    first_N, next_N = (
        np.einsum("nm,nm->n", unit_NM, centroids_LM[leaf_N]) - price_L[leaf_N] for leaf_N in leaf_NC[:, :2].T
    )
    return np.asarray(first_N - next_N)


def _unit(vectors_NM: Floats) -> Floats:
    return np.asarray(vectors_NM / np.maximum(np.linalg.norm(vectors_NM, axis=1, keepdims=True), 1e-12))


def _soar(vectors_NM: Floats, leaf_NC: np.ndarray, centroids_LM: Floats, price_L: Floats) -> np.ndarray:
    # Centroids are unit vectors, so residuals to them are meaningful only for unit vectors.
    residual_NCM = _unit(vectors_NM)[:, None, :] - centroids_LM[leaf_NC]
    first_NM = residual_NCM[:, 0]
    length_N1 = np.maximum(np.linalg.norm(first_NM, axis=1, keepdims=True), 1e-12)
    candidate_NCM = residual_NCM[:, 1:]
    parallel_NC = np.einsum("ncm,nm->nc", candidate_NCM, first_NM / length_N1)
    loss_NC = np.square(candidate_NCM).sum(axis=2) + WEIGHT * np.square(parallel_NC)
    # |x - c|² = 2 - 2 cos, so a price in cosine counts twice.
    return np.asarray(1 + (loss_NC + 2 * price_L[leaf_NC[:, 1:]]).argmin(axis=1))
