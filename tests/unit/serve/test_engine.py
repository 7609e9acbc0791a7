"""The engine over groups of shards answers as offline search of the whole index does."""

import asyncio
from unittest.mock import Mock

import numpy as np
import pytest

from rayhier.search.segment.stored import Listing, Lookup
from rayhier.search.snapshot import Snapshot
from rayhier.serve.backend.version import split
from rayhier.spec import InputError
from rayhier.spec.filter import parse

from .conftest import TEXTS, N
from .stand_ins import ask, engine_of, near_groups

ASKED = [*TEXTS[::3], "oakleaf unheard", "unheard"]
SOME = {"year": {"gte": 1900 + N // 3, "lt": 1900 + N // 2}}


@pytest.fixture(scope="module")
def searcher(published):
    return Snapshot.open(published)


@pytest.fixture(params=[1, 3])
def groups(request, published):
    return near_groups(published, request.param)


@pytest.fixture
def engine(searcher, groups):
    return engine_of(searcher, groups)


def answered(engine, texts, *given, where=None, **more):
    return asyncio.run(ask(engine, texts, *given, where and parse(where, {"year": "int"}), **more))


@pytest.mark.parametrize("where", [None, SOME], ids=["all", "filtered"])
@pytest.mark.parametrize(
    ("mode", "k", "beam"),
    [
        *(("dense", *own) for own in ((1, 1), (7, 2), (20, 5), (200, 99))),
        *(("bm25", 7, None), ("hybrid", 7, 2), ("hybrid", 200, 1)),
    ],
)
def test_served_is_offline(engine, groups, searcher, mode, k, beam, where):
    """Each group lists `k` documents by their words, so that more groups compare more of them."""
    found = answered(engine, ASKED, k, beam, where=where, mode=mode)
    told = ["leaves", "enough", *(["documents", "fraction"] if mode == "dense" or len(groups) == 1 else [])]
    for answer, wanted in zip(found.answers, searcher.search(ASKED, k, beam, filter=where, mode=mode), strict=True):
        assert [getattr(answer, name) for name in told] == [getattr(wanted, name) for name in told]
        np.testing.assert_allclose([hit.score for hit in answer.hits], [hit.score for hit in wanted.hits], atol=1e-5)
        shown = [[(hit.id, hit.leaf, hit.text, hit.fields) for hit in one.hits] for one in (answer, wanted)]
        assert shown[0] == shown[1]
    assert not any(found.lost)
    assert {"queue", "encode", "route", "scan", "total"} <= set(found.ms)


def test_a_lost_group_costs_only_the_questions_that_need_it(engine, groups, searcher):
    groups[-1].gone = True
    found = answered(engine, TEXTS, 200, 1)
    needed = 0
    for answer, lost, whole in zip(found.answers, found.lost, searcher.search(TEXTS, 200, 1), strict=True):
        if whole.leaves[0] in groups[-1].leaves:
            needed += 1
            assert (lost, answer.hits, answer.documents) == ([groups[-1].name], [], 0)
        else:
            assert (lost, answer) == ([], whole)
    assert needed > 0
    found = answered(engine, TEXTS, N, 1, where=SOME)
    assert not any(answer.enough for answer in found.answers)
    assert asyncio.run(engine.unavailable()) == [groups[-1].name]


@pytest.mark.parametrize(("mode", "beam"), [("bm25", None), ("hybrid", 1)])
def test_every_question_needs_the_words_of_all_groups(searcher, published, mode, beam):
    groups = near_groups(published, 3)
    groups[1].gone = True
    given = answered(engine_of(searcher, groups), ASKED, 7, beam, mode=mode)
    assert given.lost == [["shards-1"]] * len(ASKED)
    assert any(answer.hits for answer in given.answers)


@pytest.mark.parametrize(
    ("counts", "groups", "sizes"),
    [([7], None, [1]), ([2] * 6, None, [3, 3]), ([1] * 5, 5, [1] * 5), ([9, 1, 1], 2, [1, 2])],
)
def test_leaves_are_divided_by_their_rows(counts, groups, sizes):
    made = [part.leaves for part in split(counts, groups)]
    begins, ends = [part.start for part in made], [part.stop for part in made]
    assert np.diff([*begins, len(counts)]).tolist() == sizes
    assert (begins[0], begins[1:]) == (0, ends[:-1])
    assert ends[-1] > 10**9  # leaves that are split off later are in the last part
    with pytest.raises(InputError, match=f"shard_groups: got {len(counts) + 1}; allowed: 1 to {len(counts)}"):
        split(counts, len(counts) + 1)


def test_documents_are_those_of_all_groups(engine, searcher):
    everything, lost = asyncio.run(engine.documents(Listing("", 1_000)))
    assert (everything, lost) == (searcher.documents(Listing("", 1_000)), [])
    found, _ = asyncio.run(engine.documents(Lookup(("d3", "none"))))
    assert found == [document for document in everything if document.id == "d3"]


def test_a_long_text_is_cut_before_it_is_tokenised(searcher, monkeypatch):
    tokenise = searcher.model.text_encoder.tokenise
    long, backend = "oak elm fern " * 100_000, Mock(wraps=tokenise.tokenizer.backend_tokenizer)
    monkeypatch.setattr(tokenise, "tokenizer", Mock(backend_tokenizer=backend))
    (cut,) = tokenise([long])
    ((seen,),) = backend.encode_batch_fast.call_args.args
    assert len(seen) <= 100 * searcher.model.text_encoder.max_length
    assert cut.tolist() == tokenise([long[:3_200]])[0].tolist()
