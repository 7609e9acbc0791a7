"""What a search may ask: every default, and every refusal."""

import re
from dataclasses import replace

import numpy as np
import pytest

from rayhier.search.request.request import Request, Rules, SearchLimits
from rayhier.search.routing.chosen_beam import Calibration
from rayhier.spec import InputError
from rayhier.spec.search import SearchSpec

LEAVES, ROWS = 9, 90
LIMITS = SearchLimits(max_k=50, max_beam=8, max_budget=40, max_calls=60, max_pool=100, max_batch=3, max_query=20)
RNR = {"type": "rnr", "budget": 30, "pool": 40}
UNIT = np.eye(3, dtype=np.float32)


@pytest.fixture(autouse=True)
def ten_fused(monkeypatch):
    monkeypatch.setattr("rayhier.spec.search.FUSED", 10)


def rules_of(limits=LIMITS, groups=1, *, words=False, **search):
    """Rules of an index of nine leaves whose spec has some keys of `search`; a mode among them counts words."""
    spec, words = SearchSpec.model_validate({"k": 7, **search}), words or "mode" in search
    return Rules(spec, LEAVES, ROWS, {"year": "int"}, 3, is_cosine=True, words=words, groups=groups, limits=limits)


DENSE = rules_of(beam=2)
WORDS = rules_of(beam=2, words=True)
LEVEL = rules_of(how="level")
RERANKS = rules_of(beam=2, rerank=RNR)
ALL = rules_of(rerank={**RNR, "pool": "all"})


DEFAULTS = {
    "the spec's": (DENSE, ["oak"], {}, (7, 2, "dense", 0, None)),
    "an automatic beam": (rules_of(), ["oak"], {}, (7, 4, "dense", 0, None)),
    "the request's": (DENSE, ["oak"], {"k": 3, "beam": 5}, (3, 5, "dense", 0, None)),
    "the spec's mode": (rules_of(beam=2, mode="hybrid"), ["oak"], {}, (7, 2, "hybrid", 0, None)),
    "vectors are dense": (rules_of(beam=2, mode="hybrid"), UNIT, {}, (7, 2, "dense", 0, None)),
    "bm25 visits no leaf": (WORDS, ["oak"], {"mode": "bm25"}, (7, 0, "bm25", 0, None)),
    "a level visits no leaf": (LEVEL, ["oak"], {}, (7, 0, "dense", 0, None)),
    "re-ranked by the spec": (RERANKS, ["oak"], {}, (7, 2, "dense", 30, 40)),
    "a budget of 0 and rerank false": (RERANKS, ["oak"], {"budget": 0, "rerank": False}, (7, 2, "dense", 0, None)),
    "a budget of 0 without a cross-encoder": (DENSE, ["oak"], {"budget": 0}, (7, 2, "dense", 0, None)),
    "vectors are not re-ranked": (RERANKS, UNIT, {}, (7, 2, "dense", 0, None)),
    "the pool holds all results": (RERANKS, ["oak"], {"k": 50}, (50, 2, "dense", 30, 50)),
    "the pool is all": (ALL, ["oak"], {}, (7, LEAVES, "dense", 30, ROWS)),
    "the pool is all, not re-ranked": (ALL, ["oak"], {"rerank": False, "beam": 3}, (7, 3, "dense", 0, None)),
}


@pytest.mark.parametrize(("rules", "queries", "given", "filled"), DEFAULTS.values(), ids=DEFAULTS)
def test_what_is_not_given_is_filled_in(rules, queries, given, filled):
    request = rules.request(queries, **given)
    assert (request.k, request.beam, request.mode, request.budget, request.pool) == filled
    assert request.queries is queries
    assert request.where is None


REFUSED = {
    "an unknown mode": (WORDS, ["oak"], {"mode": "sparse"}, "mode: got 'sparse'"),
    "a mode without words": (DENSE, ["oak"], {"mode": "bm25"}, "mode: got 'bm25'"),
    "words of a vector": (WORDS, UNIT, {"mode": "hybrid"}, "mode: got 'hybrid' with a vector"),
    "a budget with rerank false": (RERANKS, ["oak"], {"budget": 5, "rerank": False}, "budget: got 5 with rerank false"),
    "no cross-encoder": (DENSE, ["oak"], {"rerank": True}, "rerank: this index has no cross-encoder"),
    "a budget without one": (DENSE, ["oak"], {"budget": 5}, "budget: this index has no cross-encoder"),
    "rerank of a vector": (RERANKS, UNIT, {"rerank": True}, "rerank: got a vector"),
    "a budget of a vector": (RERANKS, UNIT, {"budget": 5}, "budget: got a vector"),
    "a budget beyond its limit": (RERANKS, ["oak"], {"budget": 41}, "budget: got 41"),
    "calls beyond their limit": (RERANKS, ["oak", "elm"], {"budget": 31}, "budget: got 31 for each of 2 queries"),
    "a beam of a level": (LEVEL, ["oak"], {"beam": 3}, "beam: got 3, but search.how is level"),
    "a beam of bm25": (WORDS, ["oak"], {"beam": 3, "mode": "bm25"}, "beam: got 3, but mode is bm25"),
    "a beam where all is read": (ALL, ["oak"], {"beam": 3}, "beam: got 3, but search.rerank.pool is all"),
    "a beam of 0": (DENSE, ["oak"], {"beam": 0}, "beam: got 0"),
    "a beam beyond its limit": (DENSE, ["oak"], {"beam": 9}, "beam: got 9"),
    "a vector too large": (DENSE, np.concatenate([UNIT[:1], 1.5 * UNIT[:1]]), {}, "queries: got length 1.5"),
    "a vector of small whole numbers": (DENSE, np.array([[12, 0, 0]], np.int8), {}, "queries: got length 12"),
}


