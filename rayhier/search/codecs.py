"""Codecs in which faiss stores the vectors of a leaf, with their size and their loss of precision.

    flat     4 bytes a dimension, as float32
    fp16     2 bytes; lossless for a leaf map that stores float16, and a scan reads half as much as with flat
    int8     1 byte, between the least and the greatest value of a dimension
    pq       4 bits for each 4 dimensions, scanned in the processor's registers (André et al., 2015)
    rabitq   1 bit a dimension and a few numbers a vector (Gao and Long, 2024)

Rows in codecs that lose precision are scored again by their stored vectors: `AGAIN` times as many as results wanted.
"""

import errno
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rayhier.cluster.kmeans import CAST_ROWS, leaf_means
from rayhier.cluster.library import faiss, ivf_tools
from rayhier.spec.search import Codec

AGAIN: dict[Codec, int] = {"flat": 0, "fp16": 0, "int8": 4, "pq": 16, "rabitq": 32}
"""Number of rows scored again for each result wanted; 0 for codecs that need no second scores."""
FEWEST_CODED = 1_000
"""Fewest vectors with which a codec's code is learned; fewer vectors are stored as fp16."""
MOST_CODED = 100_000
"""Most vectors from which a codec's code is learned."""
PQ_DIMENSIONS = 4
SEED = 0


def fill(codec: Codec, vectors_NM: npt.NDArray[Any], leaf_N: npt.NDArray[np.int64], leaves: int) -> Any:
    """Build a faiss index of vectors [n, m], of 16 or 32 bits, in `leaves` inverted lists; row i has id i.

    `leaf_N` [n] is the leaf of each vector. The codec `rabitq` codes a vector relative to its leaf's mean.
    """
    m = vectors_NM.shape[1]
    quantizer: Any = faiss.IndexFlatIP(m)
    if codec == "rabitq":
        quantizer.add(leaf_means(vectors_NM, leaf_N, leaves))
    index: Any = _empty(codec if len(vectors_NM) >= FEWEST_CODED or codec == "flat" else "fp16", quantizer, m, leaves)
    # faiss keeps no reference: arrays that it reads need a name that outlives the call.
    if not index.is_trained:
        rows = np.random.default_rng(SEED).permutation(len(vectors_NM))[:MOST_CODED]
        sample = np.ascontiguousarray(vectors_NM[np.sort(rows)], dtype=np.float32)
        index.train(sample)
    for begin in range(0, len(vectors_NM), CAST_ROWS):
        vectors = np.ascontiguousarray(vectors_NM[begin : begin + CAST_ROWS], dtype=np.float32)
        lists = np.ascontiguousarray(leaf_N[begin : begin + CAST_ROWS], dtype=np.int64)
        ivf_tools.add_preassigned(index, vectors, lists)
    if isinstance(index, faiss.IndexIVFPQ):
        quantizer, index = (index, quantizer), faiss.IndexIVFPQFastScan(index)
    index.referenced_objects = [quantizer]
    return index


def write(index: Any, path: Path) -> None:
    """Write a faiss index to a file; OSError, with the path, where it cannot be written."""
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:  # faiss' message has the place in its sources, then what happened
        cause = str(error).rpartition("failed: ")[2]
        raise OSError(errno.EIO, f"cannot be written ({cause}); is there space left?", str(path)) from None


def _empty(codec: Codec, quantizer: Any, m: int, leaves: int) -> Any:
    measure = faiss.METRIC_INNER_PRODUCT
    match codec:
        case "flat":
            index: Any = faiss.IndexIVFFlat(quantizer, m, leaves, measure)
            index.is_trained = True
        case "fp16" | "int8":
            kind = faiss.ScalarQuantizer.QT_fp16 if codec == "fp16" else faiss.ScalarQuantizer.QT_8bit
            index = faiss.IndexIVFScalarQuantizer(quantizer, m, leaves, kind, measure, False)
            index.is_trained = codec == "fp16"
        case "pq":
            pieces = next(count for count in range(max(1, m // PQ_DIMENSIONS), 0, -1) if m % count == 0)
            index = faiss.IndexIVFPQ(quantizer, m, leaves, pieces, 4, measure)
            index.by_residual = False
        case "rabitq":
            index = faiss.IndexIVFRaBitQ(quantizer, m, leaves, measure)
    return index
