"""Start a learned IVF: make leaves by k-means, keep their sizes even by prices, and place documents in the leaves.

A leaf's price is subtracted from documents' cosines to its centroid, so that documents move to emptier leaves.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from rayhier.arrays import Floats, Ints, for_vectors
from rayhier.cluster.kmeans import Each, spherical_kmeans
from rayhier.cluster.neighbours import nearest
from rayhier.dataset.balance import balance
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.opened_router import SCALE, OpenedCells, leading
from rayhier.model.placing import choose, parts, place
from rayhier.model.router import opened
from rayhier.model.spill import CANDIDATES
from rayhier.spec import JobSpec
from rayhier.spec.index import SPILLED
from rayhier.spec.router import LearnedIvfRouting
from rayhier.spec.router.learned_ivf import RANK

AUCTIONS, EVEN, PRICE = 20, 1.2, 0.02
"""AUCTIONS: most rounds of price changes. EVEN: imbalance that ends the rounds. PRICE: amount that one round adds to
the price of a leaf with twice the mean size."""
DEAREST = 0.2
"""Largest amount, in cosine, that a leaf's price takes or adds. Without it, identical documents would raise a price for
ever."""
FEWEST_GROUPED = 16_384
"""Least number of leaves for which leaves are grouped."""
SAMPLE_A_LEAF = 256
"""Documents per leaf in the sample from which prices are computed."""


def make_router(spec: LearnedIvfRouting, document_NM: Floats, seed: int, each: Each = map) -> LearnedIvfRouter:
    """Make a router that equals k-means IVF of documents' vectors [n, m], float32 or float16."""
    n, m = document_NM.shape
    router = empty_router(spec, n, m, seed)
    centroid_LM = spherical_kmeans(document_NM, router.n_leaves, seed, each=each)
    if router.cells.groups:
        group_GM = spherical_kmeans(centroid_LM, router.cells.groups, seed, each=each)
        router.cells.group_GM.copy_(torch.from_numpy(group_GM))
        router.cells.group_L.copy_(torch.from_numpy(nearest(centroid_LM, group_GM, 1)[0][:, 0]))
    # This scale gives 20 x cosine, also if vectors are longer than 1.
    length = float(np.linalg.norm(document_NM[:: max(1, n // 10_000)].astype(np.float32), axis=1).mean())
    router.begin(torch.from_numpy(centroid_LM), SCALE / max(length, 1e-6))
    return router


def empty_router(spec: LearnedIvfRouting, documents: int, dimension: int, seed: int) -> LearnedIvfRouter:
    leaves = spec.leaves(documents)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        groups = round(leaves**0.5) if leaves >= FEWEST_GROUPED else 0
        return LearnedIvfRouter(dimension, leaves, min(RANK, dimension), groups)


def settle(router: LearnedIvfRouter, document_NM: Floats, spec: JobSpec, seed: int, each: Each = map) -> Ints:
    """Place documents in leaves [n, r], first leaf first, about evenly. The router keeps prices and leaf sizes.

    Each round raises the price of full leaves and lowers the price of empty leaves, as in an auction. The prices of the
    round with the most even leaves are kept. A sample of documents decides the prices, and the border within which a
    document gets a second leaf. So each document is placed independently. `each` maps a function over parts.
    """
    n, leaves = len(document_NM), spec.leaves_per_document
    rows = np.sort(np.random.default_rng([seed, 3]).permutation(n)[: SAMPLE_A_LEAF * router.n_leaves])
    sample_NM = document_NM if len(rows) == n else for_vectors(len(rows), document_NM.shape[1])
    for part in parts(len(rows)) if len(rows) < n else []:
        sample_NM[part] = document_NM[rows[part]]
    least, best = np.inf, (router.cells.price_L.clone(), router.cells.border.clone())
    bidders = _Bidders.of(router, sample_NM, each)
    for _ in range(AUCTIONS):
        if leaves > 1:
            gap_N = np.concatenate([batch.gaps(router.cells.price_L.cpu().numpy()) for batch in bidders])
            router.cells.border.fill_(float(np.quantile(gap_N, SPILLED)))
        cells = opened(router).cells
        leaf_NR = np.concatenate([batch.leaves(cells, leaves) for batch in bidders])
        sizes = leaf_sizes(leaf_NR, router.n_leaves)
        if (imbalance := balance(sizes)["imbalance"]) < least:
            least, best = imbalance, (router.cells.price_L.clone(), router.cells.border.clone())
        if imbalance <= EVEN:
            break
        crowding_L = np.clip(sizes / sizes.mean() - 1, -0.5, 2).astype(np.float32)
        router.cells.price_L += PRICE * torch.from_numpy(crowding_L).to(router.device)
        router.cells.price_L.clamp_(-DEAREST, DEAREST)
    (best,) = each(lambda _: best, [None])  # all workers take the best round of the first worker
    for buffer, value in zip((router.cells.price_L, router.cells.border), best, strict=True):
        buffer.copy_(value)
    leaf_NR = place(opened(router), Encoded(document_NM), leaves, each)[0]
    router.log_size_L.copy_(torch.from_numpy(np.log(leaf_sizes(leaf_NR, router.n_leaves) + 0.5)))
    return leaf_NR


@dataclass(frozen=True)
class _Bidders:
    """Documents [n, m] and the leaves [n, c] near them, searched once. Prices change which leaf is best."""

    document_NM: Floats
    leaf_NC: npt.NDArray[np.int32]
    """Nearest leaves [n, c] of each document, in int32, because only the vectors take more memory."""
    near_NC: Floats
    """Cosines [n, c] to the leaves' centroids, up to a constant for each document."""

    @classmethod
    def of(cls, router: LearnedIvfRouter, document_NM: Floats, each: Each) -> list[Self]:
        """Search leaves for all documents. Batches are slices of two arrays, because many arrays fragment memory."""
        n, count = len(document_NM), min(2 * CANDIDATES, router.n_leaves)
        leaf_NC, near_NC, trained = np.empty((n, count), np.int32), np.empty((n, count), np.float32), opened(router)

        def search(part: slice) -> tuple[Ints, Floats]:
            leaf_PC, log_prob_PC = trained.place(Encoded(document_NM[part]), count)
            return leaf_PC, log_prob_PC / SCALE + trained.cells.price_L[leaf_PC]

        for part, found in zip(parts(n), each(search, parts(n)), strict=True):
            leaf_NC[part], near_NC[part] = found
        return [cls(document_NM[part], leaf_NC[part], near_NC[part]) for part in parts(n)]

    def gaps(self, price_L: Floats) -> Floats:
        best_N2 = leading(self._after(price_L), 2)[1]
        return np.asarray(best_N2[:, 0] - best_N2[:, -1])

    def leaves(self, cells: OpenedCells, leaves: int) -> Ints:
        place_NC, _ = leading(self._after(cells.price_L), 1 if leaves == 1 else CANDIDATES)
        leaf_NC = np.take_along_axis(self.leaf_NC, place_NC, axis=1).astype(np.int64)
        pick_NR = choose(cells, self.document_NM.astype(np.float32), leaf_NC, leaves)
        return np.asarray(np.take_along_axis(leaf_NC, pick_NR, axis=1))

    def _after(self, price_L: Floats) -> Floats:
        return self.near_NC - price_L[self.leaf_NC]


def leaf_sizes(leaf_NR: Ints, n_leaves: int) -> Ints:
    """Count the documents in each leaf. A document that is in a leaf twice counts once.

    >>> leaf_sizes(np.array([[0, 1], [1, 1]]), 3)
    array([1, 2, 0])
    """
    sizes = np.bincount(leaf_NR[:, 0], minlength=n_leaves)
    for rank in range(1, leaf_NR.shape[1]):
        further = leaf_NR[(leaf_NR[:, :rank] != leaf_NR[:, rank : rank + 1]).all(axis=1), rank]
        sizes = sizes + np.bincount(further, minlength=n_leaves)
    return sizes
