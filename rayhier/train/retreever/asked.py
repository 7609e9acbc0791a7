"""Documents that ask too: each is a query for one of its nearest neighbours, beside the judged pairs (ours).

Train queries lie close to their answers once the encoder has learned these pairs, so that a tree can put them together
without putting anything else together. Neighbouring documents keep it true to all vectors.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.arrays import Floats, Ints
from rayhier.train.data import POSITIVES, neighbours
from rayhier.train.examples import Examples, joined
from rayhier.train.retreever.matching import Read
from rayhier.train.tower import Side


def asking(examples: Examples, document_NM: Floats, share: float, seed: int) -> tuple[Examples, Ints]:
    """Add pairs of documents and one of the three nearest to each, `share` times as many as there are judged pairs.

    Returns all pairs, and the documents' rows: document i asks as query q + i, for q queries. No document of the corpus
    is paired with a passage of its own.
    """
    n, count = len(document_NM), round(share * len(examples.pair_P2))
    draws = np.random.default_rng([seed, 3])
    row_R = np.sort(draws.permutation(n)[: min(n, count)])
    if n <= POSITIVES or not len(row_R):
        return examples, np.zeros(0, np.int64)
    near_R3 = neighbours(document_NM, row_R, POSITIVES)
    own_R = near_R3[np.arange(len(row_R)), draws.integers(POSITIVES, size=len(row_R))]
    kept = own_R >= 0
    if examples.copies is not None:
        result_N = examples.copies.result_N
        kept &= result_N[own_R] != result_N[row_R]
    row_R, own_R = row_R[kept], own_R[kept]
    pair_P2 = np.stack([np.arange(len(row_R)), own_R], axis=1)
    # No document is a negative of itself.
    spared_S2 = np.stack([np.arange(len(row_R)), row_R], axis=1)
    more = Examples(examples.document_NM[row_R], examples.document_NM, pair_P2, spared_S2=spared_S2)
    plain = replace(examples, query_texts=())
    return joined(plain, more), row_R


def reading(read: Read, queries: int, row_R: Ints) -> Read:
    """Read queries after the first `queries` as the documents of those rows."""

    def both(side: Side, rows: Ints) -> tuple[Tensor, ...]:
        if side != "query" or not (asks := rows >= queries).any():
            return read(side, rows)
        parts = [read("query", rows[~asks]), read("document", row_R[rows[asks] - queries])]
        order = torch.from_numpy(np.argsort(np.concatenate([np.flatnonzero(~asks), np.flatnonzero(asks)])))
        return tuple(_beside(own)[order] for own in zip(*parts, strict=True))

    return both


def _beside(parts: tuple[Tensor, ...]) -> Tensor:
    """Join rows of several parts; token vectors and masks are padded to the longest."""
    if parts[0].ndim == 2 and parts[0].dtype == torch.float32:
        return torch.cat(parts)
    longest = max(part.shape[1] for part in parts)
    return torch.cat([F.pad(part, (0, 0) * (part.ndim - 2) + (0, longest - part.shape[1])) for part in parts])
