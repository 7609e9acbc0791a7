"""Calls are spent as said, whatever scores the pairs, and a scorer's failures are said clearly."""

import numpy as np
import pytest
import torch

from rayhier.scores.call_budget import Asked, ScorerError, run_sync, spending
from rayhier.scores.estimators import Fixed, Matching, Ridge


def asked(documents, queries=2, seed=0):
    rng = np.random.default_rng(seed)
    vector_PM = rng.normal(size=(documents, 4))
    return [Asked(prior_P, Ridge(prior_P, vector_PM)) for prior_P in rng.normal(size=(queries, documents))]


def spend(budget, rounds, score, queries):
    return run_sync(spending(queries, budget, rounds), lambda pairs: score(*pairs))


def test_an_empty_pool_has_no_results_and_costs_nothing():
    empty = Asked(np.zeros(0), Ridge(np.zeros(0), np.zeros((0, 4))))
    found = spend(4, 2, lambda _, row_N: np.ones(len(row_N)), [empty, *asked(9, 1)])
    assert (found[0].calls, len(found[0].row_P), found[1].calls) == (0, 0, 4)
    assert spend(4, 2, None, [empty])[0].calls == 0  # nothing is asked of the scorer
    assert spend(4, 2, None, []) == []


def test_what_was_not_read_follows_by_its_estimate():
    prior_P = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    spent = spend(2, 1, lambda _, row_N: np.array([0.1, 0.2]), [Asked(prior_P, Fixed(prior_P))])[0]
    assert spent.row_P.tolist() == [1, 0, 2, 3, 4]
    assert spent.score_P.tolist() == [0.2, 0.1, 3.0, 2.0, 1.0]


@pytest.mark.parametrize(("budget", "rounds"), [(0, 1), (4, 5), (3, 0), (-1, 1)])
def test_a_budget_below_the_rounds_is_refused(budget, rounds):
    with pytest.raises(ValueError, match=f"budget: got {budget} calls in {rounds} rounds; allowed: at least one round"):
        spend(budget, rounds, None, asked(9))


BROKEN = {
    "too few": (lambda _, row_N: np.zeros(len(row_N) - 1), r"shape \[7\]; allowed: one score for 8 pairs"),
    "nothing": (lambda *_: None, "NoneType; allowed: a number per pair"),
    "numbers as text": (lambda _, row_N: ["1"] * len(row_N), "list; allowed: a number per pair"),
    "a tensor that learns": (lambda _, row_N: torch.zeros(len(row_N), requires_grad=True), "with Tensor"),
    "huge": (lambda _, row_N: np.full(len(row_N), 1e308), r"no finite number; allowed: .* at most 1e\+30"),
    "NaN": (lambda _, row_N: np.where(row_N == row_N[0], np.nan, 0.0), "no finite number; allowed: finite scores"),
    "infinity": (lambda _, row_N: np.full(len(row_N), np.inf), "8 of 8 pairs with no finite number"),
}


@pytest.mark.parametrize(("score", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_scorer_is_named(score, said):
    with pytest.raises(ScorerError, match=said):
        spend(8, 2, score, asked(30))


def test_matching_undoes_itself_and_leaves_constant_scores_alone():
    score_N, base_N = np.array([1.0, 5.0, 3.0]), np.array([0.2, 0.4, 0.9])
    matching = Matching.of(score_N, base_N)
    matched_N = matching(score_N)
    np.testing.assert_allclose([matched_N.mean(), matched_N.std()], [base_N.mean(), base_N.std()])
    np.testing.assert_allclose(matching.undo(matched_N), score_N)
    assert Matching.of(np.ones(3), base_N) == Matching(0.0, 1.0)
