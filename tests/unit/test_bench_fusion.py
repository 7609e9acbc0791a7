"""Fusion with many weights at once finds what the library's fusion finds."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.fusion import listed
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import whole_scan
from rayhier.search.segment.exact import exact, exact_rows
from rayhier.search.words.bm25 import Bm25Index
from rayhier.search.words.hybrid import fused
from rayhier.spec.search import HybridSpec

MEASURES = ("nDCG@10", "R@100")


@pytest.fixture(scope="module")
def world():
    generator = np.random.default_rng(0)
    documents, queries = 400, 40
    document_NM, query_QM = (
        (vector / np.linalg.norm(vector, axis=1, keepdims=True)).astype(np.float32)
        for vector in (generator.normal(size=(rows, 16)) for rows in (documents, queries))
    )
    names = generator.permutation([f"d{number}" for number in range(documents)]).tolist()
    texts = [" ".join(f"word{word}" for word in generator.integers(0, 60, 12)) for _ in names]
    query_texts = [" ".join(f"word{word}" for word in generator.integers(0, 70, count)) for count in [*range(1, 9)] * 5]
    query_texts[3] = "nothing"
    grades = {
        f"q{number}": {names[row]: int(generator.integers(0, 4)) for row in generator.integers(0, documents, 30)}
        for number in range(queries)
    }
    return names, document_NM, texts, Queries(list(grades), query_QM, grades, query_texts)


@pytest.mark.parametrize("weight", [0.0, 0.05, 0.3, 1.0])
def test_values_are_those_of_the_librarys_fusion(world, weight):
    names, document_NM, texts, queries = world
    ids, query_QM = pa.array(names), queries.vector_QM
    word_QK, row_QK = Bm25Index(texts).best(queries.texts, 100)
    table = whole_scan(word_QK, row_QK, ids, 0)
    place = {name: row for row, name in enumerate(names)}
    tied_QK = np.array([place[name] for name in table.ids])[table.row_QK]  # ties go by id there
    base_QK = np.where(table.row_QK >= 0, np.einsum("qm,qkm->qk", query_QM, document_NM[tied_QK]), -np.inf)
    dense = exact(query_QM, document_NM, ids, ids, 100)
    both = fused(dense, [replace(table, base_QK=base_QK.astype(np.float32))], 100, HybridSpec(weight=weight))
    wanted = Judge(queries, MEASURES).values(both)

    order = {name: place for place, name in enumerate(sorted(names))}
    candidates = listed(
        exact_rows(query_QM, document_NM, None, 100),
        (word_QK, row_QK),
        document_NM,
        queries,
        {name: row for row, name in enumerate(names)},
        np.array([order[name] for name in names]),
    )
    got = candidates.values(weight)
    for measure in MEASURES:
        np.testing.assert_allclose(got[measure], wanted[measure], atol=1e-9)
    alone = Judge(queries, MEASURES).values(table)["R@100"]
    np.testing.assert_allclose(candidates.bm25()["R@100"], alone, atol=1e-9)
