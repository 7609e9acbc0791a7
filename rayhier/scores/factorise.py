"""Learn a vector and a bias for every document from a sparse matrix of scores.

Transductive vectors are free, and start at the index's vectors; inductive vectors are a map of the index's, which
documents that are added later have too (Yadav et al., "Adaptive Retrieval and Scalable Indexing for k-NN Search with
Cross-Encoders", ICLR 2024). The bias is ours.

Shapes: Q queries, N documents, M dimensions, X scored pairs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rayhier.arrays import Floats, Ints, Values
from rayhier.scores.estimators import Matching
from rayhier.spec.cross_encoder import FactorsSpec

SHRINK = 0.5
"""Shrinkage of a document's mean residual: that of n scores counts n / (n + 0.5)."""
OWN_LINE = 10
"""Scores from which a query has a separate intercept and slope."""
MATCHED = 100
"""Queries whose scores are matched to the base's range."""
GATE = -5.0
"""Start of an inductive map's gate, before the sigmoid: it begins almost as the identity."""


@dataclass(frozen=True)
class Matrix:
    """Scored pairs: positions of queries [x] and documents [x], and scores [x]."""

    query_X: Ints
    item_X: Ints
    score_X: Values

    def __len__(self) -> int:
        return len(self.score_X)


class Inductive(nn.Module):
    """x -> σ(w) MLP(x) + (1 - σ(w)) x, with an MLP of M, 2M and M numbers and GELU."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dimension, 2 * dimension), nn.GELU(), nn.Linear(2 * dimension, dimension))
        self.gate = nn.Parameter(torch.tensor(GATE))

    def forward(self, x_NM: Tensor) -> Tensor:
        """Map vectors [n, m] of the index to vectors [n, m]."""
        share = torch.sigmoid(self.gate)
        mapped_NM: Tensor = share * self.net(x_NM) + (1 - share) * x_NM
        return mapped_NM


class Table(nn.Module):
    """Free vectors, which start at given ones."""

    def __init__(self, start_NM: Tensor) -> None:
        super().__init__()
        self.free = nn.Embedding(len(start_NM), start_NM.shape[1])
        with torch.no_grad():
            self.free.weight.copy_(start_NM)

    def forward(self, row_N: Tensor) -> Tensor:
        """Vectors [n, m] of some rows."""
        vectors: Tensor = self.free(row_N)
        return vectors


def match(matrix: Matrix, base_X: Values) -> Matching:
    """Match scores to the range of their pairs' base scores [x], by the first 100 queries."""
    chosen = np.isin(matrix.query_X, np.unique(matrix.query_X)[:MATCHED])
    return Matching.of(matrix.score_X[chosen], base_X[chosen])


def base_scores(matrix: Matrix, query_QM: Floats, item_NM: Floats) -> Values:
    """Compute the inner products [x] of the scored pairs' vectors."""
    parts = np.array_split(np.arange(len(matrix)), max(1, len(matrix) // 65_536))
    products = [np.einsum("xm,xm->x", query_QM[matrix.query_X[part]], item_NM[matrix.item_X[part]]) for part in parts]
    return np.concatenate(products).astype(np.float64)


def residual_bias(matrix: Matrix, base_X: Values, items: int) -> tuple[Values, float]:
    """Compute the bias [n] of every document, and the mean slope of scores on the base score, at least 0.

    The bias is the mean residual of a document's n scores after intercept and slope on the base score, times
    n / (n + 0.5), and 0 without scores. Queries with ten scores have a separate intercept and slope, others share one.
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
    """Intercept and slope by least squares; slope 0 where base scores are all alike."""
    if not len(base_X):
        return np.zeros(2)
    spread = float(np.var(base_X))
    slope = float(np.cov(base_X, score_X, bias=True)[0, 1]) / spread if spread > 0 else 0.0
    return np.array([float(score_X.mean()) - slope * float(base_X.mean()), slope])


def transductive(
    matrix: Matrix, target_X: Values, query_QM: Floats, item_NM: Floats, spec: FactorsSpec, seed: int
) -> Floats:
    """Learn free vectors for documents with scores; returns the vectors [n, m] of all, others unchanged.

    Queries' vectors are free too. `target_X` are the matched scores.
    """
    seen_S, place_X = np.unique(matrix.item_X, return_inverse=True)
    queries, items = Table(torch.from_numpy(query_QM)), Table(torch.from_numpy(item_NM[seen_S]))
    query_X, item_X = torch.from_numpy(matrix.query_X), torch.from_numpy(place_X)
    _learn([queries, items], lambda rows: (queries(query_X[rows]), items(item_X[rows])), matrix, target_X, spec, seed)
    learned_NM = item_NM.astype(np.float32, copy=True)
    learned_NM[seen_S] = items.free.weight.detach().numpy()
    return learned_NM


def inductive(
    matrix: Matrix, target_X: Values, query_QM: Floats, item_NM: Floats, spec: FactorsSpec, seed: int
) -> tuple[Inductive, Inductive]:
    """Learn a map of queries' vectors and one of documents' vectors, whose inner products are the matched scores."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        queries, items = Inductive(query_QM.shape[1]), Inductive(item_NM.shape[1])
    query, item = torch.from_numpy(query_QM), torch.from_numpy(item_NM)
    query_X, item_X = torch.from_numpy(matrix.query_X), torch.from_numpy(matrix.item_X)

    def sides(rows: Tensor) -> tuple[Tensor, Tensor]:
        return queries(query[query_X[rows]]), items(item[item_X[rows]])

    _learn([queries, items], sides, matrix, target_X, spec, seed)
    return queries.eval(), items.eval()


@torch.inference_mode()
def mapped(inductive_map: Inductive, vector_NM: Floats) -> Floats:
    """Vectors [n, m] of queries or documents by an inductive map."""
    parts = torch.split(torch.from_numpy(np.ascontiguousarray(vector_NM, dtype=np.float32)), 16_384)
    return torch.cat([inductive_map(part) for part in parts]).numpy() if len(vector_NM) else vector_NM


def _learn(
    modules: Sequence[nn.Module],
    sides: Callable[[Tensor], tuple[Tensor, Tensor]],
    matrix: Matrix,
    target_X: Values,
    spec: FactorsSpec,
    seed: int,
) -> None:
    """Lessen the mean squared error of inner products by AdamW, for as many passes as the spec says."""
    optimizer = torch.optim.AdamW([p for module in modules for p in module.parameters()], lr=spec.rate(len(matrix)))
    target = torch.from_numpy(target_X.astype(np.float32))
    for epoch in range(spec.passes(len(matrix))):
        order = np.random.default_rng([seed, epoch]).permutation(len(matrix))
        for rows in np.array_split(order, -(-len(order) // spec.batch_size)):
            chosen = torch.from_numpy(rows)
            query_XM, item_XM = sides(chosen)
            loss = ((query_XM * item_XM).sum(1) - target[chosen]).square().mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
