"""Imbalance is faiss's."""

import numpy as np
import pytest

from rayhier.cluster.library import faiss
from rayhier.dataset.balance import balance


def test_imbalance_is_faisss():
    own = np.random.default_rng(0).choice(12, 400, p=np.arange(12) / 66)
    sizes = np.bincount(own, minlength=12)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(4), 4, 12)
    index.is_trained = True
    vectors = np.zeros((400, 4), np.float32)
    faiss.contrib.ivf_tools.add_preassigned(index, vectors, own.astype(np.int64))
    assert balance(sizes)["imbalance"] == pytest.approx(index.invlists.imbalance_factor())
