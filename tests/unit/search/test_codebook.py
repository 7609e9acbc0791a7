"""Four-bit codes against what they stand for."""

import numpy as np
import pytest

from rayhier.search.segment.codebook import Codebook
from rayhier.search.segment.lists import FileLists, LeafLists

N, Q, M = 3_000, 40, 30


def near(rows, seed):
    """Vectors that lie close together in groups of ten, with a number of dimensions that is no multiple of 4."""
    numbers = np.random.default_rng(seed)
    centre = np.random.default_rng(1).normal(size=(300, M))
    x = centre[numbers.integers(0, 300, rows)] + 0.5 * numbers.normal(size=(rows, M))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def decoded(book, vectors):
    """What the codes of vectors stand for."""
    quantizer = book.quantizer()
    padded = quantizer.decode(quantizer.compute_codes(book.padded(vectors)))
    return (padded if book.rotation_PP is None else padded @ book.rotation_PP.T)[:, :M]


@pytest.fixture(scope="module", params=["float32", "float16"])
def stored(request):
    return near(N, 2).astype(request.param)


def test_scores_are_those_of_the_decoded_vectors(stored):
    book, queries = Codebook.train(stored, rotate=True), near(Q, 3)
    score, row = book.flat(stored).search(book.padded(queries), 50)
    exact = queries @ decoded(book, stored).T
    np.testing.assert_allclose(score, np.take_along_axis(exact, row, axis=1), atol=0.02)
    assert (np.diff(score, axis=1) <= 0).all()
    least = np.sort(exact, axis=1)[:, -50]
    assert (np.take_along_axis(exact, row, axis=1).min(axis=1) >= least - 0.04).all(), "no better one is left out"


def test_lists_and_all_rows_have_the_same_codes(stored):
    book, queries = Codebook.train(stored, rotate=True), near(Q, 3)
    leaf_N = np.sort(np.arange(N) % 7)
    held = FileLists(book.lists(stored, leaf_N, 7), np.arange(7), np.bincount(leaf_N))
    score, row = LeafLists([held], codebook=book).scan(queries, None, 20).arrays
    np.testing.assert_allclose(score, book.flat(stored).search(book.padded(queries), 20)[0], atol=0.02)
    by_codes = queries @ decoded(book, stored).T
    np.testing.assert_allclose(score, np.take_along_axis(by_codes, row, axis=1), atol=0.02)


def test_a_codebook_is_read_as_it_was_written(stored, tmp_path):
    for rotate in (True, False):
        book = Codebook.train(stored, rotate=rotate)
        (tmp_path / str(rotate)).mkdir()
        book.save(tmp_path / str(rotate))
        again = Codebook.load(tmp_path / str(rotate), M)
        np.testing.assert_array_equal(decoded(book, stored), decoded(again, stored))
