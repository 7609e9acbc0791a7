"""Scans in numpy and by the native kernels, against a search written out by its definition."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayhier.search.native import extension, reference
from rayhier.search.native.reference import CodedFile, codes_of
from rayhier.search.segment import scan
from rayhier.search.segment.scan import ListedRows

from ..draws import unit

M = 8


def by_definition(vectors, leaf_N, queries, leaves_QB, k, keep_N, comparison="cosine"):
    """Scores of the k best rows of each query, best first; and all scores [q, n], -inf outside the query's leaves."""
    pairs = queries[:, None].astype(np.float64), vectors[None].astype(np.float64)
    product_QN = pairs[0] @ pairs[1].transpose(0, 2, 1) if comparison == "cosine" else -np.abs(pairs[0] - pairs[1]) / 2
    score_QN = product_QN.reshape(len(queries), len(vectors)) if comparison == "cosine" else product_QN.sum(axis=2)
    for query, leaf_B in enumerate(leaves_QB):
        score_QN[query, ~(np.isin(leaf_N, leaf_B[leaf_B >= 0]) & keep_N)] = -np.inf
    best_QK = -np.sort(-score_QN, axis=1)[:, :k]
    return np.pad(best_QK, ((0, 0), (0, k - best_QK.shape[1])), constant_values=-np.inf), score_QN


def check(found, best_QK, score_QN, tolerance=1e-5):
    """Rows are distinct and have the scores that they tell, which are the best ones: ties may differ."""
    np.testing.assert_allclose(found.score_QT, best_QK, atol=tolerance)
    assert ((found.row_QT < 0) == np.isneginf(found.score_QT)).all()
    for row_T, score_T, score_N in zip(found.row_QT, found.score_QT, score_QN, strict=True):
        there_T = row_T[row_T >= 0]
        assert len(set(there_T.tolist())) == len(there_T)
        np.testing.assert_allclose(score_T[row_T >= 0], score_N[there_T], atol=tolerance)


def visits(rng, queries, leaves):
    """Some leaves of each query, in any order, and -1 in place of some."""
    leaves_QB = rng.permuted(np.tile(np.arange(leaves), (queries, 1)), axis=1)[:, : rng.integers(1, leaves + 1)]
    return np.where(rng.random(leaves_QB.shape) < 0.2, -1, leaves_QB)


@given(
    st.integers(0, 1 << 30),
    st.integers(0, 80),
    st.integers(1, 9),
    st.integers(1, 30),
    st.sampled_from(["cosine", "tv"]),
)
@settings(max_examples=80, deadline=None)
@pytest.mark.parametrize("limits", [{"SCORES": 20, "TILE": 3, "KEPT": 2}, {"TILE": 7}, {}])
def test_the_numpy_form(limits, seed, n, n_leaves, k, comparison):
    rng = np.random.default_rng(seed)
    leaf_N, vectors, queries = np.sort(rng.integers(0, n_leaves, n)), unit(rng, n, M), unit(rng, 5, M)
    leaves_QB, keep_N = visits(rng, 5, n_leaves), rng.random(n) < rng.choice([0.0, 0.5, 1.0])
    rows = ListedRows.of(vectors.astype(np.float16), np.bincount(leaf_N, minlength=n_leaves))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(scan, name, value)
        found = scan.scan(rows, queries, leaves_QB, k, keep_N, comparison)
        everything = scan.scan(rows, queries, None, k, keep_N, comparison)
    stored = vectors.astype(np.float16)
    check(found, *by_definition(stored, leaf_N, queries, leaves_QB, k, keep_N, comparison))
    every_QB = np.tile(np.arange(n_leaves), (5, 1))
    check(everything, *by_definition(stored, leaf_N, queries, every_QB, k, keep_N, comparison))


def native():
    """Skips where nothing could build the extension; CI has a compiler."""
    return extension() or pytest.skip("no native scan")


