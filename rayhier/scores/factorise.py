"""Learn a vector and a bias for every document from a sparse matrix of a cross-encoder's scores.

Transductive vectors are free parameters. Inductive vectors are a learned function of the index's vectors (AXN,
estimators.py). The bias is ours.

Shapes: Q queries, N documents, M dimensions, X scored pairs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rayhier.arrays import Floats, Ints, Values
from rayhier.scores.estimators import Matching
from rayhier.spec.cross_encoder import LARGE, FactorKind, factor_passes

SHRINK = 0.5
"""Number added to the count when a document's bias is averaged. So a document with few scores has a small bias."""
OWN_LINE = 10
"""Least number of scores for which a query gets a separate line: intercept and slope of scores on base scores."""
MATCHED = 100
"""Number of queries, the first in order, to whose scores `Matching` is fitted."""
SCORES_A_STEP = 256
GATE = -5.0
"""First value of the number whose sigmoid is the weight g in `Inductive`. The weight is so low that the map begins
almost as the identity."""


@dataclass(frozen=True)
class Matrix:
    query_X: Ints
    item_X: Ints
    score_X: Values

    def __len__(self) -> int:
        return len(self.score_X)


class Inductive(nn.Module):
    """Maps vectors x [n, m] to g MLP(x) + (1 - g) x. g is learned in (0, 1). The MLP has a hidden layer of size 2m."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dimension, 2 * dimension), nn.GELU(), nn.Linear(2 * dimension, dimension))
        self.gate = nn.Parameter(torch.tensor(GATE))

    def forward(self, x_NM: Tensor) -> Tensor:
        share = torch.sigmoid(self.gate)
        mapped_NM: Tensor = share * self.net(x_NM) + (1 - share) * x_NM
        return mapped_NM


def match(matrix: Matrix, base_X: Values) -> Matching:
    chosen = np.isin(matrix.query_X, np.unique(matrix.query_X)[:MATCHED])
    return Matching.of(matrix.score_X[chosen], base_X[chosen])


def base_scores(matrix: Matrix, query_QM: Floats, item_NM: Floats) -> Values:
    parts = np.array_split(np.arange(len(matrix)), max(1, len(matrix) // 65_536))
    products = [np.einsum("xm,xm->x", query_QM[matrix.query_X[part]], item_NM[matrix.item_X[part]]) for part in parts]
    return np.concatenate(products).astype(np.float64)


def residual_bias(matrix: Matrix, base_X: Values, items: int) -> tuple[Values, float]:
    """Compute a bias [n] for every document, and the mean slope of scores on base scores, at least 0.

    A line is fitted to each query's scores. Queries with fewer than ten scores share a line. A bias is the sum of a
    document's differences from these lines, divided by their number plus 0.5.
    """
    common_2 = _line(base_X, matrix.score_X)
    line_Q2 = np.tile(common_2, (int(matrix.query_X.max(initial=-1)) + 1, 1))
    order = np.argsort(matrix.query_X, kind="stable")
    ends = np.flatnonzero(np.diff(matrix.query_X[order])) + 1
    for rows in np.split(order, ends):
        if len(rows) >= OWN_LINE:
            line_Q2[matrix.query_X[rows[0]]] = _line(base_X[rows], matrix.score_X[rows])
    expected_X = line_Q2[matrix.query_X, 0] + line_Q2[matrix.query_X, 1] * base_X
    count_N = np.bincount(matrix.item_X, minlength=items)
    sum_N = np.bincount(matrix.item_X, weights=matrix.score_X - expected_X, minlength=items)
    slope = float(line_Q2[matrix.query_X, 1].mean()) if len(matrix) else 0.0
    return sum_N / (count_N + SHRINK), max(0.0, slope)


def _line(base_X: Values, score_X: Values) -> Values:
    if not len(base_X):
        return np.zeros(2)
    spread = float(np.var(base_X))
    slope = float(np.cov(base_X, score_X, bias=True)[0, 1]) / spread if spread > 0 else 0.0
    return np.array([float(score_X.mean()) - slope * float(base_X.mean()), slope])


def transductive(
    matrix: Matrix, target_X: Values, query_QM: Floats, item_NM: Floats, kind: FactorKind, seed: int
) -> Floats:
    """Learn free vectors for the documents that have scores, starting from `item_NM`. Returns all vectors [n, m]."""
    scored_S, place_X = np.unique(matrix.item_X, return_inverse=True)
    starts = (torch.tensor(start, dtype=torch.float32) for start in (query_QM, item_NM[scored_S]))
    queries, items = (nn.Embedding.from_pretrained(start, freeze=False) for start in starts)  # type: ignore[no-untyped-call]
    query_X, item_X = torch.from_numpy(matrix.query_X), torch.from_numpy(place_X)
    _learn([queries, items], lambda rows: (queries(query_X[rows]), items(item_X[rows])), matrix, target_X, kind, seed)
    learned_NM = item_NM.astype(np.float32, copy=True)
    learned_NM[scored_S] = items.weight.detach().numpy()
    return learned_NM


def inductive(
    matrix: Matrix, target_X: Values, query_QM: Floats, item_NM: Floats, kind: FactorKind, seed: int
) -> tuple[Inductive, Inductive]:
    """Learn maps of queries' and of documents' vectors, so that inner products of mapped vectors predict scores."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        queries, items = Inductive(query_QM.shape[1]), Inductive(item_NM.shape[1])
    query, item = torch.from_numpy(query_QM), torch.from_numpy(item_NM)
    query_X, item_X = torch.from_numpy(matrix.query_X), torch.from_numpy(matrix.item_X)

    def sides(rows: Tensor) -> tuple[Tensor, Tensor]:
        return queries(query[query_X[rows]]), items(item[item_X[rows]])

    _learn([queries, items], sides, matrix, target_X, kind, seed)
    return queries.eval(), items.eval()


@torch.inference_mode()
def mapped(inductive_map: Inductive, vector_NM: Floats) -> Floats:
    parts = torch.split(torch.from_numpy(np.ascontiguousarray(vector_NM, dtype=np.float32)), 16_384)
    return torch.cat([inductive_map(part) for part in parts]).numpy() if len(vector_NM) else vector_NM


def _learn(
    modules: Sequence[nn.Module],
    sides: Callable[[Tensor], tuple[Tensor, Tensor]],
    matrix: Matrix,
    target_X: Values,
    kind: FactorKind,
    seed: int,
) -> None:
    """Minimise the mean squared error of inner products with AdamW, as in the paper of AXN."""
    optimizer = torch.optim.AdamW(
        [p for module in modules for p in module.parameters()], lr=1e-3 if len(matrix) >= LARGE else 5e-3
    )
    target = torch.from_numpy(target_X.astype(np.float32))
    for epoch in range(factor_passes(kind, len(matrix))):
        order = np.random.default_rng([seed, epoch]).permutation(len(matrix))
        for rows in np.array_split(order, -(-len(order) // SCORES_A_STEP)):
            chosen = torch.from_numpy(rows)
            query_XM, item_XM = sides(chosen)
            loss = ((query_XM * item_XM).sum(1) - target[chosen]).square().mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
