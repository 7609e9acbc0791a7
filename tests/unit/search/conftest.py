"""Fixtures of several tests of search."""

import numpy as np
import pytest

from .maps import leaf_map_of_rows, leaf_rows

WORDS = ["oak", "elm", "ash", "fir", "yew", "bay", "fig", "plum"]


@pytest.fixture(params=[False, True], ids=["documents", "passages"])
def passages(request):
    return request.param


@pytest.fixture
def world(unit, tmp_path, write_map, passages):
    """Sixty documents of a few words in six leaves, every third in two; as passages, three rows a document."""
    rng = np.random.default_rng(0)
    vector_NM = unit(rng, 60, 8).astype(np.float16).astype(np.float32)
    texts = [f"document d{n} {' '.join(rng.choice(WORDS, size=rng.integers(2, 9)))}" for n in range(60)]
    leaves = [
        [leaf, (leaf + 1) % 6][: 2 if n % 3 == 0 else 1] for n, leaf in enumerate(rng.integers(6, size=60).tolist())
    ]
    parents = {"parent": [f"p{n // 3}" for n in range(60)]} if passages else {}
    ids, years = [f"d{n}" for n in range(60)], [n % 7 for n in range(60)]
    table = leaf_rows(leaves, vector_NM, doc_id=ids, text=texts, year=years, **parents)
    queries = [" ".join(rng.choice(WORDS, size=2)) for _ in range(3)] + ["unheard"]
    return leaf_map_of_rows(tmp_path / "map", write_map, table, 6), vector_NM, texts, unit(rng, 4, 8), queries
