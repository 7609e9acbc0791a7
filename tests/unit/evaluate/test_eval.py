"""`rayhier eval`: a published index measured with queries that its run never saw."""

import json

import ir_measures
import pytest

from rayhier.evaluate.__main__ import main
from rayhier.search.searcher import Searcher

from ..serve.conftest import TEXTS, damageable, published

__all__ = ["damageable", "published"]  # fixtures
NUMBERS = range(0, 100, 9)


@pytest.fixture
def files(tmp_path):
    """Each query is a document's text; its answer is that document."""
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


def test_a_beam_and_a_run_as_searches_give_them(published, files, tmp_path):
    assert main([str(published), *files, "--trec", str(tmp_path / "run"), "--beam", "1"]) == 0
    (expected,) = Searcher.open(published).search([TEXTS[9]], 100, 1)
    lines = [line.split() for line in (tmp_path / "run").read_text().splitlines()]
    assert [line[2] for line in lines if line[0] == "q9"] == [hit.id for hit in expected.hits]


def test_mistakes(published, files, tmp_path, capsys):
    (tmp_path / "bad").write_text("q1 d1\n")
    for arguments, said in (
        ([*files[:3], str(tmp_path / "bad")], "line 1: wrong number of columns"),
        ([*files[:3], str(tmp_path / "none")], "cannot be read: No such file"),
        ([*files, "--mode", "bm25"], "mode: got 'bm25'; allowed: dense"),
    ):
        assert main([str(published), *arguments]) == 2
        assert said in capsys.readouterr().err
    assert main([str(tmp_path), *files]) == 2
    assert "current.json: no such file" in capsys.readouterr().err
