"""BM25 by native code, against numpy's form of it."""

from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayhier.dataset.words import postings as count_words
from rayhier.dataset.words import word_hashes
from rayhier.search.native import extension
from rayhier.search.words import postings
from rayhier.search.words.postings import PostingLists, Postings

ROWS = 20_000


@pytest.fixture(scope="module")
def native():
    """Skips where nothing could build the extension; CI has a compiler."""
    return extension() or pytest.skip("no native scan")


def a_text(rng, most):
    return " ".join(f"w{word}" for word in np.minimum(rng.zipf(1.4, size=rng.integers(0, most)), 40))


def opened(texts, row_N, rows, kind=None):
    made = Postings(postings.counted(count_words(texts, row_N), rows))
    made.kind_P = made.kind_P if kind is None else made.kind_P.astype(kind)
    return made


@given(
    st.integers(0, 1 << 30),
    st.integers(0, 3),
    st.sampled_from([1, 40, 400]),
    st.sampled_from([0, 1, 3, 10, 10**9]),
    st.sampled_from([None, 0.0, 0.1, 1.0]),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_native_code_finds_what_numpy_finds(native, seed, shards, n, k, kept, tail):
    rng, made, spans = np.random.default_rng(seed), [], []
    for _ in range(shards + 1):
        texts = [a_text(rng, 12) for _ in range(rng.integers(0, n + 1))]
        texts = texts[: len(texts) // 2] + texts[: len(texts) // 2]  # each twice, so that many tie
        row_N = np.sort(rng.choice(ROWS, len(texts), replace=False))
        made.append(opened(texts, row_N, ROWS, rng.choice([None, np.uint32])))
        spans.append(tuple(np.sort(rng.integers(0, ROWS + 1, 2)).tolist()) if rng.random() < 0.3 else (0, ROWS))
    lists = PostingLists(made[:-1], spans[:-1], made[-1:], language="english")
    # Words nobody has, and words that are only in the tail.
    queries = [a_text(rng, 9) + rng.choice(["", " unheard", " later later"]) for _ in range(20)]
    keep_N = None if kept is None else rng.random(shards * ROWS) < kept
    later = word_hashes(["later", "w2"])
    further = SimpleNamespace(documents=9, frequency=lambda hash_T: 4 * np.isin(hash_T, later)) if tail else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "threads_for", lambda _: 1 + seed % 3)
        score_QT, row_QT = lists.best(queries, k, keep_N, further)
    alone = [lists.best([query], k, keep_N, further) for query in queries]
    lists._native = None
    wanted_QT, best_QT = lists.best(queries, k, keep_N, further)
    every_QN, _ = lists.best(queries, shards * ROWS, keep_N, further)
    assert score_QT.dtype == wanted_QT.dtype
    assert row_QT.dtype == best_QT.dtype
    for query, every_N in enumerate(every_QN):
        gap_N = -np.diff(every_N[every_N > 0])
        if ((gap_N > 0) & (gap_N < 1e-5)).any():
            continue  # logarithms of two libraries may order these otherwise
        width = int((best_QT[query] >= 0).sum())
        np.testing.assert_allclose(score_QT[query, :width], wanted_QT[query, :width], rtol=1e-5)
        assert row_QT[query, :width].tolist() == best_QT[query, :width].tolist()
        assert set(row_QT[query, width:].tolist()) <= {-1}
        assert np.isneginf(score_QT[query, width:]).all()
        for (alone_T,), whole_QT in zip(alone[query], (score_QT, row_QT), strict=True):
            assert alone_T.tolist() == whole_QT[query, :width].tolist()


@pytest.fixture
def arrays(native):
    made = opened(["one two", "two three"], np.arange(2), 2)
    (file,) = [
        PostingLists([made], [(0, 2)], language="english")._file(made, np.ones(len(made.count_C), np.float32), (0, 2))
    ]
    return list(file)


WORD, FREQUENCY, BEGIN, MOST, ROW, KIND, PART, HIGHER, COUNT, FIRST, LAST = range(11)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (WORD, np.zeros(1, np.uint64), "frequencies"),
        (BEGIN, np.zeros(2, np.int64), "number of values"),
        (ROW, np.zeros(3, np.int32), "number of values"),
        (KIND, np.zeros(4, np.int64), "kinds"),
        (PART, np.zeros(0, np.float32), "parts"),
        (LAST, 3, "range"),
        (COUNT, 1 << 40, "incompatible"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays, native, place, value, words):
    native.WordLists([tuple(arrays)], [], 2)
    arrays[place] = value
    with pytest.raises((ValueError, TypeError), match=words):
        native.WordLists([tuple(arrays)], [], 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hashes": np.zeros(1)}, "incompatible"),
        ({"k": -1}, "k"),
        ({"threads": 0}, "threads"),
        ({"keep": np.ones(3, bool)}, "keep"),
        ({"further": np.zeros(1, np.int64)}, "further"),
    ],
)
def test_searches_beyond_the_arrays_are_refused(arrays, native, change, words):
    lists = native.WordLists([tuple(arrays)], [], 2)
    search = {"hashes": word_hashes(["one", "two"]), "counts": [2], "k": 2, "ties": 4, "keep": None, "further": None}
    assert lists.best(**search)[1].tolist() == [[0, 1]]
    with pytest.raises((ValueError, TypeError), match=words):
        lists.best(**(search | change))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (BEGIN, np.full(3, 3, np.int64)),
        (BEGIN, np.full(3, np.iinfo(np.int64).max, np.int64)),
        (ROW, np.array([9, -5, 1 << 30, -(1 << 31)], np.int32)),
        (KIND, np.full(4, 60_000, np.uint16)),
        (PART, np.full(3, np.nan, np.float32)),
        (MOST, np.full(3, np.nan, np.float32)),
        (HIGHER, np.nan),
    ],
)
def test_damaged_postings_do_no_harm(arrays, native, place, value):
    arrays[place] = value
    for arrays[FIRST] in (0, 1):
        lists = native.WordLists([tuple(arrays)], [], 2)
        with suppress(ValueError):
            _, row_QT = lists.best(word_hashes(["one", "two", "three"]), [3], 2, 4, np.ones(2, bool), None)
            assert ((row_QT >= -1) & (row_QT < 2)).all()
