"""CSV and TSV files of a user: quotes, several lines in a row, broken rows, typed fields."""

import pytest

from rayhier.spec import InputError
from rayhier.spec.corpus import OwnFiles
from rayhier.storage import source

from .conftest import documents, rows

DOCUMENTS = b"""\xef\xbb\xbfid;title;text;year;open
a;"Oak; ash";"says ""leaf""
and root";2001;true
b;elm;cr\xe8me;2002;false
c;fern;moss;soon;true
d;pine;cone
e;;bark;;
"""


@pytest.fixture
def section(tmp_path):
    (tmp_path / "trees.csv").write_bytes(DOCUMENTS)
    (tmp_path / "asked.tsv").write_text('id\ttext\nq1\twhich "tree\nq2\twhere to\n')
    (tmp_path / "train.tsv").write_text("q1\ta\t1\n")
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq2\te\t1\n")
    judgements = {split: str(tmp_path / f"{split}.tsv") for split in ("train", "test")}
    files = {"documents": str(tmp_path / "trees.csv"), "queries": str(tmp_path / "asked.tsv")}
    return {"type": "csv", **files, "judgements": judgements, "fields": {"year": "int", "open": "bool"}}


def test_rows_are_read_or_rejected_one_by_one(section, stage):
    made = stage(section)
    assert documents(made).to_pylist() == [
        {"doc_id": "a", "title": "Oak; ash", "text": 'says "leaf"\nand root', "year": 2001, "open": True},
        {"doc_id": "e", "title": "", "text": "bark", "year": None, "open": None},
    ]
    reasons = ["invalid UTF-8", "field of the wrong type", "wrong number of columns"]
    assert [row[2] for row in rows(made, "rejected.parquet")] == reasons
    assert rows(made, "queries.parquet") == [("q1", 'which "tree')]


def test_a_plan_counts_rows_and_knows_judged_queries_and_columns(section, tmp_path):
    described = source.describe(OwnFiles(**section))
    assert (described.documents, described.queries) == (5, 2)
    (tmp_path / "asked.tsv").write_text("id\ttext\nq1\twhich oak\nq2\twhere to\n")
    assert source.describe(OwnFiles(**section)).identity != described.identity
    with pytest.raises(InputError, match="'body' is missing in the first 5 rows, which have id, title, text, year"):
        source.describe(OwnFiles(**section, columns={"text": "body"}))
    section["fields"]["age"] = "int"
    with pytest.raises(InputError, match=r"'age' is missing in the first 5 rows.*; allowed: .* in corpus\.fields"):
        source.describe(OwnFiles(**section))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("id,text\n1,crème\n2,brûlée\n".encode("latin-1"), "documents: .*row 1 is not UTF-8; allowed: UTF-8"),
        ("id,text\n1,leaf\n".encode("utf-16"), "line 1: not UTF-8"),
        (b"id,text\n", r"trees\.csv has no document; allowed: a line of column names, then rows"),
        (b'id,text\n1,"a\nb"\n2,"oak\n3,ash\n', "row that begins in line 4 .*each quote closed"),
        (b'id,text\n1,"a\n2,"oak"\n', "row that begins in line 2 "),
    ],
)
def test_a_file_that_is_not_csv_is_refused(content, said, section, tmp_path):
    (tmp_path / "trees.csv").write_bytes(content)
    with pytest.raises(InputError, match=said):
        source.describe(OwnFiles(**section))
