"""Four-bit codes of vectors, which faiss scans in the processor's registers.

A vector is rotated so that its pieces say as much as they can each by itself (Ge et al., "Optimized Product
Quantization", 2013), and cut into pieces of four numbers. Each piece is replaced by the nearest of sixteen centroids. A
query's products with the centroids are a table, from which faiss adds up the vector's score (André et al., "Cache
locality is not enough", 2015). Scores by codes are near, not exact: the best rows are scored again by the stored
vectors.

Shapes: N vectors, M embedding size, P the embedding size rounded up to whole pieces, G pieces, C = 16 centroids of a
piece, L lists.
"""

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss, ivf_tools
from rayhier.storage import cache, columns
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.shard import Shard

PIECE, BITS = 4, 4
"""Numbers of a document's vector that one code stands for, and bits of a code."""
CENTROIDS = 1 << BITS
"""Centroids of a piece: what four bits can tell apart."""
FEWEST = 1_000
"""Fewest vectors for which a codebook is trained: fewer are compared as they are stored."""
MOST = 100_000
"""Most vectors from which the centroids are computed."""
AT_ONCE = 65_536
"""Vectors that are converted and coded at a time."""
SEED = 0
FORMAT = 3
CENTROID_FILE, ROTATION_FILE = "centroids.npy", "rotation.npy"
ROTATED, ROTATIONS = 30_000, 12
"""About the number of vectors from which a rotation is computed, and steps of its computation."""
RUNS = 64
"""Runs of consecutive rows that are sampled from a shard. Rows are sorted by leaf, so that a run is of few leaves."""
GROUP = 4_096
"""Rows of a row group, about, which is the least that is read: of a shard of fewer rows than RUNS x GROUP, all rows are
read once, not some of them again and again."""