def made(rng, m, leaves, files):
    """Files with rows in some leaves, some of which no query compares, and rows in documents' second leaves."""
    made = []
    for _ in range(files):
        leaf_L = np.flatnonzero(rng.random(leaves) < 0.8)
        size_L = rng.integers(0, rng.choice([12, 300], p=[0.8, 0.2]), len(leaf_L))  # long lists: queries go together
        n = int(size_L.sum())
        vectors = unit(rng, n, m).astype(rng.choice([np.float16, np.float32]))
        bias = rng.normal(size=n).astype(np.float32) if rng.random() < 0.3 else None
        lower = np.where(rng.random(n) < 0.3, rng.integers(0, leaves, n), -1) if rng.random() < 0.6 else None
        leaf_L = np.where(rng.random(len(leaf_L)) < 0.1, -1, leaf_L)
        made.append(CodedFile(vectors, *codes_of(vectors), bias, leaf_L, size_L, lower))
    return made


@given(
    st.integers(0, 1 << 30),
    st.sampled_from([3, 7, 64, 65, 384, 1023]),
    st.integers(0, 3),
    st.integers(0, 6),
    st.integers(0, 40),
    st.sampled_from([0, 5, 30, 1_000]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_native_kernels_find_what_numpy_finds(seed, m, files, q, k, listed, filtered, everywhere):
    module, rng, leaves = native(), np.random.default_rng(seed), 9
    parts = [tuple(file) for file in made(rng, m, leaves, files)]
    here, there = reference.CodedRows(m, leaves, parts), module.CodedRows(m, leaves, parts)
    queries, leaves_QB = unit(rng, q, m), None if everywhere else visits(rng, q, leaves + 2)
    keep_N = rng.random(here.count) < rng.choice([0.0, 0.1, 0.6]) if filtered else None
    row_QK, score_QK, compared_Q = here.scan(queries, leaves_QB, k, listed, keep_N)
    for kernel in module.kernels():
        rows, scores, compared = there.scan(queries, leaves_QB, k, listed, keep_N, 1 + seed % 3, kernel)
        assert compared.tolist() == compared_Q.tolist()
        np.testing.assert_allclose(scores, score_QK, atol=1e-5)
        tied_QK = np.isclose(score_QK[:, 1:], score_QK[:, :-1], atol=1e-5).any(axis=1)
        assert (rows[~tied_QK] == row_QK[~tied_QK]).all()


def test_ten_thousand_queries_in_one_call_find_what_each_finds_alone():
    rng = np.random.default_rng(2)
    rows = native().CodedRows(24, 9, [tuple(file) for file in made(rng, 24, 9, 2)])
    queries, leaves = unit(rng, 10_000, 24), rng.integers(-1, 9, (10_000, 3))
    together = rows.scan(queries, leaves, 5, 8, None, 2)
    some = range(0, 10_000, 25)
    alone = [rows.scan(queries[[row]], leaves[[row]], 5, 8, None, 1) for row in some]
    for whole, parts in zip(together, zip(*alone, strict=True), strict=True):
        assert (whole[some] == np.concatenate(parts)).all()


def test_memory_that_ends_is_an_error():
    rng = np.random.default_rng(3)
    rows = native().CodedRows(24, 9, [tuple(file) for file in made(rng, 24, 9, 2)])
    with pytest.raises(MemoryError):
        rows.scan(unit(rng, 40, 24), None, 1 << 44, 8, None, 2)
    assert rows.scan(unit(rng, 40, 24), None, 5, 8, None, 2)[0].shape == (40, 5)


@given(st.integers(0, 1 << 30), st.integers(0, 3), st.integers(1, 30), st.booleans())
@settings(max_examples=80, deadline=None)
@pytest.mark.parametrize("form", ["numpy", "native"])
def test_exact_scores_of_all_rows_are_the_definition(form, seed, files, k, filtered):
    rng, leaves, q, m = np.random.default_rng(seed), 7, 4, M
    parts = made(rng, m, leaves, files)
    kind = reference.CodedRows if form == "numpy" else native().CodedRows
    rows = kind(m, leaves, [tuple(file) for file in parts])
    leaf_N = np.concatenate([np.zeros(0, int), *(np.repeat(file.leaf_L, file.size_L) for file in parts)])
    lower_N = [np.full(len(file.vector_NM), -1) if file.lower_N is None else file.lower_N for file in parts]
    lower_N = np.concatenate([np.zeros(0, int), *lower_N])
    queries, leaves_QB = unit(rng, q, m), visits(rng, q, leaves)
    keep_N = rng.random(len(leaf_N)) < 0.5 if filtered else np.ones(len(leaf_N), bool)
    row_QK, score_QK, compared_Q = rows.scan(queries, leaves_QB, k, len(leaf_N), keep_N if filtered else None)
    vectors = np.concatenate([np.zeros((0, m)), *(file.vector_NM for file in parts)])
    bias_N = [np.zeros(len(file.vector_NM)) if file.bias_N is None else file.bias_N for file in parts]
    bias_N = np.concatenate([np.zeros(0), *bias_N])
    for query in range(q):
        visited = set(leaves_QB[query][leaves_QB[query] >= 0].tolist())
        counted_N = np.array(
            [leaf in visited and lower not in visited for leaf, lower in zip(leaf_N, lower_N, strict=True)], bool
        )
        row_A = np.flatnonzero(counted_N & keep_N)
        best_A = -np.sort(-(vectors[row_A] @ queries[query].astype(np.float64) + bias_N[row_A]))[:k]
        assert compared_Q[query] == len(row_A)
        np.testing.assert_allclose(score_QK[query][: len(best_A)], best_A, atol=1e-5)
        assert (row_QK[query][len(best_A) :] == -1).all()
        assert set(row_QK[query][: len(best_A)].tolist()) <= set(row_A.tolist())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"queries": np.zeros((1, 5), np.float32)}, "queries"),
        ({"queries": np.zeros((1, 8))}, "incompatible|convert"),
        ({"leaves": np.zeros((2, 1), np.int64)}, "leaves"),
        ({"keep": np.ones(3, bool)}, "keep"),
        ({"k": -1}, "k"),
        ({"kernel": "vax"}, "vax"),
    ],
)
def test_the_extension_refuses_what_it_would_read_beyond(change, words):
    file = made(np.random.default_rng(1), M, 3, 1)[0]
    rows = native().CodedRows(M, 3, [tuple(file)])
    given_ = {"queries": np.zeros((1, M), np.float32), "leaves": None, "k": 3, "listed": 5, "keep": None} | change
    with pytest.raises((ValueError, TypeError), match=words):
        rows.scan(**given_)


