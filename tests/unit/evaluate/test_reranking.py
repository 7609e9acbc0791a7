"""The weight of a search's score beside the cross-encoder's: which one dev queries choose."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import ID, Ranking
from rayhier.evaluate.calibrate import BESIDES, MEASURE, best_beside, mean_slope


def ranking(score_QK):
    score_QK = np.array(score_QK, np.float32)
    row_QK = np.where(np.isfinite(score_QK), np.arange(score_QK.shape[1]), -1)
    zero_Q = np.zeros(len(score_QK), np.int64)
    return Ranking(score_QK, row_QK, pa.table({ID: pa.array(["a", "b", "c"])}), zero_Q, zero_Q, zero_Q)


def judge(*answers):
    names = [f"q{number}" for number in range(len(answers))]
    grades = {name: {answer: 1} for name, answer in zip(names, answers, strict=True)}
    return Judge(Queries(names, np.zeros((len(names), 4), np.float32), grades), [MEASURE])


def scores(*rows):
    return np.array([[*row, *[-np.inf] * (3 - len(row))] for row in rows])


def test_the_least_of_the_best_weights_is_taken():
    """The answer c is first as long as its score of 1 is more than the search's .4 times the weight."""
    found = ranking([[0.9, 0.8, 0.5], [0.7, -np.inf, -np.inf]])
    chosen = best_beside(judge("c", "a"), found, scores([0, 0, 1], [0]), found.score_QK)
    assert (chosen.beside, chosen.queries, chosen.depth) == (0, 2, 3)
    assert chosen.measured["2"] == pytest.approx(1)
    assert chosen.measured["5"] < 1
    assert len(chosen.measured) == len(BESIDES)


def test_the_search_helps_where_the_cross_encoder_errs():
    """It puts the search's second document, which is wrong, first by .5 more; the search is sure by .3."""
    base_QK = np.array([[0.9, 0.6, 0.1]], np.float32)
    by_words = best_beside(judge("a"), ranking(10 * base_QK), scores([0.0, 0.5, 0.0]), base_QK)
    assert (by_words.beside, by_words.searched) == (2, 1), "inner products are added, not BM25's scores"
    chosen = best_beside(judge("a"), ranking(base_QK), scores([0.0, 0.5, 0.0]), base_QK)
    assert chosen.beside == 2
    assert chosen.measured["1"] < chosen.measured["2"] == chosen.measured["200"] == chosen.searched == 1


def test_slopes_are_those_of_least_squares():
    rng = np.random.default_rng(0)
    base_QK, score_QK = rng.normal(size=(2, 5, 12))
    score_QK += 3 * base_QK
    score_QK[0, 7:] = base_QK[0, 7:] = -np.inf
    slopes = [np.polyfit(base_QK[0, :7], score_QK[0, :7], 1)[0]]
    slopes += [np.polyfit(base_K, score_K, 1)[0] for base_K, score_K in zip(base_QK[1:], score_QK[1:], strict=True)]
    assert mean_slope(base_QK, score_QK) == pytest.approx(np.mean(slopes))
    assert mean_slope(base_QK, np.where(np.isfinite(score_QK), -score_QK, -np.inf)) == 0
    for count in (0, 1):
        few_QK = np.where(np.arange(3) < count, 0.5, -np.inf)[None]
        assert mean_slope(few_QK, few_QK) == 0
