"""Queries and judgements from a user's files: every format that is read, and the line that is wrong."""

import os

import pytest

from rayhier.evaluate.files import judged, read_judgements, read_queries
from rayhier.spec import InputError


@pytest.mark.parametrize(
    "text",
    [
        '{"_id": "q1", "text": "oak"}\n\n{"_id": "q2", "text": "elm"}\n',
        '{"id": "q1", "text": "oak", "more": 1}\n{"id": "q2", "text": "elm"}',
        "q1\toak\nq2\telm\n",
    ],
)
def test_queries(tmp_path, text):
    (tmp_path / "queries").write_text(text)
    assert read_queries(tmp_path / "queries") == {"q1": "oak", "q2": "elm"}


@pytest.mark.parametrize(
    "text",
    [
        "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td1\t2\n",
        "q1 0 d1 1\nq1 0 d2 0\nq2 0 d1 2\n",
        "q1\t0\td1\t1\nq1\t0\td2\t0\nq2\t0\td1\t2\n",
    ],
)
def test_judgements(tmp_path, text):
    (tmp_path / "qrels").write_text(text)
    assert read_judgements(tmp_path / "qrels") == {"q1": {"d1": 1, "d2": 0}, "q2": {"d1": 2}}


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (read_queries, "q1\toak\nq2", r"line 2: wrong number of columns: 'q2' \(1 of 2 rows"),
        (read_queries, "q1\toak\nq1\telm", "line 2: duplicate id: 'q1'"),
        (read_queries, '{"_id": "q1"}', "line 1: missing key of the text"),
        (read_queries, "\n", "holds no rows"),
        (read_judgements, "q1\td1\thigh", "line 1: wrong type"),
        (read_judgements, "q1 0 d1 1\nq1 0 d1 0", "q1 and d1 are judged twice; allowed: once"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path, read, text, said):
    (tmp_path / "file").write_text(text)
    with pytest.raises(InputError, match=said):
        read(tmp_path / "file")


def test_judged_queries_are_those_that_both_files_have_and_what_is_no_file_is_refused(tmp_path):
    queries = judged({"q1": "oak", "q2": "elm"}, {"q2": {"d1": 1}, "q3": {"d1": 1}})
    assert (queries.ids, queries.texts, queries.grades) == (["q2"], ["elm"], {"q2": {"d1": 1}})
    with pytest.raises(InputError, match="none of 1 judged queries is one of the 2 of --queries"):
        judged({"q1": "oak", "q2": "elm"}, {"q3": {"d1": 1}})
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("none", "cannot be read: No such file"), (".", "no file; allowed:"), ("pipe", "no file")):
        with pytest.raises(InputError, match=said):
            read_queries(tmp_path / name)
