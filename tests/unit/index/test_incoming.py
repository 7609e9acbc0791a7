"""Files of documents to add: refused as a whole, and by row, before anything is encoded."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.index.incoming import batches
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError

from ...toys import job

CORPUS = job(corpus={"type": "jsonl", "documents": "nowhere.jsonl"}, router={"type": "ehi"}).corpus


def read(path, encode=None, **options):
    return list(batches(path, CORPUS, None, encode or pytest.fail, **options))


def test_a_row_that_the_corpus_would_not_accept_is_named_and_none_is_encoded(tmp_path):
    path = tmp_path / "more.jsonl"
    path.write_text('{"id": "a", "text": "x"}\n{"id": "b"}\n{"text": "x"}\n')
    with pytest.raises(InputError, match=r"row 2: empty text; row 3: missing id; allowed: .*\. Nothing was changed"):
        read(path, size=1)


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        ([[0.6, 0.8], [0.6, 1.8]], "got 1 of 2 with other lengths than 1, such as 1.897"),
        ([[0.6, 0.8], [1.0]], r"vectors of \[1, 2\] numbers, 0 rows without"),
        (["x", "y"], "vector: got string; allowed: lists of numbers"),
        ([[[1.0]], [[2.0]]], "vector: got lists of lists; allowed: lists of numbers"),
        ([[1.0, None], [1.0, 2.0]], "vector: got null in a list; allowed: lists of numbers"),
    ],
)
def test_vectors_that_cannot_be_searched_are_refused(tmp_path, vectors, said):
    pq.write_table(pa.table({"id": ["a", "b"], "text": ["x", "y"], "vector": vectors}), tmp_path / "more.parquet")
    with pytest.raises(InputError, match=said):
        read(tmp_path / "more.parquet", unit=True)


def test_a_file_is_read_in_batches(tmp_path):
    lines = [f'{{"id": "d{n}", "text": "text {n}"}}' for n in range(7)]
    (tmp_path / "more.jsonl").write_text("\n\n".join(lines) + "\n")

    def encode(texts):
        return Encoded(np.array([[len(text)] for text in texts], np.float32))

    made = read(tmp_path / "more.jsonl", encode, size=4)
    assert [name for table, _ in made for name in table["doc_id"].to_pylist()] == [f"d{n}" for n in range(7)]
    vectors = np.eye(7, 3).tolist()
    table = pa.table({"id": [f"d{n}" for n in range(7)], "text": ["x"] * 7, "vector": vectors})
    pq.write_table(table, tmp_path / "more.parquet", row_group_size=3)
    made = read(tmp_path / "more.parquet", size=4)
    assert np.concatenate([encoded.numpy for _, encoded in made]).tolist() == vectors
    assert sum(len(table) for table, _ in made) == 7


def test_a_csv_file_is_read_like_lines(tmp_path):
    (tmp_path / "more.csv").write_text('id,text\na,"oak, ash"\n')
    ((table, _),) = read(tmp_path / "more.csv", lambda texts: Encoded(np.ones((len(texts), 2), np.float32)))
    assert table.select(["doc_id", "text"]).to_pylist() == [{"doc_id": "a", "text": "oak, ash"}]
