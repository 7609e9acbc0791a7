"""Served re-ranking: through the engine equal to offline, lost without harm, and what the API refuses."""

import asyncio

import numpy as np
import pytest
from fastapi.testclient import TestClient

from rayhier.search.rerank import Reranker
from rayhier.search.searcher import Searcher
from rayhier.serve.backend.engine import Engine
from rayhier.serve.backend.reranker import RERANKER, Reranking
from rayhier.serve.errors import ApiError, LostError
from rayhier.serve.http.api import api
from rayhier.spec.search import AxnRerank, Rnr

from .test_api import INDEX, LIMITS, Canned, error

SPECS = [AxnRerank(type="axn", budget=6, rounds=3), Rnr(type="rnr", budget=5, pool=20), Rnr(type="rnr", pool="all")]


def scores(queries, items):
    """A black box: how often a document's text has the letters of the query's first word."""
    return np.array(
        [sum(map(item.count, query.split()[0])) + len(item) / 1e3 for query, item in zip(queries, items, strict=True)]
    )


class Scores:
    """Pair scores by a coroutine function."""

    def __init__(self, score):
        self._score, self.there = score, True

    async def score(self, queries, items, seconds):
        try:
            async with asyncio.timeout(seconds):
                return await self._score(queries, items)
        except TimeoutError:
            raise LostError(RERANKER) from None

    async def answers(self):
        return self.there


class Group:
    """A shard group in this process, as test_engine's, over the leaves of an open index."""

    def __init__(self, name, leaves, range_):
        self.name, self.own, self.leaves = name, leaves, range_

    async def scan(self, query_QM, leaves_QB, k, where=None, with_vectors=False):
        mine_QB = np.where((leaves_QB >= self.leaves.start) & (leaves_QB < self.leaves.stop), leaves_QB, -1)
        return self.own.scan(query_QM, mine_QB, k, where, with_vectors=with_vectors)

    async def answers(self):
        return True


@pytest.fixture(scope="module")
def opened(published):
    """The tiny index, open."""
    return Searcher.open(published)


