"""Train ReTreever's tree on the vectors of an encoder: start, training, and the router that holds the tree."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import hierarchical_kmeans, leaf_means
from rayhier.model.retreever import HIDDEN, AttentionSplits, Representations, RetreeverRouter, Splits
from rayhier.spec.router import RetreeverRouting
from rayhier.spec.train import RetreeverTraining
from rayhier.spec.train.retreever import Comparison
from rayhier.train.data import POSITIVES, others
from rayhier.train.examples import Examples, joined, of_same_documents
from rayhier.train.group import WorkerGroup
from rayhier.train.loop import Phase
from rayhier.train.retreever.dev import SizesMeasure
from rayhier.train.retreever.matching import AT_ONCE, MatchingPhase, Read, from_tower
from rayhier.train.tower import Side, Tower, encode_side

ADAPTER_RATE = 1e-3
"""Learning rate of the adapter, a linear map that is trained first. Splits of a tree start at its directions."""

NONE: Ints = np.zeros(0, np.int64)
MOST_READ = 200_000
"""Largest number of documents from which the splits' start is computed. Of a larger corpus, a random sample is read."""
DIRECTED = 3
"""Only the first 1/DIRECTED of the adapter's directions start splits, because the last directions are mostly noise."""
READ = 64
SETTLED = 512
"""Number of documents on which the first scores of attention splits are centred and scaled."""


def grow(
    tower: Tower,
    examples: Examples,
    router: RetreeverRouting,
    spec: RetreeverTraining,
    seed: int,
    measure: SizesMeasure,
    run: Callable[[str, Phase], None],
    read: Read | None = None,
    held_N: Ints = NONE,
) -> RetreeverRouter:
    """Train a tree and return its router. `run` is called with each phase's name and the phase.

    The tree reads tensors of `read`, by default the tower's vectors. Documents `held_N` are no training queries,
    because they replace dev queries.
    """
    group, dimension = WorkerGroup(), examples.document_NM.shape[1]
    document_NM = encode_side(tower, "document", dimension, group)
    examples, asking_too = with_documents(examples, document_NM, spec, seed, held_N)
    vectors = asking_too(from_tower(tower))
    read = vectors if read is None else asking_too(read)
    matching = partial(MatchingPhase, tower=tower, examples=examples, spec=spec, seed=seed, measure=measure, read=read)
    direction_DM: Tensor | None = None
    if router.splits != "attention" and spec.start in ("auto", "mrl"):
        begin_MM = principal(document_NM, seed) if group.rank == 0 else torch.eye(dimension)
        adapter = Adapter(begin_MM, sizes(dimension))
        run("adapter", matching(adapter, schedule="matryoshka", rate=ADAPTER_RATE))
        direction_DM = adapter.weight.detach().cpu()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        grown = RetreeverRouter(
            dimension,
            router.depth,
            router.splits,
            router.aggregation,
            router.propagation,
            router.dropout,
            spec.similarity,
        )
    grown.to(tower.device)
    if group.rank == 0:
        _start(grown, spec, document_NM, direction_DM, seed, read)
    at_once, anchor = READ if router.splits == "attention" else AT_ONCE, spec.held(router.splits)
    phase = matching(grown.representations, vectors=vectors, anchor=anchor, at_once=at_once)
    run("tree", phase)
    leaf_N = phase.leaves(grown.representations.tree)
    with torch.no_grad():  # the leaves' means choose second leaves
        grown.cells.centroid_LM.copy_(torch.from_numpy(leaf_means(document_NM, leaf_N, grown.n_leaves)))
    return grown


def with_documents(
    examples: Examples, document_NM: Floats, spec: RetreeverTraining, seed: int, held_N: Ints = NONE
) -> tuple[Examples, Callable[[Read], Read]]:
    """Add documents, except `held_N`, as queries. Returns examples, and a function that lets a `Read` read them."""
    if not spec.documents or examples.same:
        return examples, lambda read: read
    group, queries = WorkerGroup(), len(examples.query_QM)
    row_R, answer_R = group.agree(asking(examples, document_NM, spec.documents, seed, held_N))
    return with_asked(examples, row_R, answer_R), partial(reading, queries=queries, row_R=row_R)


def _start(
    router: RetreeverRouter,
    spec: RetreeverTraining,
    document_NM: Floats,
    direction_DM: Tensor | None,
    seed: int,
    read: Read,
) -> None:
    splits = router.splits
    if isinstance(splits, AttentionSplits):
        rows = np.random.default_rng(seed).permutation(len(document_NM))[:SETTLED]
        removed_S = splits.scale(*read("document", rows))
    elif direction_DM is not None:
        removed_S = start_at_directions(splits, direction_DM, document_NM, seed)
    elif spec.start == "kmeans":
        removed_S = start_between_halves(splits, document_NM, seed)
    else:
        removed_S = start_at_random(splits, document_NM, seed)
    router.representations.begin(removed_S)


def asking(examples: Examples, document_NM: Floats, share: float, seed: int, held_N: Ints) -> tuple[Ints, Ints]:
    """Draw documents as queries, each with one of its three nearest documents as answer. Returns both rows [r]."""
    n, count = len(document_NM), round(share * len(examples.pair_P2))
    draws, none_R = np.random.default_rng([seed, 3]), np.zeros(0, np.int64)
    drawn_N = draws.permutation(n)
    row_R = np.sort(drawn_N[~np.isin(drawn_N, held_N)][:count])
    if n <= POSITIVES or not len(row_R):
        return none_R, none_R
    result_N = examples.result_N
    near_R3 = others(document_NM, result_N, row_R, POSITIVES)
    answer_R = near_R3[np.arange(len(row_R)), draws.integers(POSITIVES, size=len(row_R))]
    return row_R[answer_R >= 0], answer_R[answer_R >= 0]


