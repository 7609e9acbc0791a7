"""BM25 and hybrid search over shard groups: what offline search finds, a lost group, and what the API refuses."""

import asyncio
import json
from dataclasses import dataclass

import numpy as np
import pytest
from fastapi.testclient import TestClient

from rayhier.dataset.ranking import Ranking, merge
from rayhier.search.answer import answers
from rayhier.search.hybrid import WordScan, fused
from rayhier.search.rerank import Reranker
from rayhier.search.scan import LeafScan
from rayhier.search.searcher import Searcher
from rayhier.serve.app import check
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.engine import Engine
from rayhier.serve.backend.reranker import Reranking
from rayhier.serve.backend.shards import ShardGroup
from rayhier.serve.errors import LostError
from rayhier.serve.http.api import api
from rayhier.spec import InputError
from rayhier.spec.filter import parse
from rayhier.spec.search import HybridSpec, Rnr

from ...conftest import leaf_map_of
from .conftest import TEXTS, N
from .test_api import INDEX, LIMITS, Canned, error
from .test_reranked import Scores

ASKED = [*TEXTS[::9], "oakleaf unheard", "unheard"]


@dataclass
class Near:
    """A group in this process, which may be lost."""

    name: str
    leaves: range
    shards: ShardGroup
    gone: bool = False

    async def scan(self, *given, with_vectors=False):
        if self.gone:
            raise LostError(self.name)
        return await self.shards.scan(*given, with_vectors=with_vectors)

    async def words(self, *given, with_vectors=False):
        if self.gone:
            raise LostError(self.name)
        return await self.shards.words(*given, with_vectors=with_vectors)


@pytest.fixture
def worded(damageable):
    """A copy of the published index whose spec has BM25."""
    path = damageable / "current.json"
    now = json.loads(path.read_text())
    now["spec"]["search"] = {"k": 7, "beam": 2, "hybrid": {"depth": 20}}
    path.write_text(json.dumps(now))
    return damageable


def engine_of(worded, searcher, groups, reranking=None):
    version, _, ranges = check(ServeArgs(workdir=str(worded), shard_groups=groups))
    near = [Near(f"shards-{n}", one, ShardGroup(version, one)) for n, one in enumerate(ranges)]
    return near, Engine(searcher.model, near, N, searcher.manifest.counts, reranking)


def same(given, expected):
    for answer, wanted in zip(given, expected, strict=True):
        np.testing.assert_allclose([hit.score for hit in answer.hits], [hit.score for hit in wanted.hits], atol=1e-5)
        assert [hit.id for hit in answer.hits] == [hit.id for hit in wanted.hits]
        assert (answer.leaves, answer.documents) == (wanted.leaves, wanted.documents)


@pytest.mark.parametrize("mode", ["dense", "bm25", "hybrid"])
@pytest.mark.parametrize("year", [None, {"year": {"gte": 1960}}], ids=["all", "filtered"])
def test_one_group_answers_as_offline_search(worded, mode, year):
    searcher = Searcher.open(worded)
    _, engine = engine_of(worded, searcher, 1)
    where = None if year is None else parse(year, {"year": "int"})
    given = asyncio.run(engine.search(ASKED, 7, 2, where, 0, mode))
    same(given.answers, searcher.search(ASKED, 7, None if mode == "bm25" else 2, filter=year, mode=mode))
    assert not any(given.lost)
    assert [len(answer.hits) for answer in given.answers][-1] == (0 if mode == "bm25" else 7)


def test_groups_count_words_of_their_own_documents(worded):
    searcher = Searcher.open(worded)
    near, engine = engine_of(worded, searcher, 3)
    encoded = searcher.model.encode(ASKED)
    leaves_QB = searcher.model.route(encoded, 2)[0]
    dense = searcher.leaves.scan(encoded.numpy, leaves_QB, 20)
    scans = [WordScan(LeafScan.mapped(leaf_map_of(worded), None, group.leaves)) for group in near]
    assert sum(scan._words.count for scan in scans) == N
    parts = [scan.scan(ASKED, encoded.numpy, 20) for scan in scans]
    both = answers(fused(dense, parts, 7, HybridSpec(), 20), leaves_QB, N, 7)
    same(asyncio.run(engine.search(ASKED, 7, 2, mode="hybrid")).answers, both)
    lexical = merge([Ranking.none(len(ASKED)), *(scan.scan(ASKED, encoded.numpy, 7).ranking for scan in scans)], 7)
    same(asyncio.run(engine.search(ASKED, 7, 2, mode="bm25")).answers, answers(lexical, leaves_QB[:, :0], N, 7))


