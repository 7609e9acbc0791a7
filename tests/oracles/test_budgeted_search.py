"""Budgeted search against scipy, dense linear algebra, brute force, and what follows from its definitions."""

import numpy as np
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from rayhier.scores.call_budget import Asked, run_sync, spending
from rayhier.scores.estimators import LeastSquares, Matching, Ridge

SEEDS = st.integers(0, 10_000)


def world(seed, documents=200, m=8, queries=3):
    rng = np.random.default_rng(seed)
    vector_PM = rng.normal(size=(documents, m))
    vector_PM /= np.linalg.norm(vector_PM, axis=1, keepdims=True)
    return rng, vector_PM, rng.normal(size=(queries, m))


def spend(budget, rounds, score, asked):
    return run_sync(spending(asked, budget, rounds), lambda pairs: score(*pairs))


@given(SEEDS)
@settings(max_examples=25)
def test_least_squares_recovers_every_score_that_is_an_inner_product(seed):
    rng, vector_PM, query_QM = world(seed)

    def score(query_N, row_N):
        return np.einsum("nm,nm->n", query_QM[query_N], vector_PM[row_N])

    asked = [Asked(rng.normal(size=200), LeastSquares(vector_PM)) for _ in query_QM]
    for query, spent in enumerate(spend(16, 2, score, asked)):
        truth_P = vector_PM @ query_QM[query]
        np.testing.assert_allclose(spent.score_P, truth_P[spent.row_P], atol=1e-8)
        # The calls left after the first round go to the best there are.
        first = set(np.argsort(-asked[query].first_P, kind="stable")[:8].tolist())
        others = [row for row in np.argsort(-truth_P) if row not in first]
        assert set(spent.row_P[:16].tolist()) == first | set(others[:8])


@given(SEEDS, st.integers(3, 30), st.booleans())
@settings(max_examples=25)
def test_least_squares_is_scipy_s_mixed_with_the_base_vector_at_matched_scores(seed, count, mixes):
    rng, vector_PM, query_QM = world(seed)
    read_S, score_S = rng.choice(200, count, replace=False), rng.normal(3, 5, size=count)
    if not mixes:
        expected_M = scipy.linalg.lstsq(vector_PM[read_S], score_S, cond=1e-6)[0]
        found_P = LeastSquares(vector_PM).estimate(read_S, score_S)
        np.testing.assert_allclose(found_P, vector_PM @ expected_M, atol=1e-8)
        return
    matching = Matching.of(score_S, vector_PM[read_S] @ query_QM[0])
    own_M = scipy.linalg.lstsq(vector_PM[read_S], matching.beta * (score_S - matching.alpha), cond=1e-6)[0]
    expected_P = vector_PM @ (0.3 * query_QM[0] + 0.7 * own_M) / matching.beta + matching.alpha
    fit = LeastSquares(vector_PM, query_QM[0], 0.3, matching)
    np.testing.assert_allclose(fit.estimate(read_S, score_S), expected_P, rtol=1e-6, atol=1e-6)


@given(SEEDS, st.integers(1, 60), st.sampled_from([0.01, 1.0, 30.0]))
@settings(max_examples=30)
def test_ridge_is_generalised_least_squares_and_kriging(seed, count, mu):
    rng, vector_PM, _ = world(seed)
    prior_P = rng.normal(size=200)
    read_S, score_S = rng.choice(200, count, replace=False), rng.normal(size=count)
    read_SM = vector_PM[read_S]
    inverse_SS = np.linalg.inv(read_SM @ read_SM.T + mu * np.eye(count))
    design_S2 = np.stack([np.ones(count), prior_P[read_S]], axis=1)
    if count > 1:
        c_2 = np.linalg.solve(design_S2.T @ inverse_SS @ design_S2, design_S2.T @ inverse_SS @ score_S)
    if count == 1 or c_2[1] < 0:
        one_S = np.ones(count)
        c_2 = np.array([one_S @ inverse_SS @ score_S / (one_S @ inverse_SS @ one_S), 0.0])
    rest_S = score_S - design_S2 @ c_2
    expected_P = c_2[0] + c_2[1] * prior_P + vector_PM @ read_SM.T @ inverse_SS @ rest_S
    np.testing.assert_allclose(Ridge(prior_P, vector_PM, mu).estimate(read_S, score_S), expected_P, atol=1e-6)


@given(SEEDS, st.integers(1, 250), st.integers(1, 7))
@settings(max_examples=40)
def test_budgets_are_exact_and_no_pair_is_read_twice(seed, budget, rounds):
    rounds = min(rounds, budget)
    rng, vector_PM, query_QM = world(seed, documents=120)
    seen = []
    score_QP = rng.normal(size=(3, 120))
    base_QP = query_QM @ vector_PM.T
    asked = [Asked(base_P, Ridge(base_P, vector_PM)) for base_P in base_QP]

    def score(query_N, row_N):
        seen.extend(zip(query_N.tolist(), row_N.tolist(), strict=True))
        return score_QP[query_N, row_N]

    found = spend(budget, rounds, score, asked)
    assert len(seen) == len(set(seen)) == 3 * min(budget, 120)
    for query, spent in enumerate(found):
        assert spent.calls == min(budget, 120)
        read = spent.row_P[: spent.calls]
        assert {row for own, row in seen if own == query} == set(read.tolist())
        np.testing.assert_array_equal(spent.score_P[: spent.calls], np.sort(score_QP[query, read])[::-1])
        assert sorted(spent.row_P.tolist()) == list(range(120))
