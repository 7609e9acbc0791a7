"""Start a head in closed form, so that it discounts how documents differ from their pseudo-queries (ours).

A vector x becomes C^-½ x. C is the covariance of the differences between documents and their pseudo-queries. C is
shrunk towards a multiple of the identity (within-class covariance normalisation, Hatch et al., 2006).
"""

import numpy as np
import torch

from rayhier.arrays import Floats, Values
from rayhier.dataset.spans import Spans
from rayhier.train.dev_measures import Measure
from rayhier.train.group import WorkerGroup
from rayhier.train.tower import HeadTower, Tower, encode_side

SHRINKAGE = 0.1
"""Multiple of the identity that is added to the covariance, scaled to a mean variance of 1 (docs/results/LOG.md)."""
ERRORS = 2.0
"""Number of standard errors by which dev may get worse, so that a head still starts whitened."""
ROWS = 65_536


def start_whitened(tower: Tower, drawn: Spans | None, measure: Measure) -> None:
    """Whiten a head by pseudo-queries, if there are any. Undo the change if dev gets worse by more than ERRORS."""
    if not isinstance(tower, HeadTower) or drawn is None or not len(drawn):
        return
    group, before_MM = WorkerGroup(), tower.module.weight.detach().clone()

    def dev() -> Values:
        document_NM, dev_QM = (encode_side(tower, side, len(before_MM), group) for side in ("document", "dev"))
        return measure(document_NM, dev_QM).share_Q

    base_Q = dev()
    matrix_MM = torch.from_numpy(whitening(covariance(tower.stored["document"], drawn), SHRINKAGE))
    with torch.no_grad():
        tower.module.weight.copy_(matrix_MM - torch.eye(len(matrix_MM)))
        if group.agree(is_behind(dev(), base_Q)):
            tower.module.weight.copy_(before_MM)


def is_behind(value_Q: Values, other_Q: Values) -> bool:
    """Return True if the mean of `value_Q` is lower than that of `other_Q` by more than two standard errors.

    >>> other_Q = np.array([0.5, 0.6, 0.7, 0.8])
    >>> is_behind(other_Q - [0.1, 0.2, 0.1, 0.2], other_Q), is_behind(other_Q - [0.4, -0.1, 0.3, 0.0], other_Q)
    (True, False)
    """
    difference_Q = value_Q - other_Q
    return bool(difference_Q.mean() < -ERRORS * difference_Q.std() / len(difference_Q) ** 0.5)


def covariance(document_NM: Floats, drawn: Spans) -> Floats:
    m = document_NM.shape[1]
    total_MM = np.zeros((m, m))
    for begin in range(0, len(drawn), ROWS):
        part = slice(begin, begin + ROWS)
        difference_PM = (drawn.vector_PM[part] - document_NM[drawn.row_P[part]]).astype(np.float64)
        total_MM += difference_PM.T @ difference_PM
    return np.asarray(total_MM / len(drawn))


def whitening(covariance_MM: Floats, shrinkage: float) -> Floats:
    """Compute the matrix C^-½ [m, m] of a covariance C plus `shrinkage`, scaled to a mean diagonal of 1.

    Returns the identity if the covariance is zero.

    >>> np.diag(whitening(np.diag([4.0, 1.0]), 0.0))
    array([0.6666667, 1.3333334], dtype=float32)
    """
    value_M, vector_MM = np.linalg.eigh(covariance_MM)
    if value_M.mean() <= 0:
        return np.eye(len(value_M), dtype=np.float32)
    scale_M = (np.maximum(value_M, 0) / value_M.mean() + shrinkage) ** -0.5
    matrix_MM = (vector_MM * scale_M) @ vector_MM.T
    return np.asarray(matrix_MM / np.diag(matrix_MM).mean(), dtype=np.float32)