def test_every_question_needs_the_words_of_all_groups(worded):
    searcher = Searcher.open(worded)
    near, engine = engine_of(worded, searcher, 3)
    near[1].gone = True
    for mode in ("bm25", "hybrid"):
        given = asyncio.run(engine.search(ASKED, 7, 1, mode=mode))
        assert given.lost == [["shards-1"]] * len(ASKED)
        assert sum(len(answer.hits) for answer in given.answers) > 0


def test_what_is_fused_is_re_ranked(worded):
    spec = Rnr(type="rnr", budget=5, pool=20)

    def scores(_, items):
        return np.array([len(item) for item in items], dtype=np.float64)

    async def score(queries, items):
        return scores(queries, items)

    plain = Searcher.open(worded)
    searcher = Searcher(
        plain.model, plain.leaves, plain.manifest, reranker=Reranker(spec, scores, base_weight=0.5), words=plain.words
    )
    _, engine = engine_of(worded, searcher, 1, Reranking(Reranker(spec, None, base_weight=0.5), Scores(score)))
    for mode in ("bm25", "hybrid"):
        given = asyncio.run(engine.search(ASKED[:-1], 7, 2, None, 5, mode))
        expected = searcher.search(ASKED[:-1], 7, None if mode == "bm25" else 2, mode=mode)
        same(given.answers, expected)
        assert [answer.calls for answer in given.answers] == [answer.calls for answer in expected]
        assert {answer.calls for answer in expected} == {5}


def test_offline_refuses(worded, published):
    with pytest.raises(
        InputError, match=r"mode: got 'hybrid'; allowed: dense; for others the spec needs search\.hybrid"
    ):
        Searcher.open(published).search(["oak"], mode="hybrid")
    searcher = Searcher.open(worded)
    with pytest.raises(InputError, match="mode: got 'sparse'; allowed: dense, bm25, hybrid"):
        searcher.search(["oak"], mode="sparse")
    with pytest.raises(InputError, match="beam: got 3, but mode is bm25"):
        searcher.search(["oak"], beam=3, mode="bm25")


WORDED = INDEX.model_copy(update={"modes": ["dense", "bm25", "hybrid"], "mode": "hybrid"})
REFUSED = {
    "not built": (INDEX, {"query": "oak", "mode": "hybrid"}, "mode: got 'hybrid'; allowed: dense, or an index whose"),
    "unknown": (WORDED, {"query": "oak", "mode": "sparse"}, "mode: Input should be 'dense', 'bm25' or 'hybrid'"),
    "a vector": (
        WORDED,
        {"vector": [1, 0, 0], "mode": "hybrid"},
        "mode: got 'hybrid' with a vector, which has no words",
    ),
    "a beam": (WORDED, {"query": "oak", "mode": "bm25", "beam": 2}, "beam: got 2, but mode is bm25"),
}


@pytest.mark.parametrize(("index", "body", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(index, body, said):
    engine = Canned()
    status, code, message = error(TestClient(api(engine, index, LIMITS)).post("/v1/search", json=body))
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
    client = TestClient(api(engine, WORDED, LIMITS))
    answer = client.post("/v1/search", json=body).json()
    assert (answer["mode"], engine.modes) == (mode, [mode])
    many = {"queries" if name == "query" else "vectors": [value] for name, value in body.items() if name != "mode"}
    batch = client.post("/v1/search:batch", json=many | {k: v for k, v in body.items() if k == "mode"}).json()
    assert (batch["mode"], engine.modes) == (mode, [mode] * 2)
    assert client.get("/v1/index").json()["modes"] == ["dense", "bm25", "hybrid"]
