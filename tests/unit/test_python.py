"""The Python interface over a small published index."""

import json
import subprocess
import sys

import numpy as np
import pytest

import rayhier
from rayhier.index import pack
from rayhier.search.snapshot import Snapshot

from .serve.conftest import TEXTS, N, published, work

__all__ = ["published", "work"]  # fixtures


@pytest.fixture
def index(published):
    with rayhier.open(str(published)) as opened:
        yield opened


def test_a_query_has_results_that_are_those_of_a_search(index, published):
    results = index.search(TEXTS[3], k=4)
    (expected,) = Snapshot.open(published).search([TEXTS[3]], 4)
    assert [hit.id for hit in results] == [hit.id for hit in expected.hits]
    assert (len(results), results[0], results[1:3]) == (4, expected.hits[0], expected.hits[1:3])
    assert (results.query, results.answer) == (TEXTS[3], expected)


def test_several_queries_vectors_and_a_filter(index):
    texts = TEXTS[:3]
    batch = index.search_batch(texts, k=2)
    assert [results.query for results in batch] == texts
    by_vector = index.search_batch(index.encode(texts), k=2)
    assert [[hit.id for hit in results] for results in by_vector] == [[hit.id for hit in results] for results in batch]
    assert [results.query for results in by_vector] == [None] * 3
    alone = index.search(index.encode(texts[0])[0].astype(np.float64), k=2)
    assert [hit.id for hit in alone] == [hit.id for hit in batch[0]]
    results = index.search(TEXTS[0], k=5, filter={"year": {"lt": 1905}})
    assert {hit.fields["year"] for hit in results} == set(range(1900, 1905))


def test_odd_input_is_refused_in_one_line(index):
    assert len(index.search("oak", k=np.int64(2))) == 2
    for call, said in (
        (lambda: index.search(None), "query: got NoneType; allowed: a text, or a vector"),
        (lambda: index.search(b"zip"), "query: got bytes; allowed: a text, or a vector"),
        (lambda: index.search(np.ones((2, 32))), "query: got ndarray; allowed: a text, or a vector"),
        (lambda: index.search(["a"]), r"query: got \['a'\]; allowed: a text, or a vector"),
        (lambda: index.search("  "), "query: got no words"),
        (lambda: index.search(np.ones(3)), "got 3 numbers; allowed: 32, the index's dimension"),
        (lambda: index.search(np.full(32, np.nan)), "allowed: finite numbers"),
        (lambda: index.search_batch("zip"), "queries: got text; allowed: a list of texts"),
        (lambda: index.search_batch([None]), "query: got None; allowed: a text"),
        (lambda: index.search_batch(np.ones((1, 2, 32))), r"got an array of shape \(1, 2, 32\); allowed: finite"),
        (lambda: index.search("oak", k="5"), "k: got '5'; allowed: a whole number"),
        (lambda: index.search("oak", k=True), "k: got True; allowed: a whole number"),
        (lambda: index.search("oak", k=0), "k: got 0; allowed: 1 to 1000000"),
        (lambda: index.search("oak", k=10**9), "k: got 1000000000; allowed: 1 to 1000000"),
        (lambda: index.search("oak", beam=1.5), "beam: got 1.5; allowed: a whole number"),
        (lambda: index.search("oak", mode="sparse"), "mode: got 'sparse'; allowed: dense, bm25, hybrid"),
        (lambda: index.search("oak", filter=[1]), "filter: got list; allowed: an object"),
        (lambda: index.search("oak", filter={"yeer": 1}), r"filter\.yeer: got no declared field"),
        (lambda: index.search("oak", budget=3), "budget: this index has no cross-encoder"),
        (lambda: index.search("oak", rerank=True, budget=0), "budget: got 0 with rerank true"),
        (lambda: index.document("none"), "id: got 'none'; allowed: the id of a document"),
        (lambda: index.documents(limit=0), "limit: got 0; allowed: a whole number, 1 or more"),
        (lambda: index.documents(limit="a"), "limit: got 'a'; allowed: a whole number, 1 or more"),
        (lambda: index.documents(after=3), "after: got 3; allowed: an id, text in UTF-8"),
    ):
        with pytest.raises(rayhier.InputError, match=said) as refused:
            call()
        assert "\n" not in str(refused.value)


def test_a_closed_index_answers_no_more(published):
    index = rayhier.open(published)
    index.close()
    with pytest.raises(ValueError, match="this index is closed"):
        index.search("oak")


def test_results_print_and_make_a_table(index):
    results = index.search(TEXTS[0], k=2)
    lines = str(results).splitlines()
    assert lines[0] == f"  1  {results[0].score:.4f}  {results[0].id}  {results[0].title}"
    assert lines[-1] == f"visited {results.answer.documents} documents ({results.answer.fraction:.1%})"
    table = results.to_pandas()
    assert list(table.columns) == ["id", "score", "leaf", "title", "text", "year"]
    assert table["id"].tolist() == [hit.id for hit in results]
    assert list(index.search(TEXTS[0], filter={"year": 1}).to_pandas().columns) == list(table.columns)[:5]


def test_documents_come_and_go(work, tmp_path):
    new = [{"id": "new-1", "title": "t", "text": "a comet of ice", "year": 7}]
    with rayhier.open(work) as index:
        assert (index.version, len(index)) == (1, N)
        assert index.add(new) == index.version == 2
        assert index.search("a comet of ice", k=1)[0].id == "new-1"
        with pytest.raises(rayhier.InputError, match="new-1"):
            index.add(new)
        file = tmp_path / "more.jsonl"
        file.write_text(json.dumps({**new[0], "text": "a comet of dust"}))
        assert index.add(file, upsert=True) == 3
        assert len(index) == N + 1
        assert index.delete("new-1") == 4
        assert len(index) == N
        with pytest.raises(rayhier.InputError, match="new-1"):
            index.delete(["new-1"])
        assert repr(index) == f"Index({str(work)!r}, version=4, documents={N})"


def test_many_changes_leave_few_files_and_open_the_model_once(work, monkeypatch):
    monkeypatch.setattr(pack, "WIDTH", 4)
    with rayhier.open(work) as index:
        before = index._searcher.model
        for n in range(9):
            index.add({"id": f"new{n}", "text": f"zebra {n}"})
            index.delete(f"d{n}")
        assert index._searcher.model is before
        assert len(index._searcher.manifest.shards) < 9
        assert len(index._searcher.manifest.removed) < 9
        assert {hit.id for hit in index.search("zebra", 9, mode="bm25")} == {f"new{n}" for n in range(9)}
        assert len(index) == N


def test_where_no_index_is_and_run_is_a_module_that_can_be_called(tmp_path):
    with pytest.raises(rayhier.InputError, match="no such file; build an index with rayhier run"):
        rayhier.open(tmp_path)
    from rayhier import run

    assert run is rayhier.run
    assert callable(run.main)
    with pytest.raises(rayhier.InputError, match="no such file"):
        rayhier.run(tmp_path / "none.yaml")


def test_public_names():
    assert len(rayhier.__all__) <= 12
    assert all(getattr(rayhier, name) is not None for name in rayhier.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'serach'; public names: "):
        _ = rayhier.serach


def test_importing_it_imports_nothing_heavy():
    said = "import sys, rayhier; print([m for m in ('torch', 'ray', 'numpy', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_documents_are_read_by_their_ids(index):
    document = index.document("d3")
    assert (document.text, document.passages) == (TEXTS[3], None)
    assert document.fields["year"] == 1903
    assert [document.id for document in index.documents(limit=3)] == ["d0", "d1", "d10"]
    assert index.documents("d0", 1) == [index.document("d1")]
