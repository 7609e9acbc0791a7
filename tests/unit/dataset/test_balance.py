"""Imbalance is faiss's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayhier.cluster.library import faiss
from rayhier.dataset.balance import balance


@given(st.lists(st.integers(0, 500), min_size=1, max_size=50).filter(any))
def test_imbalance_is_the_formula(sizes):
    wanted = len(sizes) * sum(n * n for n in sizes) / sum(sizes) ** 2
    assert balance(np.array(sizes)) == {
        "leaves": len(sizes),
        "empty": sizes.count(0),
        "imbalance": pytest.approx(wanted),
    }


def test_imbalance_is_faisss():
    own = np.random.default_rng(0).choice(12, 400, p=np.arange(12) / 66)
    sizes = np.bincount(own, minlength=12)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(4), 4, 12)
    index.is_trained = True
    vectors = np.zeros((400, 4), np.float32)
    faiss.contrib.ivf_tools.add_preassigned(index, vectors, own.astype(np.int64))
    assert balance(sizes)["imbalance"] == pytest.approx(index.invlists.imbalance_factor())


def test_even_leaves_have_one_and_one_full_leaf_has_all():
    assert balance(np.array([5, 5, 5]))["imbalance"] == 1
    assert balance(np.array([0, 15, 0]))["imbalance"] == 3
