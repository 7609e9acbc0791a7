"""Scans leaf by leaf against scans query by query: the same rows, in both codecs without loss."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rayhier.cluster.library import faiss
from rayhier.dataset.documents import Copies
from rayhier.search.segment import codecs, leaf_by_leaf
from rayhier.search.segment.lists import FileLists, LeafLists

from ..draws import unit

M = 8
SMALL = {"TILE_PAIRS": 3, "TILE_ROWS": 4, "GROUP": 5, "KEPT": 6, "BATCH": 40}
"""Limits so small that every one of them cuts."""


def found(lists, queries, leaves, k, first, limits, *, rows_only=False):
    """Search with the first lists of each query query by query, and all others leaf by leaf."""
    scanned = []

    def scan(rows, *arrays):
        scanned.append(len(arrays[0]))
        leaf_by_leaf_scan(rows, *arrays)

    leaf_by_leaf_scan = leaf_by_leaf.scan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaf_by_leaf, "first_lists", lambda rows, scored_L, list_QB, k: min(first, list_QB.shape[1]))
        patch.setattr(leaf_by_leaf, "scan", scan)
        for name, limit in limits.items():
            patch.setattr(leaf_by_leaf, name, limit)
        answer = (lists.scan_rows if rows_only else lists.scan)(queries, leaves, k)
    assert bool(scanned) == (first < lists._lists(leaves).shape[1])
    return answer


def same(lists, queries, leaves, k, first=1, limits=SMALL, **options):
    scores, rows = found(lists, queries, leaves, k, first, limits, **options)
    wanted_scores, wanted_rows = found(lists, queries, leaves, k, 1 << 30, {}, **options)
    agree(scores, rows, wanted_scores, wanted_rows)
    return rows


def agree(scores, rows, wanted_scores, wanted_rows):
    """Rows may change places where their scores are equal but for rounding; the last place may so be another row's."""
    np.testing.assert_allclose(scores, wanted_scores, atol=1e-5)
    assert (rows < 0).tolist() == (wanted_rows < 0).tolist()
    edge = np.full((len(rows), 1), np.inf)
    known = np.where(wanted_rows < 0, -9.0, wanted_scores)
    falls = -np.diff(np.concatenate([edge, known, known[:, -1:]], axis=1), axis=1)
    is_tied = (falls[:, 1:] < 2e-5) | (falls[:, :-1] < 2e-5)
    assert (rows == wanted_rows)[~is_tied].all()


def file_of(codec, vectors, leaf_N, leaves, copies=None):
    """Lists of a file as a mapped segment has them: rows are numbered list after list."""
    held, list_N = np.unique(leaf_N, return_inverse=True)
    index = codecs.fill(codec, vectors, list_N, len(held))
    return FileLists(index, held, np.bincount(list_N, minlength=len(held)), copies)


def probes(rng, queries, leaves, beam):
    """Leaves of each query, without one or several of them."""
    leaves_QB = np.stack([rng.permutation(leaves)[:beam] for _ in range(queries)])
    return np.where(rng.random(leaves_QB.shape) < 0.2, -1, leaves_QB)


@given(
    st.integers(0, 1 << 30),
    st.sampled_from(["flat", "fp16"]),
    st.integers(0, 150),
    st.integers(2, 12),
    st.integers(16, 40),
    st.integers(1, 30),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_several_files_with_filters_and_empty_leaves(seed, codec, n, n_leaves, q, k, filtered):
    rng = np.random.default_rng(seed)
    files = []
    for leaves in np.array_split(np.arange(n_leaves), rng.integers(1, 3)):
        leaf_N = np.sort(rng.choice(leaves, n))
        files.append(file_of(codec, unit(rng, n, M), leaf_N, n_leaves))
    files.append(file_of(codec, unit(rng, 9, M), np.sort(rng.integers(0, n_leaves, 9)), n_leaves))  # added later
    lists = LeafLists(files)
    if filtered:
        lists = lists.where(rng.random(lists.rows) < 0.4)
    same(lists, unit(rng, q, M), probes(rng, q, n_leaves, rng.integers(2, n_leaves + 1)), k)


@given(st.integers(0, 1 << 30), st.integers(1, 60), st.integers(1, 12), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_documents_in_two_leaves_in_memory(seed, n, k, filtered, rows_only):
    rng, n_leaves, q = np.random.default_rng(seed), 6, 20
    own_NR = np.stack([rng.permutation(n_leaves)[:2] for _ in range(n)])
    copies = Copies(np.tile(np.arange(n), 2), np.concatenate([np.full(n, -1), own_NR[:, 0]])[:, None])
    lists = LeafLists.build(np.tile(unit(rng, n, M), (2, 1)), own_NR.T.reshape(-1), n_leaves, copies)
    if filtered:
        lists = lists.where(np.tile(rng.random(n) < 0.5, 2))
    leaves = probes(rng, q, n_leaves, 4)
    scores, rows = found(lists, unit(seed, q, M), leaves, k, 1, SMALL, rows_only=rows_only)
    wanted_scores, wanted_rows = found(lists, unit(seed, q, M), leaves, k, 9, {}, rows_only=rows_only)
    # The two rows of a document have equal scores, in any order.
    agree(scores, np.where(rows < 0, -1, rows % n), wanted_scores, np.where(wanted_rows < 0, -1, wanted_rows % n))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("codec", ["flat", "fp16"])
def test_at_the_limits_that_ship(codec, threads):
    """Lists with more rows, and of more queries, than a product takes; threads divide the queries."""
    rng, n, q = np.random.default_rng(5), 4_000, 1_500
    lists = LeafLists([file_of(codec, unit(rng, n, M), np.sort(rng.choice([0, 1, 1, 1, 2], n)), 3)])
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        rows = same(lists, unit(rng, q, M), probes(rng, q, 3, 3), 40, limits={})
    finally:
        faiss.omp_set_num_threads(before)
    assert (rows >= 0).any()


def test_torch_has_as_many_threads_as_before_and_queries_may_be_read_only():
    rng, before = np.random.default_rng(6), torch.get_num_threads()
    lists, queries = LeafLists.build(unit(rng, 90, M), np.arange(90) // 30, 3), unit(rng, 40, M)
    queries.flags.writeable = False
    torch.set_num_threads(2)
    try:
        same(lists, queries, probes(rng, 40, 3, 3), 5)
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as other:
            assert other.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)


def test_equal_scores_and_negative_scores_are_kept():
    """Two queries, opposite to each other, and rows of which many are equal."""
    vectors = np.tile(np.eye(M, dtype=np.float32)[:2], (30, 1))
    lists = LeafLists.build(vectors, np.arange(60) // 10, 6)
    queries = np.tile(np.eye(M, dtype=np.float32)[:1] * [[1], [-1]], (8, 1)).astype(np.float32)
    scores, rows = found(lists, queries, np.tile(np.arange(6), (16, 1)), 40, 1, SMALL)
    assert scores[0].tolist() == [1.0] * 30 + [0.0] * 10
    assert scores[1].tolist() == [0.0] * 30 + [-1.0] * 10
    assert all(len(set(row)) == 40 for row in rows.tolist())
