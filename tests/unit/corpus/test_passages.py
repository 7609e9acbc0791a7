"""Documents cut into windows of words."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayhier.corpus.passages import DocumentLayout, cut, joined, windows
from rayhier.corpus.row_checks import Entry
from rayhier.spec import InputError
from rayhier.spec.corpus import Passages

TEXTS = st.lists(st.text(min_size=1, max_size=3), max_size=40).map(" ".join)
SIZES = st.integers(1, 12).flatmap(lambda words: st.tuples(st.just(words), st.integers(1, words)))


@given(TEXTS, SIZES)
def test_every_word_is_in_a_window_and_each_begins_a_stride_later(text, sizes):
    words, stride = sizes
    numbered = " ".join(str(n) for n in range(len(text.split())))
    found = [
        [int(word) for word in window.split()] for window in windows(numbered, Passages(words=words, stride=stride))
    ]
    assert {word for window in found for word in window} == set(range(len(text.split())))
    assert all(window == list(range(n * stride, n * stride + len(window))) for n, window in enumerate(found) if window)
    assert all(len(window) == words for window in found[:-1])
    assert len(found[-1]) <= words
    if len(found) > 1:
        assert len(found[-1]) > words - stride, "the window before reached the end already"
    assert joined([" ".join(map(str, window)) for window in found]) == numbered
    as_it_stands = list(windows(text, Passages(words=words, stride=stride)))
    assert all(window in text for window in as_it_stands)
    assert (as_it_stands == [text]) == (len(text.split()) <= words)


@given(st.lists(st.text(alphabet="a#01", min_size=1, max_size=6), unique=True, max_size=20))
def test_no_two_passages_have_the_same_id(keys):
    passages = Passages(words=1, stride=1)
    rows = [row for key in keys for row in cut(Entry(key, "t", "x y", cut=False), passages)]
    assert len({row[0] for row in rows}) == len(rows) == 2 * len(keys)
    assert all(row[0].rpartition("#")[0] == row[3] for row in rows)


def test_rows_of_another_layout_are_fitted():
    layout = DocumentLayout(None, {"lang": "string", "year": "int"})
    rows = pa.table({"doc_id": ["a"], "title": [""], "text": ["x"], "year": pa.array([1999], pa.int64()), "old": [1.0]})
    fitted = layout.fitted(rows)
    assert fitted.schema == layout.schema
    assert fitted.to_pylist() == [{"doc_id": "a", "title": "", "text": "x", "lang": None, "year": 1999}]
    with pytest.raises(InputError, match=r"corpus.fields.year: got string; allowed: int64"):
        layout.fitted(rows.set_column(3, "year", pa.array(["1999"])))
