"""The forms of exact search by inner product find the rows that numpy finds."""

import numpy as np
import pytest

from rayhier.cluster import neighbours
from rayhier.cluster.neighbours import Neighbours

from ..draws import unit


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("form", ["faiss", "torch"])
@pytest.mark.parametrize("block", [64, 1 << 18])
def test_every_form_finds_the_best_rows(form, kind, block, monkeypatch):
    monkeypatch.setattr(neighbours, "BLOCK", block)
    monkeypatch.setattr(neighbours, "SCORES", 16 * block)
    rows, queries = unit(0, 300, 24).astype(kind), unit(1, 50, 24)
    made = Neighbours(rows, "cpu" if form == "torch" else None)
    scores = queries @ rows.T.astype(np.float32)
    wanted = np.argsort(-scores, axis=1)
    for count in (1, 20, 300, 400):
        found, values = made.search(queries, count)
        assert np.array_equal(found, wanted[:, :count])
        np.testing.assert_allclose(values, np.take_along_axis(scores, found, axis=1), atol=1e-5)
