"""`rayhier eval`: a published index measured with queries that its run never saw."""

import json

import ir_measures
import pytest

from rayhier.evaluate.__main__ import main
from rayhier.evaluate.files import read_queries
from rayhier.search.snapshot import Snapshot
from rayhier.spec import InputError
from rayhier.spec.corpus import ColumnNames

from ..serve.conftest import TEXTS, published, work

__all__ = ["published", "work"]  # fixtures
NUMBERS = range(0, 100, 9)


@pytest.fixture
def files(tmp_path):
    queries = [{"_id": f"q{n}", "text": TEXTS[n]} for n in NUMBERS]
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, [*queries, {"_id": "none", "text": "oak"}])))
    (tmp_path / "qrels").write_text("".join(f"q{n} 0 d{n} 1\n" for n in NUMBERS) + "other 0 d1 1\n")
    return ["--queries", str(tmp_path / "queries.jsonl"), "--judgements", str(tmp_path / "qrels")]


def test_a_table_of_the_index_and_exact_search(published, files, tmp_path, capsys):
    assert main([str(published), *files, "--trec", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{len(NUMBERS)} judged queries, 120 documents, version 1"
    rows = {line[:20].strip(): line[20:].split() for line in out[3:5]}
    run = ir_measures.read_trec_run(str(tmp_path / "run"))
    qrels = ir_measures.read_trec_qrels("".join(f"q{n} 0 d{n} 1\n" for n in NUMBERS))
    expected = ir_measures.calc_aggregate([ir_measures.parse_measure("nDCG@10")], qrels, run)
    assert float(rows["as searched"][0]) == pytest.approx(next(iter(expected.values())), abs=5e-4)
    assert rows["exact, same encoder"][-2] == "100.0%"
    assert float(rows["as searched"][0]) <= float(rows["exact, same encoder"][0])
    assert "1 queries have no judgements and were left out" in out
    assert f"1 judged queries are not among those of {files[1]} and were left out" in out
    assert main([str(published), *files, "--trec", str(tmp_path / "run"), "--beam", "1"]) == 0
    (expected,) = Snapshot.open(published).search([TEXTS[9]], 100, 1)
    lines = [line.split() for line in (tmp_path / "run").read_text().splitlines()]
    assert [line[2] for line in lines if line[0] == "q9"] == [hit.id for hit in expected.hits]


def test_another_search_is_compared_by_its_run(published, files, tmp_path, capsys):
    run = tmp_path / "other.run"
    run.write_text("".join(f"q{n} Q0 d{n} 1 {1 / 3} other\n" for n in NUMBERS if n))
    assert main([str(published), *files, "--compare", str(run)]) == 0
    out = capsys.readouterr().out.splitlines()
    (row,) = [line.split() for line in out if line.startswith("other.run")]
    ours, theirs = float(out[3][20:].split()[0]), 1 - 1 / len(NUMBERS)
    assert float(row[1]) == pytest.approx(theirs, abs=5e-4)
    (line,) = [line for line in out if line.startswith("nDCG@10 as searched minus other.run: ")]
    assert float(line.split()[5]) == pytest.approx(ours - theirs, abs=2e-3)
    assert f"judged queries that are not in {run}, and count as not found there: 1" in out
    run.write_text("q0 Q0 d%30 1 1 encoded\n")  # as `trec` writes ids with blanks
    assert main([str(published), *files, "--compare", str(run)]) == 0
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("other.run")]
    assert float(row[1]) > 0
    for text, said in (
        ("q0 Q0 d0 1 nan x\n", "wrong type"),
        ("q0 Q0 d0 1 2 x\nq0 Q0 d0 2 1 x\n", "q0 has d0 twice"),
        ("x Q0 d0 1 2 x\n", "none of the 12 judged queries is in it"),
    ):
        run.write_text(text)
        assert main([str(published), *files, "--compare", str(run)]) == 2
        assert said in capsys.readouterr().err
    run.write_text("q0 d0 1\n")
    assert main([str(published), *files, "--compare", str(run)]) == 2
    assert "line 1: wrong number of columns: 'q0 d0 1'" in capsys.readouterr().err


def test_answers_that_the_index_lacks_are_counted_and_all_of_them_refused(published, files, tmp_path, capsys):
    qrels = tmp_path / "qrels"
    qrels.write_text("q0 0 d0 1\nq0 0 x1 0\nq9 0 x2 1\n")
    assert main([str(published), *files]) == 0
    assert "1 of 2 answers are not in the index and count as not found" in capsys.readouterr().out.splitlines()
    qrels.write_text("q0 0 x0 1\nq9 0 d9 0\n")
    assert main([str(published), *files]) == 2
    assert "none of 1 answers is in the index (for instance 'x0'); allowed: " in capsys.readouterr().err


def test_queries_with_the_keys_of_the_spec(tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"qid": "q1", "question": "oak"}')
    assert read_queries(tmp_path / "mine.jsonl", ColumnNames(id="qid", text="question")) == {"q1": "oak"}
    (tmp_path / "mine.csv").write_text('qid,question\nq1,"oak, or\nash"\n')
    assert read_queries(tmp_path / "mine.csv", ColumnNames(id="qid", text="question")) == {"q1": "oak, or\nash"}
    (tmp_path / "mine.jsonl").write_text('{"key": "q1", "text": "oak"}')
    with pytest.raises(InputError, match=r"with qid or _id or id or query_id, and question or text"):
        read_queries(tmp_path / "mine.jsonl", ColumnNames(id="qid", text="question"))


def test_mistakes(published, files, tmp_path, capsys):
    (tmp_path / "bad").write_text("q1 d1\n")
    for arguments, said in (
        ([*files[:3], str(tmp_path / "bad")], "line 1: wrong number of columns"),
        ([*files, "--trec", str(tmp_path)], "allowed: a file in a folder that exists"),
        ([*files, "--mode", "sparse"], "mode: got 'sparse'; allowed: dense, bm25, hybrid"),
    ):
        assert main([str(published), *arguments]) == 2
        assert said in capsys.readouterr().err
    assert main([str(tmp_path), *files]) == 2
    assert "current.json: no such file" in capsys.readouterr().err