def test_queries_that_are_no_numbers_find_nothing_or_no_wrong_rows():
    file = made(np.random.default_rng(1), M, 3, 1)[0]
    for bad in (np.nan, np.inf):
        row_QK, _, _ = native().CodedRows(M, 3, [tuple(file)]).scan(np.full((1, M), bad, np.float32), None, 3, 4, None)
        assert ((row_QK >= -1) & (row_QK < len(file.vector_NM))).all()


@pytest.mark.parametrize("form", ["numpy", "native"])
def test_single_rows_of_mapped_columns(form):
    kind = reference.Columns if form == "numpy" else native().Columns
    files, rows = [], []
    for texts in (["oak", "", "élan"], [], ["𝄞 clef"]):
        column = pa.array(texts, pa.string())
        content = np.frombuffer(column.buffers()[2] or b"", np.uint8)
        begins = np.frombuffer(column.buffers()[1], np.int32)[: len(texts) + 1]
        files.append([(begins, content), np.arange(len(texts), dtype=np.int32)])
        rows += [(text, number) for number, text in enumerate(texts)]
    columns = kind(files)
    assert columns.take(np.array([3, 0, 2, 1, 0])) == [rows[row] for row in (3, 0, 2, 1, 0)]
    assert columns.take(np.zeros(0, np.int64)) == []
    assert columns.ranks(np.array([3, 0, 2, 1, 0])).tolist() == [3, 1, 2, 0, 1]


def test_the_extension_reads_no_row_and_no_text_that_is_not_there():
    begins, content = np.array([0, 9], np.int32), np.frombuffer(b"oak", np.uint8)
    for row, error in ((0, ValueError), (1, IndexError), (-1, IndexError)):
        with pytest.raises(error):
            native().Columns([[(begins, content)]]).take(np.array([row]))
    with pytest.raises(ValueError, match="rows"):
        native().Columns([[(begins, content), np.zeros(5, np.int32)]])