@dataclass(frozen=True)
class Codebook:
    """The centroids of all pieces, by which vectors of a dimension are coded."""

    dimension: int
    centroid_GCP: Floats
    """Centroids [pieces, 16, numbers of a piece]."""
    rotation_PP: Floats | None = None
    """Rotation [p, p] of padded vectors, x R, before they are cut. None: none."""

    @classmethod
    def train(cls, vector_NM: npt.NDArray[Any], piece: int = PIECE, *, rotate: bool = False) -> Self:
        """Compute centroids of vectors [n, m], at least 624 as faiss asks, and the rotation where `rotate` says so.

        Equal vectors give equal centroids on one machine.
        """
        n, m = vector_NM.shape
        rows = np.sort(np.random.default_rng(SEED).permutation(n)[:MOST])
        book = cls(m, np.zeros((-(-m // piece), CENTROIDS, piece), np.float32))
        if rotate:
            some = rows[:: max(1, len(rows) // ROTATED)]
            book = replace(book, rotation_PP=_rotation(book.padded(vector_NM[some]), book.pieces))
        quantizer = book.quantizer()
        quantizer.train(book.padded(vector_NM[rows]))
        return replace(book, centroid_GCP=faiss.vector_to_array(quantizer.centroids).reshape(book.centroid_GCP.shape))

    @property
    def pieces(self) -> int:
        """Number of pieces, G, each with a code."""
        return len(self.centroid_GCP)

    @property
    def width(self) -> int:
        """Numbers of a padded vector, P."""
        return int(self.centroid_GCP.shape[0] * self.centroid_GCP.shape[2])

    @cached_property
    def name(self) -> str:
        """Digest of the centroids: equal for equal codebooks."""
        return hashlib.sha256(self.centroid_GCP.tobytes()).hexdigest()[:16]

    def save(self, folder: Path) -> None:
        """Write the centroids, and the rotation if there is one, to files of numpy's format."""
        np.save(folder / CENTROID_FILE, self.centroid_GCP)
        if self.rotation_PP is not None:
            np.save(folder / ROTATION_FILE, self.rotation_PP)

    @classmethod
    def load(cls, folder: Path, dimension: int) -> Self:
        rotation = folder / ROTATION_FILE
        return cls(dimension, np.load(folder / CENTROID_FILE), np.load(rotation) if rotation.exists() else None)

    def padded(self, vector_NM: npt.NDArray[Any]) -> Floats:
        """Convert vectors to contiguous float32 [n, p] as they are cut: zeros appended, and rotated.

        Products of vectors so converted are those of the vectors.
        """
        missing = self.width - vector_NM.shape[1]
        padded_NP = np.pad(vector_NM, ((0, 0), (0, missing))) if missing else vector_NM
        vector_NP = np.ascontiguousarray(padded_NP, dtype=np.float32)
        if self.rotation_PP is None:
            return vector_NP
        if len(vector_NP) == 1:
            return vector_NP @ self.rotation_PP
        # By torch: numpy's product of many wakes threads that then wait at the cost of faiss's.
        return (torch.tensor(vector_NP) @ torch.from_numpy(self.rotation_PP)).numpy()

    def flat(self, vector_NM: npt.NDArray[Any]) -> Any:
        """Code vectors [n, m]. Returns faiss's index of their codes, in which vector i has id i."""
        index: Any = faiss.IndexPQFastScan(self.width, self.pieces, BITS, faiss.METRIC_INNER_PRODUCT)
        index.pq, index.is_trained = self.quantizer(), True
        for begin in range(0, len(vector_NM), AT_ONCE):
            index.add(self.padded(vector_NM[begin : begin + AT_ONCE]))
        return index

    def lists(self, vector_NM: npt.NDArray[Any], leaf_N: Ints, leaves: int) -> Any:
        """Code vectors [n, m] into inverted lists, in which vector i has id i and lies in list `leaf_N[i]`."""
        quantizer: Any = faiss.IndexFlatIP(self.width)
        coded: Any = faiss.IndexIVFPQ(quantizer, self.width, leaves, self.pieces, BITS, faiss.METRIC_INNER_PRODUCT)
        coded.by_residual, coded.pq, coded.is_trained = False, self.quantizer(), True
        for begin in range(0, len(vector_NM), AT_ONCE):
            vectors = self.padded(vector_NM[begin : begin + AT_ONCE])
            lists = np.ascontiguousarray(leaf_N[begin : begin + AT_ONCE], dtype=np.int64)
            ivf_tools.add_preassigned(coded, vectors, lists)
        index: Any = faiss.IndexIVFPQFastScan(coded)
        index.referenced_objects = [coded, quantizer]  # faiss keeps no reference
        return index

    def empty_lists(self, leaves: int) -> Any:
        """Make faiss's index of empty lists."""
        return self.lists(np.zeros((0, self.dimension), np.float32), np.zeros(0, np.int64), leaves)

    def quantizer(self) -> Any:
        quantizer = faiss.ProductQuantizer(self.width, self.pieces, BITS)
        faiss.copy_array_to_vector(np.ascontiguousarray(self.centroid_GCP.ravel()), quantizer.centroids)
        return quantizer


def _rotation(vector_NP: Floats, pieces: int) -> Floats:
    """Compute the rotation [p, p] after which codes of vectors [n, p] lose the least."""
    size = vector_NP.shape[1]
    matrix = faiss.OPQMatrix(size, pieces)
    quantizer = faiss.ProductQuantizer(size, pieces, BITS)
    matrix.pq, matrix.niter = quantizer, ROTATIONS
    matrix.train(vector_NP)
    return np.ascontiguousarray(faiss.vector_to_array(matrix.A).reshape(size, size).T)


def codebook_of(leaf_map: LeafMap, cache_bytes: float = math.inf) -> Codebook | None:
    """Return the codebook of a leaf map, computed once on this machine from a sample of its oldest shards' rows.

    Versions with the same oldest shards have the same codebook. None if these hold fewer than 1,000 rows.
    InputError if a file is not as published.
    """
    manifest = leaf_map.manifest
    oldest = min((shard.since for shard in manifest.shards), default=0)
    shards = [shard for shard in manifest.shards if shard.since == oldest]
    if sum(shard.rows for shard in shards) < FEWEST:
        return None
    made_of = f"codebook {FORMAT} {[shard.file.sha256 for shard in shards]}"
    lease = cache.get_or_build("codebooks", made_of, lambda folder: _train(folder, leaf_map, shards), cache_bytes)
    return Codebook.load(lease.folder, manifest.dimension)


def _train(folder: Path, leaf_map: LeafMap, shards: list[Shard]) -> None:
    share = min(1.0, MOST / sum(shard.rows for shard in shards))
    sample_NM = np.concatenate([_sampled(leaf_map, shard, share) for shard in shards])
    Codebook.train(sample_NM, rotate=True).save(folder)


def _sampled(leaf_map: LeafMap, shard: Shard, share: float) -> npt.NDArray[Any]:
    cuts = np.linspace(0, shard.rows, RUNS + 1).astype(int).tolist()
    spans = [(begin, begin + math.ceil(share * (end - begin))) for begin, end in pairwise(cuts)]
    if share == 1:
        spans = [(0, shard.rows)]
    if shard.rows <= RUNS * GROUP:
        stored_NM = columns.as_stored(leaf_map.vectors(shard, 0, shard.rows))
        return np.concatenate([stored_NM[begin:end] for begin, end in spans])
    parts = [leaf_map.vectors(shard, *span, verify=not number) for number, span in enumerate(spans)]
    return np.concatenate([columns.as_stored(part) for part in parts])
