"""BM25 and hybrid search over shard groups: what offline search finds, and a lost group."""

import asyncio
import json

import numpy as np
import pytest

from rayhier.search.rerank import Reranker
from rayhier.search.snapshot import Snapshot
from rayhier.serve.backend.cross_encoder import Reranking
from rayhier.spec.filter import parse
from rayhier.spec.search import Rerank

from .conftest import TEXTS
from .stand_ins import Scores, ask, engine_of, near_groups, ruled

ASKED = [*TEXTS[::9], "oakleaf unheard", "unheard"]


@pytest.fixture
def worded(work):
    """A copy of the published index whose spec has BM25."""
    path = work / "current.json"
    now = json.loads(path.read_text())
    now["spec"]["search"] = {"k": 7, "beam": 2, "hybrid": {"weight": 0.3}}
    path.write_text(json.dumps(now))
    return work


def same(given, expected):
    for answer, wanted in zip(given, expected, strict=True):
        np.testing.assert_allclose([hit.score for hit in answer.hits], [hit.score for hit in wanted.hits], atol=1e-5)
        assert [hit.id for hit in answer.hits] == [hit.id for hit in wanted.hits]
        assert (answer.leaves, answer.documents) == (wanted.leaves, wanted.documents)


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
