"""Leaves of trees and of k-means lists: the best one re-ranked, recall at documents visited, common ancestors."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.machine import timed
from benchmarks.quality.systems import columns, in_leaves
from benchmarks.quality.view import Places, Questions
from benchmarks.retreever.bench import DEPTH, Bench, Row, Setting, fixed
from benchmarks.retreever.controls import FixedTree
from benchmarks.statistics import Curve
from rayhier.arrays import Floats, Ints, Values
from rayhier.cluster.kmeans import nearest
from rayhier.model.encoded import Encoded

PAIRS = 20_000
"""Pairs of documents that are drawn for each depth of a common ancestor."""


@dataclass(frozen=True)
class Filled:
    """Documents in leaves, and how queries order these."""

    leaf_N: Ints
    count: int
    order: Callable[[Floats], Ints]
    """Queries [q, m] -> leaves [q, l], the most probable first."""
    routing: float
    """Cost of ordering a query's leaves, in products of vectors."""


def filled(row: Row | None, setting: Setting) -> Filled:
    """Leaves of a row's tree, or without a row the lists of spherical k-means, as many as a tree of depth 10 has."""
    document_NM = setting.examples.document_NM
    if row is None:
        count = 1024
        centroid_LM = setting.view.centroids(count)
        leaf_N = np.asarray(nearest(document_NM, centroid_LM, 1)[0][:, 0])
        return Filled(leaf_N, count, lambda query_QM: nearest(query_QM, centroid_LM, count)[0], count)
    tree = setting.router(row) if row.kind == "tree" else fixed(row, setting)
    if isinstance(tree, FixedTree):
        count = 2**tree.depth
        routing = float(count if row.kind == "k-means" else 4 * count)
    else:
        count, routing = tree.n_leaves, tree.multiply_adds(1) / document_NM.shape[1]

    def probable(x_NM: Floats) -> Floats:
        leaf_NL = tree.leaves(x_NM) if isinstance(tree, FixedTree) else tree.leaves(Encoded.of(x_NM))
        return np.asarray(leaf_NL, dtype=np.float32)

    def order(query_QM: Floats) -> Ints:
        return np.asarray(torch.from_numpy(probable(query_QM)).argsort(dim=1, descending=True, stable=True).numpy())

    parts = np.array_split(document_NM, len(document_NM) // 8_192 + 1)
    return Filled(np.concatenate([probable(part).argmax(axis=1) for part in parts]), count, order, routing)


def curve(bench: Bench, row: Row | None, seed: int) -> Curve:
    """What every query finds among its best hundred, and what it visits, beam after beam."""
    setting = bench.setting(seed)

    def make() -> dict[str, Values]:
        own, questions = filled(row, setting), Questions.of(bench.queries, bench.collection.documents.ids)
        places, relevance = Places(own.leaf_N[:, None], own.count), setting.view.relevance(questions)
        order_QL = own.order(bench.asked(setting))
        return columns(in_leaves(places, relevance, lambda beam: order_QL[:, :beam], lambda _: own.routing))

    key = "lists" if row is None else [row.kind, row.train, row.router]
    return Curve.read(setting.kept(make, "curve", bench.split, key))


def best_leaf(bench: Bench, row: Row, seed: int) -> dict[str, Values]:
    """Measures [q] of the best leaf alone, its documents ranked by vectors; `visited` share [q], `ms` a query [1]."""
    setting = bench.setting(seed)

    def make() -> dict[str, Values]:
        own, query_QM, document_NM = filled(row, setting), bench.asked(setting), setting.examples.document_NM
        row_N = np.argsort(own.leaf_N, kind="stable")
        begin_L = np.searchsorted(own.leaf_N[row_N], np.arange(own.count + 1))
        sorted_NM = document_NM[row_N]

        def search(query_QM: Floats, count: int) -> tuple[Floats, Ints]:
            best_Q = own.order(query_QM)[:, 0]
            score_QK = np.full((len(query_QM), count), -np.inf, np.float32)
            found_QK = np.full((len(query_QM), count), -1, np.int64)
            for q, (leaf, query_M) in enumerate(zip(best_Q, query_QM, strict=True)):
                own_S = slice(begin_L[leaf], begin_L[leaf + 1])
                score_S = sorted_NM[own_S] @ query_M
                best_S = np.argsort(-score_S, kind="stable")[:count]
                score_QK[q, : len(best_S)], found_QK[q, : len(best_S)] = score_S[best_S], row_N[own_S][best_S]
            return score_QK, found_QK

        ms = 1e3 * timed(lambda: search(query_QM, DEPTH)) / len(query_QM)
        leaf_Q = own.order(query_QM)[:, 0]
        visited_Q = (begin_L[leaf_Q + 1] - begin_L[leaf_Q]) / len(row_N)
        return {**bench.judged(search, query_QM), "visited": visited_Q, "ms": np.array([ms])}

    return setting.kept(make, "best leaf", bench.split, row.kind, row.train, row.router)


def pairs_at(leaf_N: Ints, depth: int, levels: int, count: int, draws: np.random.Generator) -> Ints:
    """Draw pairs of documents [count, 2] whose lowest common ancestor is at a depth, evenly among all such pairs."""
    row_N = np.argsort(leaf_N, kind="stable")
    below = 2 ** (levels - depth)
    begin = np.searchsorted(leaf_N[row_N], np.arange(0, 2**levels + 1, max(1, below // 2)))
    size = np.diff(begin)
    # Two documents of one leaf, or one of each child.
    weight_K = size * (size - 1) if depth == levels else size[::2] * size[1::2]
    node_C = draws.choice(len(weight_K), count, p=weight_K / weight_K.sum())
    left_C, right_C = (node_C, node_C) if depth == levels else (2 * node_C, 2 * node_C + 1)
    first_C = draws.integers(size[left_C])
    if depth == levels:
        second_C = (first_C + draws.integers(1, size[node_C])) % size[node_C]
    else:
        second_C = draws.integers(size[right_C])
    return np.stack([row_N[begin[left_C] + first_C], row_N[begin[right_C] + second_C]], axis=1)


def similar(bench: Bench, row: Row, seed: int) -> dict[str, Values]:
    """Cosine [d] of documents by the depth of their lowest common ancestor, the paper's congruence, and its error."""
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

    return setting.kept(make, "ancestors", row.kind, row.train, row.router)