def engine_of(searcher, spec, score, seconds=60.0):
    manifest = searcher.manifest
    every = len(manifest.counts)
    groups = [Group(f"g{n}", searcher.leaves, range(n * every // 2, (n + 1) * every // 2)) for n in range(2)]
    reranking = Reranking(Reranker(spec, None, base_weight=0.5), Scores(score), seconds)
    return Engine(searcher.model, groups, manifest.documents, manifest.counts, reranking)


@pytest.mark.parametrize("spec", SPECS, ids=["axn", "rnr", "all"])
def test_served_is_offline(opened, spec):
    async def score(queries, items):
        await asyncio.sleep(0)
        return scores(queries, items)

    texts = ["leaf root branch", "stone cloud", "wolf bear deer hare"]
    offline = Searcher(opened.model, opened.leaves, opened.manifest, reranker=Reranker(spec, scores, base_weight=0.5))
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
        raise LostError(RERANKER)

    engine = engine_of(opened, SPECS[0], gone)
    texts = ["leaf root branch", "stone cloud"]
    given = asyncio.run(engine.search(texts, 7, 3, None, 6))
    plain = asyncio.run(engine.search(texts, 7, 3))
    assert given.lost == [[RERANKER]] * 2
    assert plain.lost == [[], []]
    for answer, wanted in zip(given.answers, plain.answers, strict=True):
        assert (answer.hits, answer.calls) == (wanted.hits, None)


def test_one_time_limit_holds_for_all_rounds(opened):
    """Of three rounds that take 50 ms each, the limit of 80 ms passes in the second; no thread is held meanwhile."""
    asked = []

    async def slow(queries, items):
        asked.append(len(items))
        await asyncio.sleep(0.05)
        return scores(queries, items)

    async def main():
        engine = engine_of(opened, SPECS[0], slow, seconds=0.08)
        return await asyncio.gather(*(engine.search(["leaf root branch"], 7, 3, None, 6) for _ in range(40)))

    for given in asyncio.run(main()):
        assert (given.lost, given.answers[0].calls) == ([[RERANKER]], None)
    assert len(asked) <= 80


def test_scores_that_are_none_lose_the_cross_encoder(opened):
    async def wrong(queries, items):
        return np.full(len(items), np.nan)

    given = asyncio.run(engine_of(opened, SPECS[0], wrong).search(["leaf root"], 7, 3, None, 6))
    assert (given.lost, given.answers[0].calls) == ([[RERANKER]], None)


def test_who_leaves_takes_the_calls_along(opened):
    at_work, ended = [], []

    async def hangs(queries, items):
        at_work.append(len(items))
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(len(items))

    async def main():
        asked = asyncio.create_task(engine_of(opened, SPECS[0], hangs).search(["leaf root"], 7, 3, None, 6))
        while not at_work:
            await asyncio.sleep(0.001)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(main())
    assert at_work == ended == [2]


def test_calls_that_would_wait_too_long_are_refused_before_the_scan(opened):
    async def slow(queries, items):
        await asyncio.sleep(0.1)
        return scores(queries, items)

    async def main():
        engine = engine_of(opened, Rnr(type="rnr", budget=5), slow, seconds=1.0)
        await engine.search(["leaf root"] * 8, 7, 3, None, 5)  # 40 calls take 0.1 s
        waiting = [asyncio.create_task(engine.search(["leaf root"] * 8, 7, 3, None, 5)) for _ in range(9)]
        while len(engine.reranking.admission._there) < 9:
            await asyncio.sleep(0.001)
        engine.reranking.admission._short -= 1.0  # a line has stood for a second
        with pytest.raises(ApiError, match=r"wait for longer than 0\.5 s") as caught:
            await engine.search(["leaf root"], 7, 3, None, 5)
        assert (caught.value.status, caught.value.code) == (503, "overloaded")
        assert (await engine.search(["leaf root"], 7, 3)).lost == [[]]  # without calls it is answered
        await asyncio.gather(*waiting)

    asyncio.run(main())


def test_requests_that_are_late_teach_how_fast_calls_are_made(opened):
    """All of a burst are late; those that come later are refused instead of being late, too."""

    async def slow(queries, items):
        await asyncio.sleep(10)

    async def main():
        engine = engine_of(opened, SPECS[0], slow, seconds=0.05)
        first = [engine.search(["leaf root"] * 8, 7, 3, None, 6) for _ in range(9)]
        assert {len(one.lost[0]) for one in await asyncio.gather(*first)} == {1}
        assert engine.reranking.admission._each > 0

    asyncio.run(main())


def test_readiness_names_the_cross_encoder(opened):
    async def never(*_):
        raise AssertionError

    engine = engine_of(opened, SPECS[0], never)
    assert asyncio.run(engine.unavailable()) == []
    engine.reranking._scores.there = False
    assert asyncio.run(engine.unavailable()) == [RERANKER]


def test_vectors_and_a_budget_of_nothing_are_not_re_ranked(opened):
    async def never(*_):
        raise AssertionError

    engine = engine_of(opened, SPECS[0], never)
    vectors = opened.model.encode(["leaf root"]).numpy
    assert asyncio.run(engine.search(vectors, 5, 2)).answers[0].calls is None
    assert asyncio.run(engine.search(["leaf root"], 5, 2)).answers[0].calls is None


RERANKS = INDEX.model_copy(update={"rerank": "axn", "budget": 20, "pool": "leaves"})
REFUSED = {
    "no cross-encoder": (INDEX, {"query": "oak", "rerank": True}, "rerank: this index has no cross-encoder"),
    "a budget without one": (INDEX, {"query": "oak", "budget": 5}, "budget: this index has no cross-encoder"),
    "a vector": (RERANKS, {"vector": [1, 0, 0], "rerank": True}, "rerank: got a vector, which no cross-encoder reads"),
    "a vector's budget": (RERANKS, {"vector": [1, 0, 0], "budget": 3}, "budget: got a vector, which no"),
    "above the limit": (RERANKS, {"query": "oak", "budget": 51}, "budget: got 51; allowed: 1 to 50"),
    "nothing": (RERANKS, {"query": "oak", "budget": 0}, "budget: Input should be greater than or equal to 1"),
    "a beam where all leaves are read": (
        RERANKS.model_copy(update={"pool": "all"}),
        {"query": "oak", "beam": 2},
        "beam: got 2, but this index re-ranks documents of all leaves; allowed: none",
    ),
    "a beam where words are the rule": (
        INDEX.model_copy(update={"mode": "bm25", "modes": ["dense", "bm25", "hybrid"]}),
        {"query": "oak", "beam": 2},
        "beam: got 2, but mode is bm25, which visits no leaves; allowed: none",
    ),
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


@pytest.mark.parametrize(("mode", "questions"), [("dense", 2), ("bm25", 1), ("hybrid", 1)])
def test_documents_of_a_batch_that_may_be_read_have_a_limit(opened, mode, questions):
    """Refused once the leaves are known, before any is scanned."""
    engine, asked = engine_of(opened, SPECS[0], None), []
    held = engine._held(opened.model.route(opened.model.encode(["oak leaf"]), 3)[0]).sum()
    each = {"dense": held, "bm25": engine.rows, "hybrid": held + min(200, engine.rows)}[mode]
    engine.reranking._most = questions * each - 1
    for group in engine.groups:
        group.scan = group.words = lambda *given, **_: asked.append(given)
    said = rf"got {questions} questions, which may read some of {questions * each} documents together; allowed: \d+"
    with pytest.raises(ApiError, match=said) as caught:
        asyncio.run(engine.search(["oak leaf"] * questions, 7, 3, None, 6, mode))
    assert (caught.value.status, asked) == (422, [])


def test_calls_of_a_batch_have_a_limit():
    engine = Canned()
    client = TestClient(api(engine, RERANKS, LIMITS.model_copy(update={"max_budget": 50, "max_calls": 60})))
    body = {"queries": ["oak", "elm", "ash"]}
    assert client.post("/v1/search:batch", json=body).status_code == 200
    status, code, message = error(client.post("/v1/search:batch", json={**body, "budget": 21}))
    assert (status, code) == (422, "invalid")
    assert message == "budget: got 21 for each of 3 questions; allowed: 60 in all"
    assert client.post("/v1/search", json={"query": "oak", "budget": 50}).status_code == 200
    assert client.post("/v1/search:batch", json={**body, "rerank": False}).status_code == 200
    assert len(engine.asked) == 3


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
        async def search(self, questions, k, beam, where=None, budget=0, mode="dense"):
            asked.append(budget)
            return await super().search(questions, k, beam)

    client = TestClient(api(Noting(), RERANKS, LIMITS))
    assert client.post("/v1/search", json=body).status_code == 200
    assert asked == [calls]
