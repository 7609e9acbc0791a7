"""Codecs in which faiss stores the vectors of a leaf, with their size.

    flat     4 bytes a dimension, as float32
    fp16     2 bytes; lossless for a leaf map that stores float16, and a scan reads half as much as with flat
    pq       4 bits for each 4 dimensions, scanned in the processor's registers (codebook.py)

Rows in `pq` are scored again by their stored vectors.
"""

import errno
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rayhier.cluster.kmeans import CAST_ROWS
from rayhier.cluster.library import faiss, ivf_tools
from rayhier.search.segment.codebook import Codebook
from rayhier.spec.search import Codec

LIST_AFTER_LIST = 11
"""faiss's number for the fast scan that goes from list to list for each query, with a reservoir of best rows."""


def fill(
    codec: Codec,
    vectors_NM: npt.NDArray[Any],
    leaf_N: npt.NDArray[np.int64],
    leaves: int,
    codebook: Codebook | None = None,
) -> Any:
    """Build a faiss index of vectors [n, m], of 16 or 32 bits, in `leaves` inverted lists. Row i has id i.

    `leaf_N` [n] is the leaf of each vector. `codebook` is needed for the codec `pq` alone.
    """
    if codec == "pq":
        if codebook is None:
            raise ValueError("codebook: got None; allowed: a codebook, where the codec is pq")
        return codebook.lists(vectors_NM, leaf_N, leaves)
    index = _empty(codec, vectors_NM.shape[1], leaves)
    add(index, vectors_NM, leaf_N)
    return index


def add(index: Any, vectors_NM: npt.NDArray[Any], leaf_N: npt.NDArray[np.int64]) -> None:
    """Add vectors [n, m], of 16 or 32 bits, to the lists `leaf_N` [n] of an index of codec flat or fp16."""
    # faiss keeps no reference: arrays that it reads need a name that outlives the call.
    for begin in range(0, len(vectors_NM), CAST_ROWS):
        vectors = np.ascontiguousarray(vectors_NM[begin : begin + CAST_ROWS], dtype=np.float32)
        lists = np.ascontiguousarray(leaf_N[begin : begin + CAST_ROWS], dtype=np.int64)
        ivf_tools.add_preassigned(index, vectors, lists)


def empty_like(index: Any, leaves: int) -> Any:
    if isinstance(index, faiss.IndexIVFPQFastScan):
        pieces = index.pq.M
        centroid_GCP = faiss.vector_to_array(index.pq.centroids).reshape(pieces, -1, index.d // pieces)
        return Codebook(index.d, centroid_GCP).empty_lists(leaves)
    return _empty("flat" if isinstance(index, faiss.IndexIVFFlat) else "fp16", index.d, leaves)


def for_one_query(index: Any) -> Any:
    """Return an index over the same lists that searches a single query fastest.

    faiss's fast scan takes a list for all queries that probe it, which costs a single query half as much again.
    """
    if not isinstance(index, faiss.IndexIVFPQFastScan):
        return index
    alone = empty_like(index, index.nlist)
    alone.replace_invlists(index.invlists, False)
    alone.ntotal, alone.implem = index.ntotal, LIST_AFTER_LIST
    alone.referenced_objects = [*alone.referenced_objects, index]
    return alone


def stored(index: Any, number: int, begin: int, end: int) -> npt.NDArray[Any]:
    """Return the stored vectors [n, m] of the rows from `begin` to `end` of list `number`; of flat or fp16 alone.

    They have the codec's precision, and are faiss's own memory.
    """
    width, m = index.code_size, index.d
    codes = faiss.rev_swig_ptr(index.invlists.get_codes(number), end * width)
    vector_NM: npt.NDArray[Any] = codes[begin * width :].view(f"f{width // m}").reshape(-1, m)
    return vector_NM


def write(index: Any, path: Path) -> None:
    """Write a faiss index to a file. OSError, with the path, if it cannot be written."""
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:  # faiss' message has the place in its sources, then what happened
        cause = str(error).rpartition("failed: ")[2]
        raise OSError(errno.EIO, f"cannot be written ({cause}); is there space left?", str(path)) from None


def _empty(codec: Codec, m: int, leaves: int) -> Any:
    quantizer: Any = faiss.IndexFlatIP(m)
    measure = faiss.METRIC_INNER_PRODUCT
    if codec == "flat":
        index: Any = faiss.IndexIVFFlat(quantizer, m, leaves, measure)
    else:
        kind = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexIVFScalarQuantizer(quantizer, m, leaves, kind, measure, False)
    index.is_trained = True
    index.referenced_objects = [quantizer]
    return index
