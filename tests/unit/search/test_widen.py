"""Widening: which queries are searched again, in which leaves, and what an answer then says, worked out by hand."""

import numpy as np
import pytest

from rayhier.search import retrieve
from rayhier.search.retrieve import Goal, Widening
from rayhier.spec import InputError
from rayhier.spec.filter import Bound, Not, OneOf

from . import numbered
from .numbered import L, M, N, open_searcher

vectors, router, leaf_of, leaf_map, searcher = (
    getattr(numbered, name) for name in ("vectors", "router", "leaf_of", "leaf_map", "searcher")
)
KEPT = range(0, N, 7)
"""Documents that match."""
SOME = OneOf("doc_id", tuple(f"d{row}" for row in KEPT))
NONE = OneOf("doc_id", ("nobody",))


def by_hand(vectors, leaf_of, row, k, beam, L, few):
    """Leaves visited, documents scored in the last scan, ids, rows scored in all scans."""
    order, scored, enough = np.argsort(-(vectors[:L] @ vectors[row])), 0, round(beam * N / L)
    while True:
        members = [n for n in KEPT if leaf_of[n] in order[:beam]]
        scored += len(members)
        if len(members) >= max(k, enough) or beam >= L:
            best = sorted(members, key=lambda n: -(vectors[n] @ vectors[row]))[:k]
            return order[:beam].tolist(), len(members), [f"d{n}" for n in best], scored
        wider = max(2 * beam, int(np.ceil(1.25 * beam * max(k, enough) / (len(members) + 1))))
        beam = L if wider >= L or (len(members) + 1) * L / beam <= few * max(k, enough) else wider


@pytest.mark.parametrize(("k", "beam"), [(1, 1), (2, 1), (4, 1), (4, 3), (len(KEPT) + 1, 1)])
@pytest.mark.parametrize("few", [0, 1, 4])
def test_beams_grow_until_enough_match_or_the_limit(monkeypatch, vectors, router, leaf_of, leaf_map, k, beam, few):
    monkeypatch.setattr(retrieve, "FEW", few)
    searcher = open_searcher(vectors, router, leaf_map)
    answers = searcher.search([str(row) for row in range(N)], k, beam, filter=SOME)
    for row, answer in enumerate(answers):
        own, documents, ids, scored = by_hand(vectors, leaf_of, row, k, beam, L, few)
        assert sorted(answer.leaves) == sorted(own)
        assert answer.leaves[:beam] == own[:beam]
        assert (answer.documents, answer.scored, answer.enough) == (documents, scored, documents >= k)
        assert [hit.id for hit in answer.hits] == ids
        assert answer.fraction == documents / N
        for hit in answer.hits:
            assert hit.title == f"title {hit.id[1:]}"
            assert hit.leaf == leaf_of[int(hit.id[1:])]


def test_nothing_matches(searcher):
    for answer in searcher.search(["1", "2"], 3, 1, filter=NONE):
        assert (answer.hits, answer.documents, answer.scored, answer.enough) == ([], 0, 0, False)
        assert sorted(answer.leaves) == list(range(L))


def test_without_a_filter_no_beam_widens(searcher):
    for answer in searcher.search([str(row) for row in range(N)], N, 1):
        assert len(answer.leaves) == 1
        assert not answer.enough


def test_each_query_widens_alone(searcher, leaf_of):
    """One query has more than ten documents that match in its first leaf, the other none."""
    first, last = searcher.search(["3", "4"], 1, 1, filter=OneOf("leaf", (3,)))
    assert (first.leaves, first.documents) == ([3], (leaf_of == 3).sum())
    assert (leaf_of == 3).sum() > N / L
    assert last.documents == first.documents
    assert 3 in last.leaves[1:]


def test_filters_as_json_are_over_declared_fields(searcher):
    with pytest.raises(InputError, match=r"filter\.year: got no declared field"):
        searcher.search(["1"], filter={"year": 1})
    by_vector = searcher.search(np.eye(M, dtype=np.float32)[:1], 2, 1, filter=Not(Bound("leaf", "gt", 2)))
    assert {hit.leaf for hit in by_vector[0].hits} <= {1, 2}


def test_leaves_visited_before_stay_although_a_wider_beam_leaves_them_out():
    """Beams of a tall tree are not nested."""
    widening = Widening(np.array([[4, -1], [7, 2]]), Goal(k=1, beam=2, matching=1, widest=33))
    assert (widening.asked_A.tolist(), widening.done) == ([0, 1], False)
    nothing = widening.ranking
    widening.add_results(nothing)
    assert widening.wider_A.tolist() == [4, 4]
    widening.visit(np.array([[1, 4, 3, -1], [2, 5, 6, 8]]))
    assert widening.leaves_QB.tolist() == [[4, 1, 3, -1, -1], [7, 2, 5, 6, 8]]
    widening.add_results(nothing, np.array([True, False]))
    assert widening.asked_A.tolist() == [1]
    assert widening.wider_A.tolist() == [8]
    widening.visit(np.array([[0, 1]]))
    assert widening.leaves_QB.tolist() == [[4, 1, 3, -1, -1, -1, -1], [7, 2, 5, 6, 8, 0, 1]]
