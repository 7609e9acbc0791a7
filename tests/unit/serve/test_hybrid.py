"""BM25 and hybrid search over shard groups: what offline search finds, a lost group, and what the API refuses."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest
from fastapi.testclient import TestClient

from rayhier.search.request import NO_WORDS
from rayhier.search.rerank import Reranker
from rayhier.search.snapshot import Snapshot
from rayhier.serve.backend.reranker import Reranking
from rayhier.spec import InputError
from rayhier.spec.filter import parse
from rayhier.spec.search import Rerank

from .conftest import TEXTS
from .stand_ins import INDEX, RULES, Canned, Scores, app_of, ask, engine_of, error, near_groups, ruled

ASKED = [*TEXTS[::9], "oakleaf unheard", "unheard"]


@pytest.fixture
def worded(damageable):
    """A copy of the published index whose spec has BM25."""
    path = damageable / "current.json"
    now = json.loads(path.read_text())
    now["spec"]["search"] = {"k": 7, "beam": 2, "hybrid": {"depth": 20, "weight": 0.3}}
    path.write_text(json.dumps(now))
    return damageable


def same(given, expected):
    for answer, wanted in zip(given, expected, strict=True):
        np.testing.assert_allclose([hit.score for hit in answer.hits], [hit.score for hit in wanted.hits], atol=1e-5)
        assert [hit.id for hit in answer.hits] == [hit.id for hit in wanted.hits]
        assert (answer.leaves, answer.documents) == (wanted.leaves, wanted.documents)


@pytest.mark.parametrize("mode", ["dense", "bm25", "hybrid"])
@pytest.mark.parametrize("year", [None, {"year": {"gte": 1960}}], ids=["all", "filtered"])
def test_one_group_answers_as_offline_search(worded, mode, year):
    searcher = Snapshot.open(worded)
    engine = engine_of(searcher, near_groups(worded, 1))
    where = None if year is None else parse(year, {"year": "int"})
    given = asyncio.run(ask(engine, ASKED, 7, None if mode == "bm25" else 2, where, mode=mode))
    same(given.answers, searcher.search(ASKED, 7, None if mode == "bm25" else 2, filter=year, mode=mode))
    assert not any(given.lost)
    assert [len(answer.hits) for answer in given.answers][-1] == (0 if mode == "bm25" else 7)


@pytest.mark.parametrize("groups", [1, 3])
def test_what_vectors_found_is_known_of_a_hybrid_search(worded, groups):
    engine, outcomes = engine_of(Snapshot.open(worded), near_groups(worded, groups)), []
    engine.answered = lambda request, routes, found, view: outcomes.append(found)
    for mode in ("dense", "hybrid"):
        asyncio.run(ask(engine, ASKED, 7, 2, mode=mode))
    dense, hybrid = outcomes
    np.testing.assert_allclose(hybrid.near.score_QK[:, :7], dense.near.score_QK, atol=1e-6)
    assert dense.near is dense.ranking
    asyncio.run(ask(engine, ASKED, 7, mode="bm25"))
    assert outcomes[-1].near is None


def test_words_are_as_rare_in_a_group_as_in_the_whole_index(worded):
    searcher = Snapshot.open(worded)
    groups = near_groups(worded, 3)
    engine = engine_of(searcher, groups)
    for mode, beam in (("bm25", None), ("hybrid", 2)):
        for where in (None, {"year": {"gte": 1960}}):
            parsed = None if where is None else parse(where, {"year": "int"})
            given = asyncio.run(ask(engine, ASKED, 7, beam, parsed, mode=mode)).answers
            wanted = searcher.search(ASKED, 7, beam, filter=where, mode=mode)
            assert [[(hit.id, hit.score) for hit in answer.hits] for answer in given] == [
                [(hit.id, hit.score) for hit in answer.hits] for answer in wanted
            ]


def test_every_question_needs_the_words_of_all_groups(worded):
    searcher = Snapshot.open(worded)
    groups = near_groups(worded, 3)
    engine = engine_of(searcher, groups)
    groups[1].gone = True
    for mode in ("bm25", "hybrid"):
        given = asyncio.run(ask(engine, ASKED, 7, None if mode == "bm25" else 1, mode=mode))
        assert given.lost == [["shards-1"]] * len(ASKED)
        assert sum(len(answer.hits) for answer in given.answers) > 0


def test_what_is_fused_is_re_ranked(worded):
    spec = Rerank(type="rnr", budget=5, pool=20)

    def scores(_, items):
        return np.array([len(item) for item in items], dtype=np.float64)

    async def score(queries, items):
        return scores(queries, items)

    searcher = Snapshot.open(worded)
    searcher.rules = ruled(searcher.rules, rerank=spec.model_dump())
    searcher.reranker = Reranker(spec, scores, base_weight=0.5)
    reranker = Reranker(spec, None, base_weight=0.5)
    engine = engine_of(searcher, near_groups(worded, 1), reranker, Reranking(Scores(score)), searcher.rules)
    for mode in ("bm25", "hybrid"):
        beam = None if mode == "bm25" else 2
        given = asyncio.run(ask(engine, ASKED[:-1], 7, beam, budget=5, mode=mode))
        expected = searcher.search(ASKED[:-1], 7, beam, mode=mode)
        same(given.answers, expected)
        assert [answer.calls for answer in given.answers] == [answer.calls for answer in expected]
        assert {answer.calls for answer in expected} == {5}


def test_offline_refuses(worded, published):
    bare = Snapshot.open(published)
    bare.rules = replace(bare.rules, words=False)
    with pytest.raises(
        InputError, match=r"mode: got 'hybrid'; allowed: dense; bm25 and hybrid need index\.words in the spec"
    ):
        bare.search(["oak"], mode="hybrid")
    searcher = Snapshot.open(worded)
    with pytest.raises(InputError, match="mode: got 'sparse'; allowed: dense, bm25, hybrid"):
        searcher.search(["oak"], mode="sparse")
    with pytest.raises(InputError, match="beam: got 3, but mode is bm25"):
        searcher.search(["oak"], beam=3, mode="bm25")


WORDED = ruled(mode="hybrid")
SHOWN = INDEX.model_copy(update={"modes": ["dense", "bm25", "hybrid"], "mode": "hybrid"})
REFUSED = {
    "not built": (
        RULES,
        {"query": "oak", "mode": "hybrid"},
        f"mode: got 'hybrid'; allowed: dense{NO_WORDS}",
    ),
    "unknown": (WORDED, {"query": "oak", "mode": "sparse"}, "mode: got 'sparse'; allowed: 'dense', 'bm25' or 'hybrid'"),
    "a vector": (
        WORDED,
        {"vector": [1, 0, 0], "mode": "hybrid"},
        "mode: got 'hybrid' with a vector, which has no words",
    ),
    "a beam": (WORDED, {"query": "oak", "mode": "bm25", "beam": 2}, "beam: got 2, but mode is bm25"),
}


@pytest.mark.parametrize(("rules", "body", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(rules, body, said):
    engine = Canned()
    status, code, message = error(TestClient(app_of(engine, rules=rules)).post("/v1/search", json=body))
    assert (status, code) == (422, "invalid")
    assert said in message
    assert engine.asked == []


@pytest.mark.parametrize(
    ("body", "mode"),
    [
        ({"query": "oak"}, "hybrid"),
        ({"query": "oak", "mode": "dense"}, "dense"),
        ({"query": "oak", "mode": "bm25"}, "bm25"),
        ({"vector": [1, 0, 0]}, "dense"),
    ],
)
def test_the_mode_is_the_specs_unless_the_request_has_one(body, mode):
    engine = Canned()
    client = TestClient(app_of(engine, index=SHOWN, rules=WORDED))
    answer = client.post("/v1/search", json=body).json()
    assert (answer["mode"], engine.modes) == (mode, [mode])
    many = {"queries" if name == "query" else "vectors": [value] for name, value in body.items() if name != "mode"}
    batch = client.post("/v1/search:batch", json=many | {k: v for k, v in body.items() if k == "mode"}).json()
    assert (batch["mode"], engine.modes) == (mode, [mode] * 2)
    assert client.get("/v1/index").json()["modes"] == ["dense", "bm25", "hybrid"]
