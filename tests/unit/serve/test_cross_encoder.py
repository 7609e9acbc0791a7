"""The cross-encoder: a replica that scores pairs, and served re-ranking, equal to offline, and lost without harm."""

import asyncio
import threading
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest

from rayhier.scores import scorer as scorers
from rayhier.search.rerank import Reranker
from rayhier.search.retrieve import RERANKER
from rayhier.search.snapshot import Snapshot
from rayhier.serve.backend import cross_encoder as module
from rayhier.serve.backend.cross_encoder import CrossEncoderReplica, Reranking
from rayhier.serve.errors import ApiError, LostError, overloaded
from rayhier.spec.search import Rerank

from .conftest import TEXTS
from .stand_ins import Scores, ask, engine_of, near_groups, ruled


class Scorer:
    """Scores a pair by its document's length; waits for `go` where it has one."""

    def __init__(self):
        self.sizes, self.go, self.began = [], None, threading.Event()

    def __call__(self, queries, items):
        self.began.set()
        if self.go is not None:
            self.go.wait()
        self.sizes.append(len(queries))
        return np.array([len(item) for item in items], np.float32)


@pytest.fixture
def scorer():
    return Scorer()


@pytest.fixture
def own(scorer, monkeypatch):
    """A replica of that scorer."""
    monkeypatch.setattr(module.current, "artifact", Mock())
    monkeypatch.setattr(scorers, "open_scorer", lambda *_: scorer)
    monkeypatch.setattr(module, "PAIRS", 10)
    return CrossEncoderReplica(Mock(workdir="/nowhere"), threads=2)


async def test_pairs_are_scored_in_slices_and_in_order(scorer, own):
    items = ["x" * n for n in range(25)]
    one, other = await asyncio.gather(own.score(["a"] * 25, items), own.score(["b"] * 3, items[:3]))
    assert one.tolist() == list(range(25))
    assert other.tolist() == [0, 1, 2]
    assert (await own.score([], [])).shape == (0,)
    assert scorer.sizes == [10, 10, 8], "the rest of the one goes with the other"


async def test_a_ping_waits_for_the_slice_at_work_alone(scorer, own):
    scorer.go = threading.Event()
    asked = asyncio.create_task(own.score(["a"] * 100, ["x"] * 100))
    await asyncio.to_thread(scorer.began.wait, 60)
    ping = asyncio.create_task(own.ping())
    await asyncio.sleep(0.05)
    assert not ping.done()
    await own.check_health()
    own._since -= module.HUNG_SECONDS + 1  # it has hung for long
    with pytest.raises(RuntimeError, match="not scored within"):
        await own.check_health()
    scorer.go.set()
    await ping
    assert not asked.done()
    assert len(await asked) == 100
    await own.check_health()


SPECS = {
    "axn": ("dense", {"type": "axn", "budget": 6, "rounds": 3}),
    "rnr": ("dense", {"type": "rnr", "budget": 5, "pool": 20}),
    "all": ("dense", {"type": "rnr", "pool": "all"}),
    "words": ("bm25", {"type": "rnr", "budget": 5, "pool": 20}),
}


AXN = Rerank(**SPECS["axn"][1])


def scores(queries, items):
    """A black box: how often a document's text has the letters of the query's first word."""
    pairs = zip(queries, items, strict=True)
    return np.array([sum(map(item.count, query.split()[0])) + len(item) / 1e3 for query, item in pairs])


@pytest.fixture(scope="module")
def opened(published):
    """The tiny index, open."""
    return Snapshot.open(published)


@pytest.fixture
def engine_by(opened, published):
    """`engine_by(spec, score)`: an engine that re-ranks as a spec says, by scores of a coroutine function."""

    def make(spec, score, seconds=60.0):
        rules, reranker = ruled(opened.rules, rerank=spec.model_dump()), Reranker(spec, None, base_weight=0.5)
        return engine_of(opened, near_groups(published, 2), reranker, Reranking(Scores(score), seconds), rules)

    return make


@pytest.mark.parametrize(("mode", "spec"), SPECS.values(), ids=SPECS)
async def test_served_is_offline(opened, engine_by, mode, spec):
    async def score(queries, items):
        await asyncio.sleep(0)
        return scores(queries, items)

    texts, spec = [TEXTS[3], "stone oakleaf", "mosswood elm"], Rerank(**spec)
    offline = Snapshot(opened.spec, opened.leaf_map, opened.model)
    offline.reranker = Reranker(spec, scores, base_weight=0.5)
    offline.rules = ruled(opened.rules, rerank=spec.model_dump())
    beam = None if spec.pool == "all" or mode == "bm25" else 3  # otherwise all leaves are visited, or none
    expected = offline.search(texts, k=9, beam=beam, budget=spec.budget, mode=mode)
    given = await ask(engine_by(spec, score), texts, 9, beam, budget=spec.budget, mode=mode)
    assert given.lost == [[]] * 3
    assert given.ms["rerank"] > 0
    for answer, wanted in zip(given.answers, expected, strict=True):
        assert [(hit.id, hit.estimated) for hit in answer.hits] == [(hit.id, hit.estimated) for hit in wanted.hits]
        np.testing.assert_allclose([hit.score for hit in answer.hits], [hit.score for hit in wanted.hits], atol=1e-5)
        assert answer.calls == wanted.calls


async def test_without_the_cross_encoder_answers_are_those_of_the_scan(engine_by):
    for score in (AsyncMock(side_effect=LostError(RERANKER)), AsyncMock(return_value=np.full(9, np.nan))):
        engine, texts = engine_by(AXN, score), ["leaf root branch", "stone cloud"]
        given, plain = await ask(engine, texts, 7, 3, budget=6), await ask(engine, texts, 7, 3)
        assert (given.lost, plain.lost) == ([[RERANKER]] * 2, [[], []])
        for answer, wanted in zip(given.answers, plain.answers, strict=True):
            assert (answer.hits, answer.calls) == (wanted.hits, None)
    assert await engine.unavailable() == []
    engine.view.reranking._scores.there = False
    assert await engine.unavailable() == [RERANKER]


async def test_one_time_limit_holds_for_all_rounds(engine_by):
    """Of three rounds that take 0.3 s each, the limit of 0.5 s passes in the second."""
    asked = []

    async def score(queries, items):
        asked.append(len(items))
        await asyncio.sleep(0.3)
        return scores(queries, items)

    given = await ask(engine_by(AXN, score, seconds=0.5), ["leaf root branch"], 7, 3, budget=6)
    assert (given.lost, given.answers[0].calls) == ([[RERANKER]], None)
    assert len(asked) < 3


async def test_calls_that_would_wait_too_long_are_refused_before_the_scan(engine_by, monkeypatch):
    engine = engine_by(AXN, None)
    monkeypatch.setattr(engine.view.reranking.admission, "check", Mock(side_effect=overloaded("too much")))
    with pytest.raises(ApiError, match="too much"):
        await ask(engine, ["leaf root"], 7, 3, budget=5)
    assert (await ask(engine, ["leaf root"], 7, 3)).lost == [[]], "without calls it is answered"
