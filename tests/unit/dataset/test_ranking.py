"""A ranking goes between processes as bytes, and comes back as it was."""

import pickle
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.ranking import Ranking

DOCUMENTS = pa.table(
    {
        "id": pa.chunked_array([["a", "b"], ["ü"]]),
        "text": pa.chunked_array([["", None], ["long " * 100]]),
        "year": pa.chunked_array([[1, None], [3]], pa.int64()),
        "vector": pa.chunked_array([[[1.0], [2.0]], [[3.0]]], pa.list_(pa.float32(), 1)),
    }
)
COSTS = np.arange(2), np.arange(2) + 1, np.arange(2) + 2


SCORES, ROWS = np.array([[0.1, -np.inf, 2], [3, 4, 5]], np.float32), np.array([[0, -1, 2], [1, 2, 0]])
RANKINGS = {
    "missing results": Ranking(SCORES, ROWS, DOCUMENTS, *COSTS),
    "calls": Ranking(np.array([[1 / 3], [2.5]]), np.array([[2], [0]]), DOCUMENTS[1:], *COSTS, np.array([7, 0])),
    "not contiguous": Ranking(SCORES[:, ::2], ROWS[:, ::2], DOCUMENTS.slice(2), *COSTS),
    "no queries": Ranking.none(0),
}


@pytest.mark.parametrize("ranking", RANKINGS.values(), ids=RANKINGS)
@pytest.mark.parametrize("copied", [10**6, -1])
def test_a_ranking_is_pickled_whole(ranking, copied, monkeypatch):
    monkeypatch.setattr("rayhier.dataset.ranking.COPIED", copied)
    came = pickle.loads(pickle.dumps(ranking))
    for field in fields(Ranking):
        before, after = getattr(ranking, field.name), getattr(came, field.name)
        if field.name == "source":
            assert after.equals(before)
            assert after.schema == before.schema
        elif before is None:
            assert after is None
        else:
            np.testing.assert_array_equal(after, before)
            assert (after.dtype, after.shape) == (before.dtype, before.shape)
