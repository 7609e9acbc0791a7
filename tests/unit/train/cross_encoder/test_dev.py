"""Re-ranking on dev, also of queries with fewer documents than others."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import ID, Ranking
from rayhier.train.cross_encoder.phase import DevReranking


@pytest.fixture
def rerank():
    """Two queries: the answer of one is the base's last document, the other has one document, which is its answer."""
    zero_Q = np.zeros(2, np.int64)
    documents = pa.table({ID: pa.array(["a", "b", "c"])})
    score_QK = np.array([[0.9, 0.8, 0.5], [0.7, -np.inf, -np.inf]], np.float32)
    base = Ranking(score_QK, np.array([[0, 1, 2], [1, -1, -1]]), documents, zero_Q, zero_Q, zero_Q)
    grades = {"x": {"c": 1}, "y": {"b": 1}}
    queries = Queries(["x", "y"], np.zeros((2, 4), np.float32), grades, ["text x", "text y"])
    return DevReranking(queries, base, lambda row_U: [f"document {row}" for row in row_U])


def third(score):
    return lambda pairs: np.array([{"document 2": score}.get(text, 0.0) for _, text in pairs], np.float32)


@pytest.mark.parametrize(("score", "expected"), [(1.0, 1.0), (-1.0, (1 / np.log2(4) + 1) / 2)])
def test_documents_are_ordered_by_score(score, expected, rerank):
    assert rerank.measured(rerank.scores(third(score))) == pytest.approx(expected)
