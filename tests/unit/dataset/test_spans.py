"""Pseudo-queries as they are read, and those that are held out."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.generated import split_generated
from rayhier.dataset.holdout import holdout_rows
from rayhier.dataset.queries import Queries
from rayhier.dataset.spans import Spans, span_queries


def spans(row_P):
    row_P = np.array(row_P)
    texts = pa.chunked_array([pa.array([f"text {number}" for number in range(len(row_P))])])
    return Spans(np.arange(2.0 * len(row_P), dtype=np.float32).reshape(-1, 2), row_P, texts)


def test_held_out_documents_are_asked_for_by_their_own_pseudo_queries_and_teach_nothing():
    ids = [f"d{row}" for row in range(40)]
    drawn = spans([row for row in range(40) if row % 4 for _ in range(3)])
    held, left = span_queries(drawn, ids, ids)
    names = [name for name in ids if int(name[1:]) % 4]
    wanted = {names[row] for row in holdout_rows(names)}
    assert len(wanted) == 3
    assert {name for grades in held.grades.values() for name in grades} == wanted
    assert [list(held.grades[name]) for name in held.ids] == [[name.partition("#")[0]] for name in held.ids]
    assert len(held) == 9
    assert len(held) + len(left) == len(drawn)
    assert not {ids[row] for row in left.row_P} & wanted
    texts = dict(zip(drawn.texts.to_pylist(), drawn.row_P.tolist(), strict=True))
    for name, text, vector in zip(held.ids, held.texts, held.vector_QM, strict=True):
        assert name.partition("#")[0] == ids[texts[text]]
        np.testing.assert_array_equal(vector, drawn.vector_PM[drawn.texts.to_pylist().index(text)])


@pytest.mark.parametrize("rows", [[3], [3, 3, 3]])
def test_the_only_document_with_pseudo_queries_is_asked_for_and_teaches(rows):
    ids = [f"d{row}" for row in range(5)]
    held, left = span_queries(spans(rows), ids, ids)
    assert len(held) == len(left) == len(rows)
    assert {name for grades in held.grades.values() for name in grades} == {"d3"}


def test_a_tenth_of_the_generated_queries_stands_for_dev():
    ids = [f"q{number}" for number in range(50)]
    vectors = np.arange(100.0, dtype=np.float32).reshape(50, 2)
    queries = Queries(ids, vectors, {name: {f"d{name}": 1} for name in ids}, [f"text of {name}" for name in ids])
    dev, learned = split_generated(queries)
    assert set(dev.ids) == {ids[row] for row in holdout_rows(ids)}
    assert sorted([*dev.ids, *learned.ids]) == sorted(ids)
    for part in (dev, learned):
        assert list(part.texts) == [f"text of {name}" for name in part.ids]
        assert part.grades == {name: {f"d{name}": 1} for name in part.ids}
        np.testing.assert_array_equal(part.vector_QM, vectors[[int(name[1:]) for name in part.ids]])
    one = split_generated(queries.some(np.arange(50) == 7))
    assert [list(part.ids) for part in one] == [["q7"], ["q7"]]
