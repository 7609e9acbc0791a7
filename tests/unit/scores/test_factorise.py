"""What is learned from scores: vectors that explain them, and a bias, which shrinks with few scores."""

import numpy as np
import pytest
import torch

from rayhier.scores.factorise import (
    Inductive,
    Matrix,
    base_scores,
    inductive,
    mapped,
    residual_bias,
    transductive,
)


@pytest.fixture
def world(unit):
    """Queries [20, 8], documents [60, 8], of which the last ten have no score, and scores that are not the base's."""
    rng = np.random.default_rng(0)
    query_QM, item_NM = unit(rng, 20, 8), unit(rng, 60, 8)
    turned_NM = item_NM + 0.5 * unit(rng, 60, 8)
    query_X, item_X = (grid.reshape(-1) for grid in np.meshgrid(np.arange(20), np.arange(50), indexing="ij"))
    score_X = np.einsum("xm,xm->x", query_QM[query_X], turned_NM[item_X]).astype(np.float64)
    return Matrix(query_X, item_X, score_X), query_QM, item_NM


def error(matrix, query_QM, item_NM):
    return float(np.mean((base_scores(matrix, query_QM, item_NM) - matrix.score_X) ** 2))


def test_transductive_vectors_explain_scores_better_and_spare_documents_without(world):
    matrix, query_QM, item_NM = world
    spec = "transductive"
    learned_NM = transductive(matrix, matrix.score_X, query_QM, item_NM, spec, 0)
    np.testing.assert_array_equal(learned_NM[50:], item_NM[50:])
    assert (learned_NM[:50] != item_NM[:50]).any(axis=1).all()
    assert error(matrix, query_QM, learned_NM) < 0.5 * error(matrix, query_QM, item_NM)


def test_an_inductive_map_starts_near_the_identity_and_maps_what_is_added(world):
    matrix, query_QM, item_NM = world
    torch.manual_seed(0)
    np.testing.assert_allclose(mapped(Inductive(8).eval(), item_NM), item_NM, atol=0.02)
    spec = "inductive"
    both, again = (inductive(matrix, matrix.score_X, query_QM, item_NM, spec, 0) for _ in range(2))
    mapped_QM, mapped_NM = (mapped(one, own) for one, own in zip(both, (query_QM, item_NM), strict=True))
    assert (mapped_NM[50:] != item_NM[50:]).any(axis=1).all()
    assert error(matrix, mapped_QM, mapped_NM) < error(matrix, query_QM, item_NM)
    np.testing.assert_array_equal(mapped_NM, mapped(again[1], item_NM))


def test_a_bias_by_hand():
    """Queries of one or two scores share a line: score = 1 + 2 base, but for document 2, which scores 1.5 more."""
    matrix = Matrix(np.array([0, 1, 2, 0, 1]), np.array([0, 1, 0, 1, 2]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    base_X = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    bias_N, slope = residual_bias(matrix, base_X, 4)
    assert slope == 2
    np.testing.assert_allclose(bias_N, np.zeros(4), atol=1e-12)
    raised = Matrix(matrix.query_X, matrix.item_X, matrix.score_X + np.array([0, 0, 0, 0, 1.5]))
    line = np.polyfit(base_X, raised.score_X, 1)
    residual_X = raised.score_X - np.polyval(line, base_X)
    expected = [residual_X[[0, 2]].sum() / 2.5, residual_X[[1, 3]].sum() / 2.5, residual_X[4] / 1.5, 0]
    np.testing.assert_allclose(residual_bias(raised, base_X, 4)[0], expected, atol=1e-12)


def test_a_prior_never_turns_the_base_s_order_round():
    """Where scores fall with the base score, as chance may have it with few."""
    matrix = Matrix(np.zeros(12, np.int64), np.arange(12), -np.arange(12.0))
    assert residual_bias(matrix, np.arange(12.0), 12)[1] == 0
