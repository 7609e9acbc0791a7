"""A folder of text files: a document a file."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.corpus import row_checks
from rayhier.spec import InputError
from rayhier.spec.corpus import TextFiles
from rayhier.storage import listing, source

from .conftest import documents, rows


def write(folder, **texts):
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


@pytest.fixture
def notes(tmp_path):
    return write(
        tmp_path / "notes",
        apple_trees_dot_txt="Cut back to the second bud.",
        winter__pruning_dot_md="# When to prune\n\nIn frost-free weeks.\n",
        winter__heading_dot_md="# Only a heading\n",
        crème_dot_rst="\ufeffBrûlée.",
        figs_dot_csv="not,read",
        _dot_git__config_dot_txt="not read",
        blank_dot_txt=" \n",
        latin_dot_txt="Crème".encode("latin-1"),
    )


def test_each_file_is_a_document(notes, stage):
    made = stage({"type": "text", "path": str(notes)})
    assert documents(made).to_pylist() == [
        {"doc_id": "apple_trees.txt", "title": "apple trees", "text": "Cut back to the second bud."},
        {"doc_id": "crème.rst", "title": "crème", "text": "Brûlée."},
        {"doc_id": "winter/heading.md", "title": "heading", "text": "# Only a heading"},
        {"doc_id": "winter/pruning.md", "title": "When to prune", "text": "In frost-free weeks."},
    ]
    assert [row[2:] for row in rows(made, "rejected.parquet")] == [
        ("empty text", "blank.txt"),
        ("invalid UTF-8", "latin.txt"),
    ]


def test_links_and_large_files_are_rejected_and_not_read(tmp_path, stage, monkeypatch):
    monkeypatch.setattr(row_checks, "LONGEST_LINE", 100)
    notes = write(tmp_path / "notes", a_dot_txt="Oak.", c_dot_txt="Ash.", **{"a large one_dot_txt": "oak " * 100})
    write(tmp_path / "other", secret_dot_txt="Elm.")
    (notes / "b.txt").symlink_to(tmp_path / "other" / "secret.txt")
    (notes / "folder").symlink_to(tmp_path / "other")
    os.mkfifo(notes / "pipe.txt")  # no file, so nobody waits for what it says
    made = stage({"type": "text", "path": str(notes)})
    assert made.record.counts["documents"]["accepted"] == 2
    rejected = [("line too long", "a large one.txt"), ("symbolic link", "b.txt"), ("symbolic link", "folder")]
    assert [row[2:] for row in rows(made, "rejected.parquet")] == rejected


def test_the_source_is_what_the_files_hold(notes):
    spec = TextFiles(type="text", path=str(notes))
    before = source.describe(spec)
    assert (before.documents, before.rows, before.judged) == (6, 6, frozenset())
    read = [path for path in notes.rglob("*.*") if path.suffix in listing.SUFFIXES and path.parent.name != ".git"]
    assert before.bytes == sum(path.stat().st_size for path in read)
    (notes / "figs.csv").write_text("other")
    assert source.describe(spec) == before
    (notes / "apple_trees.txt").rename(notes / "apples.txt")
    renamed = source.describe(spec)
    assert renamed.identity != before.identity
    (notes / "apples.txt").write_text("Cut back to the third bud.")
    assert source.describe(spec).identity != renamed.identity


def test_questions_about_texts_may_be_in_any_format(notes, tmp_path, stage):
    pq.write_table(pa.table({"id": [0], "text": ["when"]}), tmp_path / "asked-0.parquet")
    (tmp_path / "asked-1.csv").write_text("id,text\nq1,where\n")
    (tmp_path / "asked-2.jsonl").write_text('{"id": "q2", "text": "what"}\n')
    judged = {"query-id": [0], "corpus-id": ["winter/pruning.md"], "score": [1]}
    pq.write_table(pa.table(judged), tmp_path / "dev.parquet")
    (tmp_path / "train.csv").write_text("score,query-id,corpus-id\n1,q1,apple_trees.txt\n1,q1,figs.csv\n")
    (tmp_path / "test.qrels").write_text("q2 0 crème.rst 1\n")
    files = {"dev": "dev.parquet", "train": "train.csv", "test": "test.qrels"}
    section = {
        "type": "text",
        "path": str(notes),
        "queries": str(tmp_path / "asked-*"),
        "judgements": {split: str(tmp_path / name) for split, name in files.items()},
    }
    made = stage(section)
    assert sorted(rows(made, "queries.parquet")) == [("0", "when"), ("q1", "where")]
    assert made.record.counts["judgements"]["train"]["rejected"] == {"unknown document": 1}
    assert {split: made.record.counts["splits"][split]["relevant"] for split in ("train", "dev")} == {
        "train": 1,
        "dev": 1,
    }
    before = source.describe(TextFiles(**section))
    assert (before.queries, before.judged) == (3, {"train", "dev", "test"})
    (tmp_path / "asked-2.jsonl").write_text('{"id": "q2", "text": "which"}\n')
    after = source.describe(TextFiles(**section))
    assert (after.identity, after.test_identity == before.test_identity) == (before.identity, False)


def test_passages_are_counted_from_the_words_of_files(tmp_path):
    notes = write(tmp_path / "notes", a_dot_txt="oak", b_dot_txt="leaves " * 500)
    described = source.describe(TextFiles(type="text", path=str(notes), passages={"words": 200, "stride": 150}))
    assert (described.documents, described.rows) == (2, 4)


def test_what_is_no_folder_of_texts_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"corpus\.path: got .*no such folder; allowed: a folder of text files"):
        source.describe(TextFiles(type="text", path=str(tmp_path / "nothing")))
    with pytest.raises(InputError, match=r"holds no \*\.txt, \*\.md, \*\.rst; allowed: a folder"):
        source.describe(TextFiles(type="text", path=str(tmp_path)))
