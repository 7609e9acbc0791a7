"""Leaves: the one best leaf, re-ranked by vectors, and recall at documents visited, of trees and of k-means lists."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.cache import kept
from benchmarks.quality.recall import Places, Questions
from benchmarks.quality.systems import Leaves, columns
from benchmarks.retreever.bench import DEPTH, Bench, Row, Setting, fixed
from benchmarks.statistics import Curve, recall_at, sample
from rayhier.arrays import Floats, Ints, Values
from rayhier.cluster.kmeans import nearest
from rayhier.model.encoded import Encoded

SHARES = (0.01, 0.02, 0.05, 0.1)


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
    if row.kind == "tree":
        router = setting.router(row)

        def probable(x_NM: Floats) -> Floats:
            return np.asarray(router.leaves(Encoded.of(x_NM)), dtype=np.float32)

        count, routing = router.n_leaves, router.multiply_adds(1) / document_NM.shape[1]
    else:
        tree = fixed(row, setting)

        def probable(x_NM: Floats) -> Floats:
            return tree.leaves(x_NM)

        count = 2**tree.depth
        routing = float(count if row.kind == "k-means" else 4 * count)
    best_N = np.concatenate(
        [probable(part).argmax(axis=1) for part in np.array_split(document_NM, len(document_NM) // 8_192 + 1)]
    )

    def order(query_QM: Floats) -> Ints:
        return np.asarray(torch.from_numpy(probable(query_QM)).argsort(dim=1, descending=True, stable=True).numpy())

    return Filled(best_N, count, order, routing)


def curve(bench: Bench, row: Row | None, seed: int) -> Curve:
    """What every query finds among its best hundred, and what it visits, beam after beam."""
    setting = bench.setting(seed)

    def make() -> dict[str, Values]:
        own, questions = filled(row, setting), Questions.of(bench.queries, bench.collection.documents.ids)
        order_QL = own.order(bench.asked(setting))
        system = Leaves(
            Places(own.leaf_N[:, None], own.count),
            setting.view.relevance(questions),
            lambda beam: order_QL[:, :beam],
            lambda _: own.routing,
        )
        return columns(system)

    key = "lists" if row is None else [row.kind, row.train, row.router]
    return Curve.read(kept(setting.path("curve", bench.split, key).with_suffix(".npz"), make))


def recalls(own: Curve) -> list[float]:
    """R@100 at each of SHARES visited."""
    return [float(value) for value in recall_at(own, sample(len(own.exact_Q)), SHARES)[0]]


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

        began = time.perf_counter()
        search(query_QM, DEPTH)
        ms = 1e3 * (time.perf_counter() - began) / len(query_QM)
        leaf_Q = own.order(query_QM)[:, 0]
        visited_Q = (begin_L[leaf_Q + 1] - begin_L[leaf_Q]) / len(row_N)
        return {**bench.judged(search, query_QM), "visited": visited_Q, "ms": np.array([ms])}

    return kept(setting.path("best leaf", bench.split, row.kind, row.train, row.router).with_suffix(".npz"), make)
