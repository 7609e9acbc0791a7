"""The two forms of the scan, in numpy and by faiss' lists, against a search written out by its definition."""

from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rayhier.search.segment import codecs, lists, scan
from rayhier.search.segment.lists import FileLists, LeafLists
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


def file_of(codec, vectors, leaf_N, lower_N=None):
    """Lists of a file as a mapped segment has them; leaves ascend."""
    held, list_N = np.unique(leaf_N, return_inverse=True)
    index = codecs.fill(codec, vectors, list_N, len(held))
    return FileLists(index, held, np.bincount(list_N, minlength=len(held)), lower_N)


@given(
    st.integers(0, 1 << 30),
    st.sampled_from(["flat", "fp16"]),
    st.integers(0, 100),
    st.integers(2, 12),
    st.sampled_from([0, 1, 3, 20]),
    st.integers(1, 30),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_the_form_by_lists(seed, codec, n, n_leaves, q, k, filtered, together):
    """Several files, of which the last has any leaf; a range of leaves; empty leaves; query by query and together."""
    rng = np.random.default_rng(seed)
    leaf_FN = [np.sort(rng.choice(own, n)) for own in np.array_split(np.arange(n_leaves), rng.integers(1, 3))]
    leaf_FN.append(np.sort(rng.integers(0, n_leaves, 9)))
    vectors = [unit(rng, len(leaf_N), M).astype(np.float16 if codec == "fp16" else np.float32) for leaf_N in leaf_FN]
    first = int(rng.integers(0, n_leaves))
    searched = range(first, int(rng.integers(first, n_leaves)) + 1)
    held = LeafLists([file_of(codec, *both) for both in zip(vectors, leaf_FN, strict=True)], searched)
    leaf_N, keep_N = np.concatenate(leaf_FN), np.ones(sum(map(len, leaf_FN)), bool)
    if filtered:
        keep_N = rng.random(len(leaf_N)) < rng.choice([0.0, 0.1, 0.6])
    chosen, leaves_QB, queries = held.choose(keep_N) if filtered else None, visits(rng, q, n_leaves), unit(rng, q, M)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "FEWEST_SCORES", dict.fromkeys((2, 4), 0 if together else 1 << 40))
        found, everything = held.scan(queries, leaves_QB, k, chosen), held.scan(queries, None, k, chosen)
    here_N = keep_N & (leaf_N >= searched.start) & (leaf_N < searched.stop)
    check(found, *by_definition(np.concatenate(vectors), leaf_N, queries, leaves_QB, k, here_N))
    every_QB = np.tile(np.arange(n_leaves), (q, 1))
    check(everything, *by_definition(np.concatenate(vectors), leaf_N, queries, every_QB, k, here_N))
    scanned_Q = [int((np.isin(leaf_N, leaf_B) & here_N).sum()) for leaf_B in leaves_QB]
    assert [count.tolist() for count in held.count(leaves_QB, chosen)] == [scanned_Q, scanned_Q]


@given(st.integers(0, 1 << 30), st.integers(1, 40), st.integers(1, 6), st.booleans(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_documents_in_two_leaves_are_counted_once_and_marked_once(seed, n, beam, filtered, in_parts):
    rng, n_leaves, q = np.random.default_rng(seed), 6, 5
    own_N2 = np.stack([rng.permutation(n_leaves)[:2] for _ in range(n)])
    leaf_N, document_N = own_N2.T.reshape(-1), np.tile(np.arange(n), 2)
    lower_N = np.concatenate([np.full(n, -1), own_N2[:, 0]])
    order_N = np.argsort(leaf_N, kind="stable")
    leaf_N, document_N, lower_N = leaf_N[order_N], document_N[order_N], lower_N[order_N]
    held = LeafLists([file_of("flat", unit(rng, n, M)[document_N], leaf_N, lower_N)])
    keep_N = rng.random(n) < (0.5 if filtered else 1)
    chosen = held.choose(keep_N[document_N]) if filtered else None
    leaves_QB = np.stack([rng.permutation(n_leaves)[:beam] for _ in range(q)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "COUNTED", 7 if in_parts else lists.COUNTED)
        visited_Q, scanned_Q = held.count(leaves_QB, chosen)
    row_QT = held.scan(unit(rng, q, M), leaves_QB, 2 * n, chosen).row_QT
    again_QT = held.again(row_QT, leaves_QB)
    for query, leaf_B in enumerate(leaves_QB):
        inside_N2 = np.isin(own_N2, leaf_B) & keep_N[:, None]
        assert (visited_Q[query], scanned_Q[query]) == (inside_N2.any(axis=1).sum(), inside_N2.sum())
        kept_T = row_QT[query][(row_QT[query] >= 0) & ~again_QT[query]]
        assert sorted(document_N[kept_T].tolist()) == np.flatnonzero(inside_N2.any(axis=1)).tolist()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("codec", ["flat", "fp16"])
def test_threads_divide_the_queries_and_leave_torchs_as_they_were(codec, threads):
    rng, n, q = np.random.default_rng(5), 4_000, 300
    vectors = unit(rng, n, M).astype(np.float16)
    leaf_N, queries = np.sort(rng.choice([0, 1, 1, 1, 2], n)), unit(rng, q, M)
    held, leaves_QB = LeafLists([file_of(codec, vectors, leaf_N)]), visits(rng, q, 3)
    queries.flags.writeable = False
    before = faiss.omp_get_max_threads(), torch.get_num_threads()
    faiss.omp_set_num_threads(threads)
    torch.set_num_threads(2)
    try:
        found = held.scan(queries, leaves_QB, 40)
        assert held._pays_together(held.all, held._lists(leaves_QB))
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as other:
            assert other.submit(torch.get_num_threads).result() == 2
    finally:
        faiss.omp_set_num_threads(before[0])
        torch.set_num_threads(before[1])
    check(found, *by_definition(vectors, leaf_N, queries, leaves_QB, 40, np.ones(n, bool)))
