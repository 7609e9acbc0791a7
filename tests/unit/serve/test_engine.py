"""The engine over groups of shards answers as a scan of all rows, written out by hand, does."""

import asyncio

import numpy as np
import pytest

from rayhier.model.encoded import Encoded
from rayhier.model.router import route_all
from rayhier.search.segment.stored import Listing, Lookup
from rayhier.search.snapshot import Snapshot
from rayhier.serve.backend.version import split
from rayhier.spec import InputError
from rayhier.spec.filter import parse

from ...conftest import leaf_map_of
from .conftest import TEXTS, N
from .stand_ins import ask, engine_of, near_groups


@pytest.fixture
def searcher(published):
    return Snapshot.open(published)


@pytest.fixture(params=[1, 2, 3])
def groups(request, published):
    return near_groups(published, request.param)


@pytest.fixture
def engine(searcher, groups):
    return engine_of(searcher, groups)


def check_by_hand(found, published, searcher, vectors, k, beam):
    """Each question's leaves, all documents in them, and the best k by inner product."""
    leaf_map = leaf_map_of(published)
    rows = [row for shard in leaf_map.manifest.shards for row in leaf_map.read(shard).to_pylist()]
    leaves = route_all(searcher.model.router, Encoded(vectors), beam)[0].tolist()
    for answer, own, vector in zip(found.answers, leaves, vectors, strict=True):
        scores = {row["doc_id"]: float(np.dot(row["vector"], vector)) for row in rows if row["leaf"] in own}
        assert (answer.leaves, answer.documents, answer.fraction) == (own, len(scores), len(scores) / N)
        assert len({hit.id for hit in answer.hits}) == len(answer.hits) == min(k, len(scores))
        best = sorted(scores.values(), reverse=True)[:k]
        np.testing.assert_allclose([hit.score for hit in answer.hits], best, atol=1e-5)
        for hit in answer.hits:
            assert hit.score == pytest.approx(scores[hit.id], abs=1e-5)
            assert any((row["doc_id"], row["leaf"]) == (hit.id, hit.leaf) for row in rows)
            assert hit.leaf in own
            assert hit.text == TEXTS[int(hit.id[1:])]


@pytest.mark.parametrize(("k", "beam"), [(1, 1), (7, 2), (20, 5), (200, 99)])
def test_answers_by_hand(engine, published, searcher, k, beam):
    found = asyncio.run(ask(engine, TEXTS[::3], k, beam))
    check_by_hand(found, published, searcher, searcher.model.text_encoder.encode(TEXTS[::3]), k, beam)
    assert not any(found.lost)
    assert set(found.ms) == {"queue", "encode", "route", "scan", "total"}


def test_a_lost_group_costs_only_the_questions_that_need_it(engine, groups, searcher):
    groups[-1].gone = True
    found = asyncio.run(ask(engine, TEXTS, 200, 1))
    needed = 0
    for answer, lost, whole in zip(found.answers, found.lost, searcher.search(TEXTS, 200, 1), strict=True):
        if whole.leaves[0] in groups[-1].leaves:
            needed += 1
            assert (lost, answer.hits, answer.documents) == ([groups[-1].name], [], 0)
        else:
            assert (lost, answer) == ([], whole)
    assert needed > 0
    assert asyncio.run(engine.unavailable()) == [groups[-1].name]


FILTERED = {"year": {"gte": 1900 + N // 3, "lt": 1900 + N // 2}}


@pytest.mark.parametrize(("k", "beam"), [(1, 1), (5, 2), (N, 1)])
def test_a_filtered_answer_is_that_of_offline_search(engine, searcher, k, beam):
    where = parse(FILTERED, {"year": "int"})
    found = asyncio.run(ask(engine, TEXTS, k, beam, where))
    for answer, whole in zip(found.answers, searcher.search(TEXTS, k, beam, filter=FILTERED), strict=True):
        assert (answer.leaves, answer.documents, answer.enough) == (whole.leaves, whole.documents, whole.enough)
        np.testing.assert_allclose([hit.score for hit in answer.hits], [hit.score for hit in whole.hits], atol=1e-6)
        assert all(N // 3 <= int(hit.id[1:]) < N // 2 for hit in answer.hits)
        assert len(answer.hits) == min(k, N // 2 - N // 3)
        assert answer.enough == (k <= N // 2 - N // 3)
    assert not any(found.lost)


def test_a_question_that_lacks_a_group_visits_no_further_leaves(engine, groups):
    groups[-1].gone = True
    found = asyncio.run(ask(engine, TEXTS, N, 1, parse(FILTERED, {"year": "int"})))
    for answer, lost in zip(found.answers, found.lost, strict=True):
        assert lost == [groups[-1].name]
        assert not answer.enough
        assert answer.leaves[-1] in groups[-1].leaves or len(answer.leaves) > 1


@pytest.mark.parametrize(
    ("counts", "groups", "sizes"),
    [([7], None, [1]), ([2] * 6, None, [3, 3]), ([1] * 5, 5, [1] * 5), ([9, 1, 1], 2, [1, 2])],
)
def test_split(counts, groups, sizes):
    made = [part.leaves for part in split(counts, groups)]
    begins, ends = [part.start for part in made], [part.stop for part in made]
    assert np.diff([*begins, len(counts)]).tolist() == sizes
    assert (begins[0], begins[1:]) == (0, ends[:-1])
    assert ends[-1] > 10**9  # leaves that are split off later are in the last part


def test_more_groups_than_leaves():
    with pytest.raises(InputError, match="shard_groups: got 4; allowed: 1 to 3"):
        split([1, 1, 1], 4)


def test_documents_are_those_of_all_groups(engine, groups, searcher):
    everything, lost = asyncio.run(engine.documents(Listing("", 1_000)))
    assert lost == []
    assert everything == searcher.documents(Listing("", 1_000))
    assert [document.id for document in everything] == sorted(f"d{n}" for n in range(N))
    assert {document.id: document.text for document in everything} == {f"d{n}": TEXTS[n] for n in range(N)}
    found, _ = asyncio.run(engine.documents(Lookup(("d3", "none"))))
    assert found == [document for document in everything if document.id == "d3"]


def test_a_long_text_is_cut_before_it_is_tokenised(searcher):
    encoder = searcher.model.text_encoder
    long = "oak elm fern " * 100_000
    assert encoder.tokenise([long]) == encoder.tokenise([long[:3_200]])
    seen = []
    plain = encoder.tokenise.tokenizer
    encoder.tokenise.tokenizer = lambda texts, **options: seen.extend(texts) or plain(texts, **options)
    encoder.tokenise([long])
    assert len(seen[0]) <= 100 * encoder.max_length + len(encoder.tokenise.prompt)
