"""Start of a head in closed form: whiten how documents differ from their own pseudo-queries (ours).

What separates a title or a span from its document is noise to a search. Directions in which such differences are large
count less: x becomes C^-½ x, where C is the differences' covariance, shrunk towards a multiple of the identity
(within-class covariance normalisation, Hatch et al., 2006).
"""

import numpy as np
import torch

from rayhier.arrays import Floats
from rayhier.dataset.spans import Spans
from rayhier.model.encoder import ResidualHead
from rayhier.spec.train import HceTraining
from rayhier.train.tower import HeadTower, Tower

SHRINKAGE = 0.1
"""Part of the identity beside the covariance, whose mean variance is 1; docs/LOG.md has others."""
ROWS = 65_536
"""Differences that are in memory at a time."""


def begin(tower: Tower, spec: HceTraining, document_NM: Floats, drawn: Spans | None) -> None:
    """Start a tower as a spec says: whitened by documents' pseudo-queries, or at the base encoder."""
    if isinstance(tower, HeadTower) and drawn is not None and spec.whitens(len(drawn)):
        whiten(tower.module, document_NM, drawn)


@torch.no_grad()
def whiten(head: ResidualHead, document_NM: Floats, drawn: Spans) -> None:
    """Set a head to the whitening of differences between pseudo-queries and their documents, base vectors [n, m]."""
    matrix_MM = whitening(covariance(document_NM, drawn), SHRINKAGE)
    head.weight.copy_(torch.from_numpy(matrix_MM) - torch.eye(len(matrix_MM)))


def covariance(document_NM: Floats, drawn: Spans) -> Floats:
    """Second moments [m, m] of pseudo-queries less their documents."""
    m = document_NM.shape[1]
    total_MM = np.zeros((m, m))
    for begin in range(0, len(drawn), ROWS):
        part = slice(begin, begin + ROWS)
        difference_PM = (drawn.vector_PM[part] - document_NM[drawn.row_P[part]]).astype(np.float64)
        total_MM += difference_PM.T @ difference_PM
    return np.asarray(total_MM / len(drawn))


def whitening(covariance_MM: Floats, shrinkage: float) -> Floats:
    """Matrix [m, m] that makes vectors of a covariance white, scaled to a mean diagonal of 1.

    >>> np.diag(whitening(np.diag([4.0, 1.0]), 0.0))
    array([0.6666667, 1.3333334], dtype=float32)
    """
    value_M, vector_MM = np.linalg.eigh(covariance_MM)
    scale_M = (np.maximum(value_M, 0) / value_M.mean() + shrinkage) ** -0.5
    found_MM = (vector_MM * scale_M) @ vector_MM.T
    return np.asarray(found_MM / np.diag(found_MM).mean(), dtype=np.float32)
