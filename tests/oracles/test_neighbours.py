"""The forms of exact search by inner product find the rows that numpy finds."""

import numpy as np
import pytest

from rayhier.cluster import neighbours
from rayhier.cluster.neighbours import Neighbours

from ..draws import unit


class Limited:
    """faiss's index on a GPU, which finds so many rows at most."""

    most = 100

    def __init__(self, _, device, index):
        assert device == 1
        self.index = index

    def search(self, query_QM, count):
        assert count <= self.most
        return self.index.search(query_QM, count)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("form", ["faiss", "torch", "faiss on a GPU"])
@pytest.mark.parametrize("block", [64, 1 << 18])
def test_every_form_finds_the_best_rows(form, kind, block, monkeypatch):
    monkeypatch.setattr(neighbours, "BLOCK", block)
    monkeypatch.setattr(neighbours, "SCORES", 16 * block)
    if form == "faiss on a GPU":  # a CPU plays the second GPU
        monkeypatch.setattr(neighbours, "faiss_on_gpu", lambda: True)
        monkeypatch.setattr(neighbours, "FAISS_MOST", Limited.most)
        monkeypatch.setattr("torch.cuda.current_device", lambda: 1)
        monkeypatch.setattr(neighbours, "_memory", lambda: None)
        monkeypatch.setattr(neighbours.faiss, "index_cpu_to_gpu", Limited, raising=False)
    rows, queries = unit(0, 300, 24).astype(kind), unit(1, 50, 24)
    made = Neighbours(rows, None if form == "faiss" else "cpu")
    scores = queries @ rows.T.astype(np.float32)
    wanted = np.argsort(-scores, axis=1)
    for count in (1, 20, 300, 400):
        found, values = made.search(queries, count)
        assert np.array_equal(found, wanted[:, :count])
        np.testing.assert_allclose(values, np.take_along_axis(scores, found, axis=1), atol=1e-5)
