"""Splits by attention to tokens, one seed and few steps, beside linear splits and adapters with as many steps."""

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.cache import kept
from benchmarks.retreever.bench import Bench, Row, resolved, training
from benchmarks.retreever.findings import Sized
from benchmarks.retreever.tokens import TokenStore
from benchmarks.training import train
from rayhier.arrays import Floats, Ints, Values
from rayhier.model.retreever import AttentionSplits, RetreeverRouter
from rayhier.search.flat import flat
from rayhier.spec.router import RetreeverRouting
from rayhier.train.loop import Phase
from rayhier.train.retreever.grow import grow
from rayhier.train.retreever.matching import size_all
from rayhier.train.tower import Side

AT_ONCE = 256
"""Texts whose tokens are read at a time."""


class Attended:
    """A collection whose tokens are stored, and trees that attend to them."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.setting = bench, bench.setting(0)
        self.store = TokenStore(bench.workdir / bench.name / f"tokens-{bench.split}", bench.collection, bench.queries)

    def router(self, row: Row) -> RetreeverRouter:
        """The trained tree of a row."""
        spec, router = training(row), RetreeverRouting.model_validate({"type": "retreever", **row.router})
        own = self.setting

        def run(name: str, phase: Phase) -> None:
            train(phase, own.path(name, resolved(spec, router.splits), router.model_dump()))

        return grow(own.tower, own.examples, router, spec, own.seed, own.measure, run, self.store.read).eval()

    @torch.no_grad()
    def scores(self, router: RetreeverRouter, side: Side, row_N: Ints) -> Floats:
        """Scores [n, s] of the splits for rows of a side."""
        parts = np.array_split(row_N, len(row_N) // AT_ONCE + 1)
        return np.concatenate([router.representations.scores(*self.store.read(side, part)).numpy() for part in parts])

    def values(self, row: Row) -> dict[int, dict[str, Values]]:
        """Each measure of every query at each size, size -> measure -> [1, q]."""

        def make() -> dict[str, Values]:
            router, queries = self.router(row), len(self.bench.queries)
            asked = self.store.asked_row + np.arange(queries)
            document_NS = self.scores(router, "document", np.arange(len(self.setting.examples.document_NM)))
            document = size_all(router.representations, document_NS)
            asked_sizes = size_all(router.representations, self.scores(router, "dev", asked))
            values: dict[str, Values] = {}
            for document_NK, query_QK in zip(document, asked_sizes, strict=True):
                found = self.bench.judged(flat(document_NK, router.representations.similarity), query_QK)
                values |= {f"{name} {query_QK.shape[1]}": own_Q for name, own_Q in found.items()}
            return values

        path = self.setting.path("attention", self.bench.split, row.train, row.router).with_suffix(".npz")
        stored = kept(path, make)
        sizes: dict[int, dict[str, Values]] = {}
        for name, own_Q in stored.items():
            measure, _, size = name.rpartition(" ")
            sizes.setdefault(int(size), {})[measure] = own_Q[None]
        return sizes

    def distances(self, row: Row) -> dict[str, Values]:
        """Mean cosine [d] of the embeddings of two splits by their distance in the tree, and standard deviation [d]."""
        splits = self.router(row).splits
        assert isinstance(splits, AttentionSplits)
        embedding_SM = F.normalize(splits.embedding_SM.detach(), dim=1).numpy()
        cosine_SS, apart_SS = embedding_SM @ embedding_SM.T, tree_distances(splits.depth)
        upper = np.triu_indices(len(embedding_SM), 1)
        cosine_P, apart_P = cosine_SS[upper], apart_SS[upper]
        every = np.unique(apart_P)
        return {
            "distance": every.astype(np.float64),
            "cosine": np.array([cosine_P[apart_P == one].mean() for one in every]),
            "deviation": np.array([cosine_P[apart_P == one].std() for one in every]),
        }


def tree_distances(depth: int) -> Ints:
    """Edges between every two splits [s, s] of a perfect binary tree, breadth first.

    >>> tree_distances(2)
    array([[0, 1, 1],
           [1, 0, 2],
           [1, 2, 0]])
    """
    node_S = np.arange(1, 2**depth)
    apart_SS = np.zeros((len(node_S), len(node_S)), dtype=np.int64)
    for first, own in enumerate(node_S):
        for second, other in enumerate(node_S):
            a, b, edges = int(own), int(other), 0
            while a != b:
                a, b = (a >> 1, b) if a > b else (a, b >> 1)
                edges += 1
            apart_SS[first, second] = edges
    return apart_SS


def beside(attended: Attended, rows: list[Row], others: Sized) -> Sized:
    """Rows of attention beside rows that read vectors."""
    found = {row.name: attended.values(row) for row in rows}
    return Sized([*rows, *others.rows], {**found, **others.found})
