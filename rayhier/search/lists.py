"""Leaf scanning: faiss inverted lists that a router, not a quantizer, chooses among."""

import numpy as np
import numpy.typing as npt

from rayhier.cluster.library import faiss, ivf_tools
from rayhier.storage.columns import Floats

Ints = npt.NDArray[np.int64]


class LeafLists:
    """Unit vectors [n, m] in leaves; rows of the matrix are the documents' numbers."""

    def __init__(self, vectors_NM: Floats, leaf_N: Ints, n_leaves: int) -> None:
        m = vectors_NM.shape[1]
        self.sizes: Ints = np.bincount(leaf_N, minlength=n_leaves).astype(np.int64)
        self._quantizer = faiss.IndexFlatIP(m)
        self._index = faiss.IndexIVFFlat(self._quantizer, m, n_leaves, faiss.METRIC_INNER_PRODUCT)
        self._index.is_trained = True
        # faiss holds no reference: what it reads needs a name that outlives the call.
        vectors = np.ascontiguousarray(vectors_NM, dtype=np.float32)
        leaves = np.ascontiguousarray(leaf_N, dtype=np.int64)
        ivf_tools.add_preassigned(self._index, vectors, leaves)

    def search(self, query_QM: Floats, leaves_QB: Ints, k: int) -> tuple[Floats, Ints]:
        """Scores [q, k] and rows [q, k] of the best documents in each query's leaves [q, β].

        Where the leaves hold fewer than k, the rest is row -1 and score -inf.
        """
        self._index.nprobe = leaves_QB.shape[1]
        queries = np.ascontiguousarray(query_QM, dtype=np.float32)
        leaves = np.ascontiguousarray(leaves_QB, dtype=np.int64)
        scores, rows = ivf_tools.search_preassigned(self._index, queries, k, leaves)
        scores[rows < 0] = -np.inf
        return scores, rows

    def visited(self, leaves_QB: Ints) -> Ints:
        """Documents scored for each query [q]: counted, not estimated."""
        return np.asarray(self.sizes[leaves_QB].sum(axis=1))
