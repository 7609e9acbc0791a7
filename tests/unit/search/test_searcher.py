"""From a published leaf map to answers, against a scan written out by hand."""

import numpy as np
import pytest

from . import numbered
from .numbered import L, N

vectors, router, leaf_of, leaf_map, searcher = (
    getattr(numbered, name) for name in ("vectors", "router", "leaf_of", "leaf_map", "searcher")
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