@pytest.mark.parametrize(("rules", "queries", "given", "said"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_go_together_is_refused(rules, queries, given, said):
    with pytest.raises(InputError, match=rf"^{re.escape(said)}.*; allowed: |^{re.escape(said)}.*cross-encoder"):
        rules.request(queries, **given)


def test_what_is_at_its_limit_is_allowed_and_without_limits_any_number():
    most = RERANKS.request(["x" * 20] * 2, k=50, beam=8, budget=30)
    assert (most.k, most.beam, most.budget) == (50, 8, 30)
    assert RERANKS.request(["oak"], budget=40).budget == 40
    assert len(DENSE.request(["oak"] * 3).queries) == 3
    for length in (0.9901, 1.0099):  # unit vectors may be rounded
        DENSE.request(length * UNIT)
    endless = rules_of(SearchLimits(), beam=2, rerank=RNR)
    request = endless.request(["x" * 10_000] * 1_000, k=10**6, beam=10**6, budget=10**6)
    assert (request.k, request.beam, request.budget) == (10**6, 10**6, 10**6)


def test_a_request_that_is_only_routed():
    assert DENSE.route(["oak"]) == Request(["oak"], 7, 2)
    assert DENSE.route(["oak"], 5).beam == 5
    assert LEVEL.route(["oak"]).beam == LEVEL.default_beam == 4
    with pytest.raises(InputError, match=r"^beam: got 9; allowed: 1 to 8$"):
        DENSE.route(["oak"], 9)


def test_a_beam_that_dev_queries_chose_depends_on_the_number_of_results():
    calibration = Calibration(np.array([[1, 3, 9], [2, 4, 900]]))
    rules = replace(rules_of(beam={"recall": 0.9}, k=2), calibration=calibration)
    assert [rules.request(["oak"], k).beam for k in (1, 2, 3, 50)] == [2, 4, rules.leaves, rules.leaves]
    assert (rules.request(["oak"]).beam, rules.route(["oak"]).beam, rules.default_beam) == (4, 4, 4)
    assert rules.request(["oak"]).fills
    assert rules.request(["oak"], beam=3).beam == 3


POOLS = {
    # What may be read of two queries that visit leaves of 10 and of 60 rows.
    "dense": (rules_of(beam=2, rerank=RNR), {}, 10 + 40),
    "bm25": (rules_of(words=True, beam=2, rerank=RNR), {"mode": "bm25"}, 40 + 40),
    "hybrid": (rules_of(words=True, groups=3, beam=2, rerank=RNR), {"mode": "hybrid"}, 10 + 40 + 2 * 30),
    "all rows": (rules_of(words=True, groups=30, beam=2, rerank=RNR), {"mode": "hybrid"}, 10 + 40 + 2 * ROWS),
}


@pytest.mark.parametrize(("rules", "given", "documents"), POOLS.values(), ids=POOLS)
def test_documents_that_may_be_read_have_a_limit(rules, given, documents):
    request, held_Q = rules.request(["oak", "elm"], **given), np.array([10, 60])
    replace(rules, limits=replace(LIMITS, max_pool=documents)).check_pool(request, held_Q)
    with pytest.raises(InputError) as caught:
        replace(rules, limits=replace(LIMITS, max_pool=documents - 1)).check_pool(request, held_Q)
    assert str(caught.value).startswith(f"rerank: got 2 queries, which fetch {documents} documents")


def test_what_is_not_re_ranked_has_no_pool():
    rules = replace(RERANKS, limits=replace(LIMITS, max_pool=0))
    rules.check_pool(rules.request(["oak"], rerank=False), np.array([60]))


TOO_LOW = {
    "k": (rules_of(beam=2), "max_k", 7),
    "beam": (rules_of(), "max_beam", 4),
    "budget": (RERANKS, "max_budget", 30),
    "pool": (RERANKS, "max_pool", 40),
    "pool with words": (rules_of(groups=2, beam=2, mode="hybrid", rerank=RNR), "max_pool", 60),
}


@pytest.mark.parametrize(("rules", "name", "least"), TOO_LOW.values(), ids=TOO_LOW)
def test_limits_allow_what_the_spec_gives_by_default(rules, name, least):
    replace(rules, limits=replace(LIMITS, **{name: least})).check_defaults()
    with pytest.raises(InputError, match=rf"^limits.{name}: got {least - 1}; allowed: at least {least}, the spec's"):
        replace(rules, limits=replace(LIMITS, **{name: least - 1})).check_defaults()