def with_asked(examples: Examples, row_R: Ints, answer_R: Ints) -> Examples:
    """Add pairs of documents as queries and as answers (rows [r]). A query's own passages are no negatives."""
    pair_P2 = np.stack([np.arange(len(row_R)), answer_R], axis=1)
    spared_S2 = np.stack(of_same_documents(row_R, len(examples.document_NM), examples.result_N), axis=1)
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
    if parts[0].ndim == 2 and parts[0].dtype == torch.float32:
        return torch.cat(parts)
    longest = max(part.shape[1] for part in parts)
    return torch.cat([F.pad(part, (0, 0) * (part.ndim - 2) + (0, longest - part.shape[1])) for part in parts])


class Adapter(Representations):
    """A linear map to vectors whose first numbers are smaller vectors (Kusupati et al., "Matryoshka", 2022)."""

    similarity: Comparison = "cosine"

    def __init__(self, matrix_MM: Tensor, sizes: Sequence[int]) -> None:
        super().__init__()
        self.weight = nn.Parameter(matrix_MM.clone())
        self._counts = tuple(sizes)

    @property
    def width(self) -> int:
        return len(self.weight)

    @property
    def counts(self) -> Sequence[int]:
        return self._counts

    def scores(self, *read: Tensor) -> Tensor:
        return read[0] @ self.weight.T

    def sizes(self, score_NW: Tensor) -> list[Tensor]:
        return [F.normalize(score_NW[:, :count], dim=1) for count in self.counts]


def sizes(dimension: int) -> list[int]:
    """List the sizes of vectors that a linear map of `dimension` numbers is trained for: powers of two, then all.

    >>> sizes(384)
    [2, 4, 8, 16, 32, 64, 128, 256, 384]
    """
    powers = [1 << power for power in range(1, dimension.bit_length()) if 1 << power < dimension]
    return [*powers, dimension]


def principal(vectors_NM: Floats, seed: int) -> Tensor:
    """Compute the directions [m, m] of the vectors' principal components, the widest first."""
    rows = sampled(vectors_NM, seed)
    _, axis_MM = np.linalg.eigh(np.cov(rows, rowvar=False))
    return torch.from_numpy(np.ascontiguousarray(axis_MM[:, ::-1].T, dtype=np.float32))


@torch.no_grad()
def start_at_directions(splits: Splits, direction_DM: Tensor, vectors_NM: Floats, seed: int) -> Tensor:
    """Set hyperplanes of the splits to the first third of the directions [d, m], and further hyperplanes at random.

    Random hyperplanes come in orthogonal bases, which keep inner products. Splits that are an MLP start with hidden
    units at the first directions and their opposites. Returns each split's mean score over `vectors_NM`: [splits]. The
    means were subtracted from the splits.
    """
    planes, draw = splits.planes, torch.Generator().manual_seed(seed)
    count, dimension = len(planes.weight), direction_DM.shape[1]
    if splits.trunk is None:
        first_DM = direction_DM[: min(count, len(direction_DM) // DIRECTED)]
        planes.weight.copy_(torch.cat([first_DM, bases(count - len(first_DM), dimension, draw)]))
    else:
        half = min(HIDDEN // 2, len(direction_DM))
        first_HM = direction_DM[:half]
        splits.trunk.hidden.weight[: 2 * half].copy_(torch.cat([first_HM, -first_HM]))
        splits.trunk.hidden.bias[: 2 * half].zero_()
        mixture_SH = torch.cat([torch.eye(half)[:count], torch.randn(max(0, count - half), half, generator=draw)])
        planes.weight.zero_()
        planes.weight[:, : 2 * half].copy_(torch.cat([mixture_SH, -mixture_SH], dim=1))
    return splits.scale(torch.from_numpy(sampled(vectors_NM, seed)))


def bases(count: int, dimension: int, draw: torch.Generator) -> Tensor:
    bases = [
        torch.linalg.qr(torch.randn(dimension, dimension, generator=draw))[0]
        for _ in range(max(1, -(-count // dimension)))
    ]
    return torch.cat(bases)[:count]


@torch.no_grad()
def start_at_random(splits: Splits, vectors_NM: Floats, seed: int) -> Tensor:
    splits.planes.weight.copy_(torch.randn(splits.planes.weight.shape, generator=torch.Generator().manual_seed(seed)))
    return splits.scale(torch.from_numpy(sampled(vectors_NM, seed)))


@torch.no_grad()
def start_between_halves(splits: Splits, vectors_NM: Floats, seed: int) -> Tensor:
    """Start each split at the difference of its node's two k-means centroids. Returns the subtracted means [splits]."""
    rows = sampled(vectors_NM, seed)
    draw = torch.Generator().manual_seed(seed)
    levels = hierarchical_kmeans(rows, 2, splits.depth, seed)
    for level, centroid_N2M in enumerate(map(torch.from_numpy, levels)):
        plane_NM = centroid_N2M[:, 0] - centroid_N2M[:, 1]
        whole_N = centroid_N2M.any(dim=2).all(dim=1) & plane_NM.any(dim=1)
        drawn_NM = torch.randn(plane_NM.shape, generator=draw)
        first = 2**level - 1
        splits.planes.weight[first : 2 * first + 1] = torch.where(whole_N[:, None], plane_NM, drawn_NM)
    return splits.scale(torch.from_numpy(rows))


def sampled(vectors_NM: Floats, seed: int) -> Floats:
    if len(vectors_NM) <= MOST_READ:
        return vectors_NM.astype(np.float32, copy=False)
    rows = np.sort(np.random.default_rng(seed).choice(len(vectors_NM), MOST_READ, replace=False))
    return np.asarray(vectors_NM[rows], np.float32)
