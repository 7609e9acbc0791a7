"""Served re-ranking: through the engine equal to offline, lost without harm, and what the API refuses."""

import asyncio

import numpy as np
import pytest
from fastapi.testclient import TestClient

from rayhier.search.rerank import Reranker
from rayhier.search.searcher import Searcher
from rayhier.serve.api import api
from rayhier.serve.engine import Engine
from rayhier.serve.reranking import RERANKER, Reranking
from rayhier.spec.search import AxnRerank, Rnr

from .test_api import INDEX, LIMITS, Canned, error

SPECS = [AxnRerank(type="axn", budget=6, rounds=3), Rnr(type="rnr", budget=5, pool=20), Rnr(type="rnr", pool="all")]


def scores(queries, items):
    """A black box: how often a document's text has the letters of the query's first word."""
    return np.array(
        [sum(map(item.count, query.split()[0])) + len(item) / 1e3 for query, item in zip(queries, items, strict=True)]
    )


class Group:
    """A shard group in this process, as test_engine's, over the leaves of an open index."""

    def __init__(self, name, leaves, range_):
        self.name, self.own, self.leaves = name, leaves, range_

    async def scan(self, query_QM, leaves_QB, k, wanted=None, whole=False):
        mine_QB = np.where((leaves_QB >= self.leaves.start) & (leaves_QB < self.leaves.stop), leaves_QB, -1)
        return self.own.scan(query_QM, mine_QB, k, wanted, whole=whole)

    async def answers(self):
        return True


@pytest.fixture(scope="module")
def opened(published):
    """The tiny index, open."""
    return Searcher.open(published)


def engine_of(searcher, spec, score):
    manifest = searcher.manifest
    every = len(manifest.counts)
    groups = [Group(f"g{n}", searcher.leaves, range(n * every // 2, (n + 1) * every // 2)) for n in range(2)]
    reranking = Reranking(Reranker(spec, None, beside=0.5), score)
    return Engine(searcher.model, groups, manifest.documents, manifest.rows, reranking)


@pytest.mark.parametrize("spec", SPECS, ids=["axn", "rnr", "all"])
def test_served_is_offline(opened, spec):
    async def score(queries, items):
        await asyncio.sleep(0)
        return scores(queries, items)

    texts = ["leaf root branch", "stone cloud", "wolf bear deer hare"]
    offline = Searcher(opened.model, opened.leaves, opened.manifest, reranker=Reranker(spec, scores, beside=0.5))
    beam = None if spec.pool == "all" else 3  # all leaves are visited
    expected = offline.search(texts, k=9, beam=beam, budget=spec.budget)
    given = asyncio.run(engine_of(opened, spec, score).search(texts, 9, 3, None, spec.budget))
    assert given.lost == [[]] * 3
    assert given.ms["rerank"] > 0
    for answer, wanted in zip(given.answers, expected, strict=True):
        assert [hit.id for hit in answer.hits] == [hit.id for hit in wanted.hits]
        np.testing.assert_allclose([hit.score for hit in answer.hits], [hit.score for hit in wanted.hits], atol=1e-5)
        assert [hit.estimated for hit in answer.hits] == [hit.estimated for hit in wanted.hits]
        assert answer.calls == wanted.calls


def test_without_the_cross_encoder_answers_are_those_of_the_scan(opened):
    async def gone(*_):
        raise OSError("the replica died")

    engine = engine_of(opened, SPECS[0], gone)
    texts = ["leaf root branch", "stone cloud"]
    given = asyncio.run(engine.search(texts, 7, 3, None, 6))
    plain = asyncio.run(engine.search(texts, 7, 3))
    assert given.lost == [[RERANKER]] * 2
    assert plain.lost == [[], []]
    for answer, wanted in zip(given.answers, plain.answers, strict=True):
        assert (answer.hits, answer.calls) == (wanted.hits, None)


def test_vectors_and_a_budget_of_nothing_are_not_re_ranked(opened):
    async def never(*_):
        raise AssertionError

    engine = engine_of(opened, SPECS[0], never)
    vectors = opened.model.encode(["leaf root"]).numpy
    assert asyncio.run(engine.search(vectors, 5, 2)).answers[0].calls is None
    assert asyncio.run(engine.search(["leaf root"], 5, 2)).answers[0].calls is None


RERANKS = INDEX.model_copy(update={"rerank": "axn", "budget": 20})
REFUSED = {
    "no cross-encoder": (INDEX, {"query": "oak", "rerank": True}, "rerank: this index has no cross-encoder"),
    "a budget without one": (INDEX, {"query": "oak", "budget": 5}, "budget: this index has no cross-encoder"),
    "a vector": (RERANKS, {"vector": [1, 0, 0], "rerank": True}, "rerank: got a vector, which no cross-encoder reads"),
    "a vector's budget": (RERANKS, {"vector": [1, 0, 0], "budget": 3}, "budget: got a vector, which no"),
    "above the limit": (RERANKS, {"query": "oak", "budget": 51}, "budget: got 51; allowed: 1 to 50"),
    "nothing": (RERANKS, {"query": "oak", "budget": 0}, "budget: Input should be greater than or equal to 1"),
    "both": (RERANKS, {"query": "oak", "budget": 5, "rerank": False}, "budget: got 5 with rerank false"),
}


@pytest.mark.parametrize(("index", "body", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(index, body, said):
    engine = Canned()
    client = TestClient(api(engine, index, LIMITS.model_copy(update={"max_budget": 50})))
    status, code, message = error(client.post("/v1/search", json=body))
    assert (status, code) == (422, "invalid")
    assert said in message
    assert engine.asked == []


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        ({"query": "oak"}, 20),
        ({"query": "oak", "rerank": True}, 20),
        ({"query": "oak", "budget": 3}, 3),
        ({"query": "oak", "rerank": False}, 0),
        ({"vector": [1, 0, 0]}, 0),
    ],
)
def test_budgets_are_the_specs_unless_the_request_has_one(body, calls):
    asked = []

    class Noting(Canned):
        async def search(self, questions, k, beam, wanted=None, budget=0, mode="dense"):
            asked.append(budget)
            return await super().search(questions, k, beam)

    client = TestClient(api(Noting(), RERANKS, LIMITS))
    assert client.post("/v1/search", json=body).status_code == 200
    assert asked == [calls]
