"""Files of documents to add: refused as a whole, and by row, before anything is encoded."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.index.incoming import batches
from rayhier.spec import InputError, JobSpec

from .conftest import LEAST

CORPUS = JobSpec.model_validate(
    {**LEAST, "corpus": {"type": "jsonl", "documents": "nowhere.jsonl"}, "router": {"type": "ehi"}}
).corpus


def read(path, encode=None, **options):
    return list(batches(path, CORPUS, None, encode or pytest.fail, **options))


def test_a_row_that_the_corpus_would_not_accept_is_named_and_none_is_encoded(tmp_path):
    path = tmp_path / "more.jsonl"
    path.write_text('{"id": "a", "text": "x"}\n{"id": "b"}\n{"text": "x"}\n')
    with pytest.raises(InputError, match=r"row 2: empty text; row 3: missing id; allowed: .*nothing was changed"):
        read(path, size=1)


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        ([[0.6, 0.8], [0.6, 1.8]], "1 of 2 are not of length 1, the first of 1.897"),
        ([[0.6, 0.8], [1.0]], r"vectors of \[1, 2\] numbers, 0 rows without"),
        ([[0.6, 0.8], None], r"vectors of \[2\] numbers, 1 rows without"),
    ],
)
def test_vectors_that_cannot_be_searched_are_refused(tmp_path, vectors, said):
    pq.write_table(pa.table({"id": ["a", "b"], "text": ["x", "y"], "vector": vectors}), tmp_path / "more.parquet")
    with pytest.raises(InputError, match=said):
        read(tmp_path / "more.parquet", unit=True)


def test_vectors_that_a_file_brings_are_taken_as_they_are(tmp_path):
    vectors = [[0.5, 1.0], [3.0, 0.0]]
    pq.write_table(pa.table({"id": ["a", "b"], "text": ["x", "y"], "vector": vectors}), tmp_path / "more.parquet")
    ((table, found),) = read(tmp_path / "more.parquet")
    assert (table["doc_id"].to_pylist(), found.numpy.tolist()) == (["a", "b"], vectors)
