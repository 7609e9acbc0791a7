"""What identifies a corpus, and what is wrong with its folder before anything is read."""

import hashlib
import platform

import pytest

from rayhier.spec import InputError
from rayhier.spec.corpus import Beir, PythonDocs
from rayhier.storage.source import describe


@pytest.fixture
def folder(tmp_path):
    """A BEIR folder of two documents and one judged query."""
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1"}\n\n{"_id": "2"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    return tmp_path


def look(folder):
    return describe(Beir(type="beir", path=str(folder)))


def test_a_folder(folder):
    found = look(folder)
    assert set(found.identity) == {"corpus.jsonl", "queries.jsonl", "qrels/test.tsv"}
    assert found.identity["queries.jsonl"] == hashlib.sha256(b'{"_id": "q"}\n').hexdigest()
    assert (found.documents, found.judged) == (2, frozenset({"test"}))
    assert found.bytes == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_content_identifies_it(folder):
    before = look(folder).identity
    (folder / "corpus.jsonl").write_text('{"_id": "1"}\n\n{"_id": "3"}\n')
    after = look(folder).identity
    assert {name for name in before if before[name] != after[name]} == {"corpus.jsonl"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "corpus.jsonl").unlink(), r"corpus\.jsonl is missing; allowed: a BEIR folder"),
        (lambda folder: (folder / "queries.jsonl").unlink(), r"queries\.jsonl is missing"),
        (lambda folder: (folder / "qrels" / "test.tsv").unlink(), r"qrels holds none of train\.tsv, dev\.tsv"),
        (lambda folder: (folder / "corpus.jsonl").write_text("\n \n"), r"corpus\.jsonl is empty"),
    ],
)
def test_refused(folder, damage, message):
    damage(folder)
    with pytest.raises(InputError, match=message):
        look(folder)


def test_no_such_folder(tmp_path):
    with pytest.raises(InputError, match="no such folder; allowed: a BEIR folder"):
        look(tmp_path / "absent")


def test_python_docs_are_the_pythons():
    assert describe(PythonDocs(type="python_docs")).identity == {"python": platform.python_version()}
