"""Batch searches of a file: formats, refused rows, a command that was cut off, and what may not be mixed."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.search import batch
from rayhier.search.__main__ import main
from rayhier.search.batch import Job
from rayhier.search.query_files import QueryFile, Refused
from rayhier.search.searcher import Searcher
from rayhier.spec import InputError

from ..serve.conftest import TEXTS, published

__all__ = ["published"]  # fixture
ASKED = {"k": 3, "beam": 4, "mode": None, "budget": None, "filter": None}


@pytest.fixture
def searcher(published):
    return Searcher.open(published)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(batch, "CHUNK", 4)


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def job(searcher, path, out, **asked):
    return Job(searcher, QueryFile(path, searcher.rules), out, ASKED | asked)


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "queries.jsonl", [{"_id": f"q{n}", "text": text} for n, text in enumerate(TEXTS[:10])])


def wanted(searcher, **asked):
    return [[hit.id for hit in answer.hits] for answer in searcher.search(TEXTS[:10], k=3, beam=4, **asked)]


def test_every_format_has_every_query_once_in_order(searcher, file, tmp_path):
    for kind in batch.KINDS:
        answered, refused = job(searcher, file, tmp_path / f"out{kind}").run()
        assert (answered, refused.total) == (10, 0)
        assert not (tmp_path / f"out{kind}.parts").exists()
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["query_id"].to_pylist() == [f"q{n}" for n in range(10)]
    assert table["ids"].to_pylist() == wanted(searcher)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows == table.to_pylist()
    run = [line.split() for line in (tmp_path / "out.trec").read_text().splitlines()]
    assert [line[2] for line in run] == [name for names in wanted(searcher) for name in names]
    assert [line[3] for line in run[:3]] == ["0", "1", "2"]


def test_texts_tabs_vectors_and_parquet_give_the_same(searcher, tmp_path):
    vectors = searcher.model.encode(TEXTS[:10]).numpy
    (tmp_path / "q.tsv").write_text("".join(f"q{n}\t{text}\n" for n, text in enumerate(TEXTS[:10])))
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    pq.write_table(pa.table({"query_id": [f"q{n}" for n in range(10)], "vector": column}), tmp_path / "q.parquet")
    mixed = [{"id": f"q{n}", **({"text": TEXTS[n]} if n % 2 else {"vector": vectors[n].tolist()})} for n in range(10)]
    for path in (tmp_path / "q.tsv", tmp_path / "q.parquet", written(tmp_path / "q.jsonl", mixed)):
        job(searcher, path, tmp_path / f"{path.name}.parquet").run()
        table = pq.read_table(tmp_path / f"{path.name}.parquet")
        assert table["query_id"].to_pylist() == [f"q{n}" for n in range(10)]
        assert table["ids"].to_pylist() == wanted(searcher)


def test_filters_are_those_of_every_search(searcher, file, tmp_path):
    job(searcher, file, tmp_path / "out.parquet", filter={"year": {"gte": 1990}}).run()
    found = pq.read_table(tmp_path / "out.parquet")["ids"].to_pylist()
    assert found == wanted(searcher, filter={"year": {"gte": 1990}})
    assert all(int(name[1:]) >= 90 for names in found for name in names)


def test_broken_rows_are_counted_by_reason(searcher, tmp_path):
    path = tmp_path / "q.jsonl"
    rows = [
        b'{"_id": "a", "text": "oak"}',
        b"not json",
        b'{"_id": "b"}',
        b'{"text": "elm"}',
        b'{"_id": "a", "text": "elm"}',
    ]
    rows += [
        b'{"_id": "c", "text": "  "}',
        b"\xff",
        b'{"_id": "d", "vector": [1, 2]}',
        b"[1]",
        b'{"_id": 7, "text": "elm"}',
    ]
    path.write_bytes(b"\n".join(rows) + b"\n\n")
    answered, refused = job(searcher, path, tmp_path / "out.jsonl").run()
    assert answered == 2
    assert refused.counts == {
        "not JSON": 1,
        "without a text or a vector": 1,
        "without an id": 1,
        "id that came before": 1,
        "without words": 1,
        "not UTF-8": 1,
        f"with a vector that is not of {searcher.manifest.dimension} finite numbers": 1,
        "not a JSON object": 1,
    }
    assert "8 refused" in str(refused)
    assert "line 2: not JSON" in str(refused)


def test_vectors_of_another_length_are_refused(searcher):
    file, refused = QueryFile.__new__(QueryFile), Refused()
    file.__dict__.update(_rules=searcher.rules)
    long = (2 * np.eye(1, searcher.manifest.dimension)[0]).tolist()
    with pytest.raises(ValueError, match="not of length 1"):
        file._query({"id": "x", "vector": long})
    with pytest.raises(ValueError, match="no list of numbers"):
        file._query({"id": "x", "vector": "abc"})
    assert refused.total == 0


@pytest.mark.parametrize("cut", [1, 2])
def test_a_command_that_was_cut_off_goes_on(searcher, file, tmp_path, monkeypatch, cut):
    """Killed after so many chunks; those are not searched again, and no query is lost or answered twice."""
    work, chunks = job(searcher, file, tmp_path / "out.parquet"), []
    retrieve = Searcher.retrieve

    def failing(self, request, encoded=None):
        if len(chunks) == cut:
            raise KeyboardInterrupt
        chunks.append(len(request.queries))
        return retrieve(self, request, encoded)

    monkeypatch.setattr(Searcher, "retrieve", failing)
    with pytest.raises(KeyboardInterrupt):
        work.run()
    assert not work.out.exists()
    cut = 99
    assert work.run()[0] == 10
    assert sum(chunks) == 10
    table = pq.read_table(work.out)
    assert table["query_id"].to_pylist() == [f"q{n}" for n in range(10)]
    assert table["ids"].to_pylist() == wanted(searcher)


def begun(searcher, file, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(batch, "_join", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job(searcher, file, tmp_path / "out.parquet").run()


def test_parts_of_another_search_are_refused(searcher, file, tmp_path, monkeypatch):
    begun(searcher, file, tmp_path, monkeypatch)
    with pytest.raises(InputError, match=r"out\.parquet\.parts: holds parts of another search \(request changed\)"):
        job(searcher, file, tmp_path / "out.parquet", k=5).run()
    file.write_text(file.read_text() + '{"_id": "new", "text": "oak"}\n')
    with pytest.raises(InputError, match=r"\(queries changed\)"):
        job(searcher, file, tmp_path / "out.parquet").run()


def test_what_may_not_be_is_refused_before_anything_is_searched(searcher, file, tmp_path):
    (tmp_path / "there.jsonl").write_text("")
    with pytest.raises(InputError, match=r"there\.jsonl exists"):
        job(searcher, file, tmp_path / "there.jsonl").run()
    with pytest.raises(InputError, match=r"--out: got 'x\.csv'; allowed: a file that ends in \.parquet"):
        job(searcher, file, tmp_path / "x.csv").run()
    with pytest.raises(InputError, match=r"--queries: got 'x\.csv'"):
        QueryFile(tmp_path / "x.csv", searcher.rules)
    with pytest.raises(InputError, match="no such file"):
        QueryFile(tmp_path / "x.tsv", searcher.rules)
    pq.write_table(pa.table({"name": ["a"]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="got columns name; allowed: _id or id or query_id, and text or vector"):
        job(searcher, tmp_path / "x.parquet", tmp_path / "out.jsonl").run()
    (tmp_path / "broken.jsonl").write_text("x\n")
    with pytest.raises(InputError, match=r"no query; 1 refused \(1 not JSON\); line 1: not JSON"):
        job(searcher, tmp_path / "broken.jsonl", tmp_path / "other.jsonl").run()


def test_the_command(published, file, tmp_path, capsys):
    out = tmp_path / "out.parquet"
    assert main([str(published), "--queries", str(file), "--out", str(out), "-k", "3", "--beam", "4"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["queries"], summary["refused"]) == (10, {})
    assert pq.read_table(out).num_rows == 10
    assert main([str(published), "--queries", str(file)]) == 2
    assert "--queries, --out: got one of them" in capsys.readouterr().err
    assert main([str(published), "oak", "--queries", str(file), "--out", str(out)]) == 2
