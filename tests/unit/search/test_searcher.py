"""From a published leaf map to answers, against a scan written out by hand."""

import numpy as np
import pytest

from rayhier.search.__main__ import main

from . import numbered
from .numbered import L, N

vectors, router, leaf_of, leaf_map, leaves, searcher = (
    getattr(numbered, name) for name in ("vectors", "router", "leaf_of", "leaf_map", "leaves", "searcher")
)


def by_hand(vectors, leaf_of, row, k, beam):
    query = vectors[row]
    leaves = np.argsort(-(vectors[:L] @ query))[:beam]
    members = np.flatnonzero(np.isin(leaf_of, leaves))
    best = members[np.argsort(-(vectors[members] @ query))][:k]
    return leaves.tolist(), len(members), [f"d{found}" for found in best]


@pytest.mark.parametrize(("k", "beam"), [(1, 1), (5, 2), (60, 3), (60, 99)])
def test_search(searcher, vectors, leaf_of, k, beam):
    answers = searcher.search([str(row) for row in range(10)], k, beam)
    for row, answer in enumerate(answers):
        leaves, visited, ids = by_hand(vectors, leaf_of, row, k, beam)
        assert answer.leaves == leaves
        assert (answer.documents, answer.fraction) == (visited, visited / N)
        assert [hit.id for hit in answer.hits] == ids
        for hit in answer.hits:
            found = int(hit.id[1:])
            assert (hit.leaf, hit.title, hit.text) == (leaf_of[found], f"title {found}", f"text {found}")
            assert hit.score == pytest.approx(vectors[row] @ vectors[found], abs=1e-6)


def test_the_shell_says_where_no_index_is(tmp_path, capsys):
    assert main([str(tmp_path), "oak"]) == 2
    assert "current.json: no such file; build an index with rayhier run" in capsys.readouterr().err


def test_the_shell_refuses_a_question_without_words(tmp_path, capsys):
    assert main([str(tmp_path), "  "]) == 2
    assert "query: got " in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-k=0", "-k=10001", "-k=x", "--beam=0"])
def test_the_shell_refuses_a_count_out_of_range(tmp_path, option, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path), "oak", option])
    assert "usage: rayhier search" in capsys.readouterr().err
