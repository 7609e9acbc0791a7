"""Adds pairs of neighbouring documents to the judged pairs: a document as query, a near one as its answer (ours).

A trained encoder puts train queries close to their answers. A tree that learns from these pairs alone can put each
query with its answer and divide all other vectors anyhow; pairs of neighbouring documents prevent this.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.arrays import Floats, Ints
from rayhier.train.data import POSITIVES, others
from rayhier.train.examples import Examples, joined, ranges
from rayhier.train.retreever.matching import Read
from rayhier.train.tower import Side


def asking(examples: Examples, document_NM: Floats, share: float, seed: int, held_N: Ints) -> tuple[Ints, Ints]:
    """Draw documents as queries, and for each one of its three nearest documents as its answer.

    Draws `share` times as many as there are judged pairs. Returns the rows [r] of queries and of answers. Documents in
    `held_N` are never queries, as they stand for dev queries. No document is paired with a passage of the same
    document.
    """
    n, count = len(document_NM), round(share * len(examples.pair_P2))
    draws, none_R = np.random.default_rng([seed, 3]), np.zeros(0, np.int64)
    drawn_N = draws.permutation(n)
    row_R = np.sort(drawn_N[~np.isin(drawn_N, held_N)][:count])
    if n <= POSITIVES or not len(row_R):
        return none_R, none_R
    result_N = None if examples.copies is None else examples.copies.result_N
    near_R3 = others(document_NM, result_N, row_R, POSITIVES)
    answer_R = near_R3[np.arange(len(row_R)), draws.integers(POSITIVES, size=len(row_R))]
    return row_R[answer_R >= 0], answer_R[answer_R >= 0]


def with_asked(examples: Examples, row_R: Ints, answer_R: Ints) -> Examples:
    """Add pairs of documents as queries (rows [r]) and as answers (rows [r]); they become queries q, q + 1, ….

    q is the number of queries so far. Neither the document itself nor another passage of it is a negative of its query.
    """
    pair_P2 = np.stack([np.arange(len(row_R)), answer_R], axis=1)
    query_S, spared_S = np.arange(len(row_R)), row_R
    if examples.copies is not None:
        result_N = examples.copies.result_N
        order_N = np.argsort(result_N, kind="stable")
        begin, end = (np.searchsorted(result_N[order_N], result_N[row_R], side) for side in ("left", "right"))
        query_S, spared_S = np.repeat(query_S, end - begin), order_N[ranges(begin, end)]
    spared_S2 = np.stack([query_S, spared_S], axis=1)
    more = Examples(examples.document_NM[row_R], examples.document_NM, pair_P2, spared_S2=spared_S2)
    return joined(replace(examples, query_texts=()), more)


def reading(read: Read, queries: int, row_R: Ints) -> Read:
    def read_either(side: Side, rows: Ints) -> tuple[Tensor, ...]:
        if side != "query" or not (is_document_X := rows >= queries).any():
            return read(side, rows)
        if is_document_X.all():
            return read("document", row_R[rows - queries])
        parts = [read("query", rows[~is_document_X]), read("document", row_R[rows[is_document_X] - queries])]
        order = torch.from_numpy(
            np.argsort(np.concatenate([np.flatnonzero(~is_document_X), np.flatnonzero(is_document_X)]))
        )
        return tuple(_stacked(tensors)[order] for tensors in zip(*parts, strict=True))

    return read_either


def _stacked(parts: tuple[Tensor, ...]) -> Tensor:
    """Join the rows of several tensors; token vectors and masks are padded to the longest."""
    if parts[0].ndim == 2 and parts[0].dtype == torch.float32:
        return torch.cat(parts)
    longest = max(part.shape[1] for part in parts)
    return torch.cat([F.pad(part, (0, 0) * (part.ndim - 2) + (0, longest - part.shape[1])) for part in parts])
