"""Batch searches of a file: formats, refused rows, and what may not be mixed."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.dataset.ranking import Ranking
from rayhier.search.__main__ import main
from rayhier.search.batch import job as batch
from rayhier.search.batch import query_files
from rayhier.search.batch.job import Job
from rayhier.search.batch.query_files import QueryFile
from rayhier.search.retrieve import Found
from rayhier.search.snapshot import Snapshot
from rayhier.spec import InputError

from ..serve.conftest import TEXTS, published, work

__all__ = ["published", "work"]  # fixtures
ASKED = {"k": 3, "beam": 4, "mode": None, "budget": None, "filter": None}


@pytest.fixture
def searcher(published):
    return Snapshot.open(published)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(query_files, "CHUNK", 4)
    monkeypatch.setattr(query_files, "DOCUMENTS", 20)


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(searcher, path, out, **asked):
    job = Job(QueryFile(path, searcher.rules), searcher.manifest, searcher.rules, out, ASKED | asked)
    return job.run(searcher)


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "queries.jsonl", [{"_id": f"q{n}", "text": text} for n, text in enumerate(TEXTS[:10])])


def wanted(searcher, **asked):
    return [[hit.id for hit in answer.hits] for answer in searcher.search(TEXTS[:10], k=3, beam=4, **asked)]


def test_every_format_has_every_query_once_in_order(searcher, file, tmp_path):
    for kind in batch.KINDS:
        answered, refused = run(searcher, file, tmp_path / f"out{kind}")
        assert (answered, refused.total) == (10, 0)
        assert not (tmp_path / f"out{kind}.parts").exists()
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["query_id"].to_pylist() == [f"q{n}" for n in range(10)]
    assert table["ids"].to_pylist() == wanted(searcher)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows == table.to_pylist()
    lines = [line.split() for line in (tmp_path / "out.trec").read_text().splitlines()]
    assert [line[2] for line in lines] == [name for names in wanted(searcher) for name in names]
    assert [line[3] for line in lines[:3]] == ["0", "1", "2"]


def test_texts_tabs_vectors_and_parquet_give_the_same_as_a_search(searcher, tmp_path):
    names, vectors = [f"q{n}" for n in range(10)], searcher.model.encode(TEXTS[:10]).numpy
    (tmp_path / "q.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in zip(names, TEXTS, strict=False)))
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    pq.write_table(pa.table({"query_id": names, "vector": column}), tmp_path / "q.parquet")
    mixed = [{"id": f"q{n}", **({"text": TEXTS[n]} if n % 2 else {"vector": vectors[n].tolist()})} for n in range(10)]
    written(tmp_path / "q.jsonl", mixed)
    for kind in ("tsv", "parquet", "jsonl"):
        where = {"year": {"gte": 1990}} if kind == "jsonl" else None
        run(searcher, tmp_path / f"q.{kind}", tmp_path / f"{kind}.parquet", filter=where)
        table = pq.read_table(tmp_path / f"{kind}.parquet")
        assert table["query_id"].to_pylist() == names
        assert table["ids"].to_pylist() == wanted(searcher, filter=where)


def test_broken_rows_are_counted_by_reason(searcher, tmp_path):
    rows = {
        b'{"_id": "a", "text": "oak"}': None,
        b"not json": "not JSON",
        b'{"_id": "b"}': "without a text or a vector",
        b'{"text": "elm"}': "without an id",
        b'{"_id": "a", "text": "elm"}': "id of an earlier row",
        b'{"_id": "c", "text": "  "}': "without words",
        b"\xff": "not UTF-8",
        b'{"_id": "d", "vector": [1, 2]}': f"with a vector that is not of {searcher.manifest.dimension} finite numbers",
        b"[1]": "not a JSON object",
        b'{"_id": 7, "text": "elm"}': None,
    }
    (tmp_path / "q.jsonl").write_bytes(b"\n".join(rows) + b"\n\n")
    answered, refused = run(searcher, tmp_path / "q.jsonl", tmp_path / "out.jsonl")
    assert answered == 2
    assert refused.counts == dict.fromkeys(filter(None, rows.values()), 1)
    assert "8 refused" in str(refused)
    assert "line 2: not JSON" in str(refused)


def test_parts_of_another_search_are_refused(searcher, file, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(batch, "_join", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(searcher, file, tmp_path / "out.parquet")
    with pytest.raises(InputError, match=r"out\.parquet\.parts: got another search \(request changed\)"):
        run(searcher, file, tmp_path / "out.parquet", k=5)
    file.write_text(file.read_text() + '{"_id": "new", "text": "oak"}\n')
    with pytest.raises(InputError, match=r"\(queries changed\)"):
        run(searcher, file, tmp_path / "out.parquet")
    for part in (tmp_path / "out.parquet.parts").glob("[0-9]*"):
        part.unlink()
    run(searcher, file, tmp_path / "out.parquet")  # nothing was done, so nothing is lost


def test_a_damaged_page_of_queries_is_named(searcher, tmp_path):
    file = tmp_path / "queries.parquet"
    texts = pa.table({"_id": [f"q{n}" for n in range(2_000)], "text": [f"oak {n}" for n in range(2_000)]})
    pq.write_table(texts, file, row_group_size=1_000)
    data = bytearray(file.read_bytes())
    begin = pq.read_metadata(file).row_group(1).column(1).data_page_offset
    data[begin : begin + 2_000] = b"\xff" * 2_000
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"queries\.parquet: cannot be read: "):
        run(searcher, file, tmp_path / "out.parquet")


def test_what_may_not_be_is_refused_before_anything_is_searched(searcher, file, tmp_path):
    (tmp_path / "there.jsonl").write_text("")
    (tmp_path / "broken.jsonl").write_text("x\n")
    pq.write_table(pa.table({"name": ["a"]}), tmp_path / "x.parquet")
    for queries, out, said in (
        (file.name, "there.jsonl", r"there\.jsonl exists"),
        (file.name, "x.csv", r"--out: got 'x\.csv'; allowed: a file that ends in \.parquet"),
        ("x.csv", "out.jsonl", r"--queries: got 'x\.csv'"),
        ("x.tsv", "out.jsonl", "no such file"),
        ("x.parquet", "out.jsonl", "got columns name; allowed: _id or id or query_id, and text or vector"),
        ("broken.jsonl", "other.jsonl", r": got no query: 1 refused \(1 not JSON\): line 1: not JSON"),
    ):
        with pytest.raises(InputError, match=said):
            run(searcher, tmp_path / queries, tmp_path / out)
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ("--queries FILE", "--queries: got no --out"),
        ("oak --queries FILE --out OUT", "--queries: got a query too"),
        ("--documents --queries FILE --out OUT", "--documents: got --queries too"),
        ("--out OUT", "--out, --plan: got a single query; allowed: with --queries or --documents"),
        ("--documents --out OUT --mode hybrid", "mode: got 'hybrid' with a vector, which has no words"),
        ('--documents --out OUT --filter {"month":1}', "month"),
    ],
)
def test_options_that_do_not_go_together(published, file, tmp_path, capsys, options, wrong):
    places = {"FILE": str(file), "OUT": str(tmp_path / "out.parquet")}
    assert main([str(published), *(places.get(option, option) for option in options.split())]) == 2
    assert wrong in capsys.readouterr().err
    assert not (tmp_path / "out.parquet.parts").exists()


@pytest.mark.parametrize("k", [1, 5, 200])
def test_neighbours_are_the_nearest_of_all_other_documents(published, searcher, tmp_path, k):
    """With every leaf visited, as products of all vectors say; a document in two leaves is asked for once."""
    out = tmp_path / "graph.parquet"
    assert main([str(published), "--documents", "--out", str(out), "-k", str(k), "--beam", "9"]) == 0
    rows = pq.read_table(out).to_pylist()
    vector_NM = searcher.model.encode(TEXTS).numpy
    score_NN = vector_NM @ vector_NM.T
    np.fill_diagonal(score_NN, -np.inf)
    assert sorted(row["query_id"] for row in rows) == sorted(f"d{n}" for n in range(len(TEXTS)))
    for row in rows:
        own = int(row["query_id"][1:])
        found = [int(name[1:]) for name in row["ids"]]
        assert own not in found
        assert len(set(found)) == len(found) == min(k, len(TEXTS) - 1)
        np.testing.assert_allclose(row["scores"], score_NN[own, found], atol=1e-5)
        np.testing.assert_allclose(row["scores"], np.sort(score_NN[own])[::-1][:k][: len(found)], atol=1e-5)


def test_a_passage_is_no_neighbour_of_its_own_document():
    documents = pa.table({"id": ["D1", "D2", "D1", "D3"]})
    row_QK = np.array([[0, 1, 3], [1, 2, -1], [3, 1, 0]])
    score_QK = np.where(row_QK < 0, -np.inf, np.array([0.9, 0.8, 0.7])).astype(np.float32)
    counts = np.zeros(3, np.int64)
    found = Found(Ranking(score_QK, row_QK, documents, counts, counts, counts), row_QK, [])
    table = batch._results(["D1#0", "D1#1", "D3#0"], found, 2, ["D1", "D1", "D3"])
    assert table["ids"].to_pylist() == [["D2", "D3"], ["D2"], ["D2", "D1"]]
    np.testing.assert_allclose(table["scores"].to_pylist()[0], [0.8, 0.7])
