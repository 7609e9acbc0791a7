"""What identifies a corpus, and what is wrong with its folder before anything is read."""

import hashlib

import pytest

from rayhier.spec import InputError
from rayhier.spec.corpus import Beir, HuggingFace, MsMarco, OwnFiles
from rayhier.storage import pair_source
from rayhier.storage.source import describe


@pytest.fixture
def folder(tmp_path):
    """A BEIR folder of two documents and one judged query."""
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1"}\n\n{"_id": "2"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "t"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    return tmp_path


def look(folder):
    return describe(Beir(type="beir", path=str(folder)))


JUDGED = "queries of train and dev"


def test_a_folder_is_its_content(folder):
    found = look(folder)
    assert set(found.identity) == {"corpus.jsonl", JUDGED}
    assert set(found.test_identity) == {"queries.jsonl", "qrels/test.tsv"}
    assert found.test_identity["queries.jsonl"] == hashlib.sha256(b'{"_id": "q", "text": "t"}\n').hexdigest()
    assert (found.documents, found.judged) == (2, frozenset({"test"}))
    assert found.bytes == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    (folder / "corpus.jsonl").write_text('{"_id": "1"}\n\n{"_id": "3"}\n')
    after = look(folder).identity
    assert {name for name in after if found.identity[name] != after[name]} == {"corpus.jsonl"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("corpus.jsonl", None, r"corpus\.jsonl is missing; allowed: a BEIR folder"),
        ("queries.jsonl", None, r"queries\.jsonl is missing; .*\. Documents alone are"),
        ("qrels/test.tsv", None, r"qrels holds none of train\.tsv, dev\.tsv"),
        ("corpus.jsonl", "\n \n", r"corpus\.jsonl has no document"),
    ],
)
def test_refused(folder, name, text, said):
    (folder / name).unlink() if text is None else (folder / name).write_text(text)
    with pytest.raises(InputError, match=said):
        look(folder)
    with pytest.raises(InputError, match="no such folder; allowed: a BEIR folder"):
        look(folder / "absent")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_files_in_folders_and_patterns(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "deep/c.jsonl", "notes.txt"):
        write(tmp_path / "mine" / name, f'{{"id": "{name}"}}\n\n{{"id": 2}}\n')
    queries = write(tmp_path / "queries.jsonl", '{"id": "q", "text": "t"}\n')
    judged = {split: write(tmp_path / split / "judged.tsv", f"{split}\n") for split in ("dev", "test")}
    found = describe(OwnFiles(type="jsonl", documents=str(tmp_path / "mine"), queries=queries, judgements=judged))
    assert list(found.identity) == ["documents/a.jsonl", "documents/b.jsonl", "judgements/dev/judged.tsv", JUDGED]
    assert list(found.test_identity) == ["queries/queries.jsonl", "judgements/test/judged.tsv"]
    assert found.test_identity["judgements/test/judged.tsv"] == hashlib.sha256(b"test\n").hexdigest()
    assert (found.documents, found.rows, found.judged) == (4, 4, frozenset({"dev", "test"}))
    deep = describe(OwnFiles(type="jsonl", documents=str(tmp_path / "mine" / "**" / "*.jsonl")))
    assert list(deep.identity) == ["documents/a.jsonl", "documents/b.jsonl", "documents/deep/c.jsonl"]
    assert deep.judged == frozenset()


@pytest.mark.parametrize(
    ("present", "files"),
    [
        (["train", "dev"], {"train": "train", "test": "dev"}),
        (["dev.small"], {"test": "dev.small"}),
        (["train", "dev.small", "test"], {"train": "train", "dev": "dev.small", "test": "test"}),
    ],
)
def test_dev_of_msmarco_is_test_where_there_is_no_other(tmp_path, present, files):
    write(tmp_path / "collection.tsv", "1\tx\n")
    for name in present:
        write(tmp_path / f"queries.{name}.tsv", f"{name}\n")
        write(tmp_path / f"qrels.{name}.tsv", f"{name}\n")
    found = describe(MsMarco(type="msmarco", path=str(tmp_path)))
    test = files["test"]
    trained = {f"qrels.{name}.tsv" for name in files.values() if name != test}
    assert set(found.identity) == {"collection.tsv", JUDGED, *trained}
    assert set(found.test_identity) == {f"qrels.{test}.tsv", *(f"queries.{name}.tsv" for name in files.values())}
    assert found.judged == frozenset(files)


def test_a_folder_of_the_hub_is_its_files(tmp_path):
    write(tmp_path / "set" / "corpus.jsonl", "x")
    write(tmp_path / "set" / ".cache" / "lock", "not read")
    write(tmp_path / "set-qrels" / "test.tsv", "y")
    found = describe(HuggingFace(type="huggingface", path=str(tmp_path / "set")))
    digests = {name: hashlib.sha256(text).hexdigest() for name, text in (("x", b"x"), ("y", b"y"))}
    assert found.identity == {"corpus.path/corpus.jsonl": digests["x"], "corpus.judgements/test.tsv": digests["y"]}


def test_a_commit_of_the_hub_identifies_itself():
    one, other = "0" * 40, "1" * 40
    spec = HuggingFace(type="huggingface", path=f"a/b@{one}", judgements=f"a/b-qrels@{other}")
    assert describe(spec).identity == {"a/b": one, "a/b-qrels": other}


def test_a_file_of_pairs_is_its_content(tmp_path):
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    for path in (one, other):
        path.write_text('{"query": "pine", "doc_id": "d1"}\n\n{}\n')
    found = pair_source.describe(str(one))
    assert found.lines == 2
    assert found.identity == pair_source.describe(str(other)).identity
    one.write_text("[]")
    assert found.identity != pair_source.describe(str(one)).identity
    one.write_text("\n \n")
    with pytest.raises(InputError, match=r"^train\.generated: .* is empty; allowed: "):
        pair_source.describe(str(one))
