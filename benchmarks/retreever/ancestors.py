"""Similarity of two documents against the depth of their lowest common ancestor (the paper's congruence)."""

import numpy as np

from benchmarks.cache import kept
from benchmarks.retreever.bench import Bench, Row
from benchmarks.retreever.leaves import filled
from rayhier.arrays import Floats, Ints, Values

PAIRS = 20_000
"""Pairs of documents that are drawn for each depth."""


def pairs_at(leaf_N: Ints, depth: int, levels: int, count: int, draws: np.random.Generator) -> Ints:
    """Draw pairs of documents [count, 2] whose lowest common ancestor is at a depth, evenly among all such pairs."""
    row_N = np.argsort(leaf_N, kind="stable")
    below = 2 ** (levels - depth)
    begin = np.searchsorted(leaf_N[row_N], np.arange(0, 2**levels + 1, max(1, below // 2)))
    if depth == levels:  # two documents of one leaf
        size_K = np.diff(begin)
        node_C = draws.choice(len(size_K), count, p=_shares(size_K * (size_K - 1)))
        first_C = draws.integers(size_K[node_C])
        second_C = (first_C + draws.integers(1, size_K[node_C])) % size_K[node_C]
        return np.stack([row_N[begin[node_C] + first_C], row_N[begin[node_C] + second_C]], axis=1)
    left_K, right_K = np.diff(begin)[::2], np.diff(begin)[1::2]
    node_C = draws.choice(len(left_K), count, p=_shares(left_K * right_K))
    first_C = begin[2 * node_C] + draws.integers(left_K[node_C])
    second_C = begin[2 * node_C + 1] + draws.integers(right_K[node_C])
    return np.stack([row_N[first_C], row_N[second_C]], axis=1)


def _shares(weight_K: Ints) -> Floats:
    return np.asarray(weight_K / weight_K.sum())


def similar(bench: Bench, row: Row, seed: int) -> dict[str, Values]:
    """Mean cosine [d] of documents by the depth of their lowest common ancestor, and its standard error [d]."""
    setting = bench.setting(seed)

    def make() -> dict[str, Values]:
        own, document_NM = filled(row, setting), setting.examples.document_NM
        levels, draws = own.count.bit_length() - 1, np.random.default_rng(seed)
        cosines = []
        for depth in range(levels + 1):
            pair_C2 = pairs_at(own.leaf_N, depth, levels, PAIRS, draws)
            cosines.append(np.einsum("cm,cm->c", document_NM[pair_C2[:, 0]], document_NM[pair_C2[:, 1]]))
        return {
            "cosine": np.array([own_C.mean() for own_C in cosines]),
            "error": np.array([own_C.std() / PAIRS**0.5 for own_C in cosines]),
        }

    return kept(setting.path("ancestors", row.kind, row.train, row.router).with_suffix(".npz"), make)
