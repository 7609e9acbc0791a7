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


@pytest.fixture(scope="module")
def index(published):
    with rayhier.open(str(published)) as opened:
        yield opened


def test_a_query_has_results_that_are_those_of_a_search(index, published):
    results = index.search(TEXTS[3], k=np.int64(4))
    (expected,) = Snapshot.open(published).search([TEXTS[3]], 4)
    assert [hit.id for hit in results] == [hit.id for hit in expected.hits]
    assert (len(results), results[0], results[1:3]) == (4, expected.hits[0], expected.hits[1:3])
    assert (results.query, results.answer) == (TEXTS[3], expected)
    few = index.search(TEXTS[0], k=5, filter={"year": {"lt": 1905}})
    assert {hit.fields["year"] for hit in few} == set(range(1900, 1905))


def test_several_queries_and_vectors(index):
    texts = TEXTS[:3]
    batch = index.search_batch(texts, k=2)
    assert [results.query for results in batch] == texts
    by_vector = index.search_batch(index.encode(texts), k=2)
    assert [[hit.id for hit in results] for results in by_vector] == [[hit.id for hit in results] for results in batch]
    assert [results.query for results in by_vector] == [None] * 3
    alone = index.search(index.encode(texts[0])[0].astype(np.float64), k=2)
    assert [hit.id for hit in alone] == [hit.id for hit in batch[0]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda index: index.search(None), "query: got NoneType"),
        (lambda index: index.search(["a"]), r"query: got \['a'\]"),
        (lambda index: index.search_batch([None]), "query: got None"),
        (lambda index: index.search("  "), "query: got no words"),
        (lambda index: index.search(np.ones(3)), "got 3 numbers"),
        (lambda index: index.search_batch("zip"), "queries: got text"),
        (lambda index: index.search_batch(np.ones((1, 2, 32))), r"got an array of shape \(1, 2, 32\)"),
        (lambda index: index.search("oak", k="5"), "k: got '5'"),
        (lambda index: index.search("oak", k=True), "k: got True"),
        (lambda index: index.search("oak", beam=1.5), "beam: got 1.5"),
        (lambda index: index.search("oak", filter=[1]), "filter: got list"),
        (lambda index: index.search("oak", rerank=True, budget=0), "budget: got 0 with rerank true"),
        (lambda index: index.document("none"), "id: got 'none'"),
        (lambda index: index.documents(limit=0), "limit: got 0"),
        (lambda index: index.documents(after=3), "after: got 3"),
    ],
)
def test_odd_input_is_refused_in_one_line(index, call, said):
    with pytest.raises(rayhier.InputError, match=rf"{said}.*; allowed: "):
        call(index)


def test_what_is_not_there(published, tmp_path):
    index = rayhier.open(published)
    index.close()
    with pytest.raises(ValueError, match="this index is closed"):
        index.search("oak")
    with pytest.raises(rayhier.InputError, match=r"no such file. Build an index with rayhier run"):
        rayhier.open(tmp_path)
    with pytest.raises(rayhier.InputError, match="no such file"):
        rayhier.run(tmp_path / "none.yaml")
    assert all(getattr(rayhier, name) is not None for name in rayhier.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'serach'; allowed: "):
        _ = rayhier.serach


def test_results_print_and_make_a_table_and_documents_are_read_by_their_ids(index):
    results = index.search(TEXTS[0], k=2)
    lines = str(results).splitlines()
    assert lines[0] == f"  1  {results[0].score:.4f}  {results[0].id}  {results[0].title}"
    assert lines[-1] == f"visited {results.answer.documents} documents ({results.answer.fraction:.1%})"
    table = results.to_pandas()
    assert list(table.columns) == ["id", "score", "leaf", "title", "text", "year"]
    assert table["id"].tolist() == [hit.id for hit in results]
    assert list(index.search(TEXTS[0], filter={"year": 1}).to_pandas().columns) == list(table.columns)[:5]
    document = index.document("d3")
    assert (document.text, document.passages, document.fields["year"]) == (TEXTS[3], None, 1903)
    assert [document.id for document in index.documents(limit=3)] == ["d0", "d1", "d10"]
    assert index.documents("d0", 1) == [index.document("d1")]


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


def test_changes_open_the_model_no_second_time_and_leave_few_files(work, monkeypatch):
    monkeypatch.setattr(pack, "WIDTH", 4)
    with rayhier.open(work) as index:
        before = index._searcher.model
        for n in range(9):
            index.add({"id": f"new{n}", "text": f"zebra {n}"})
            index.delete(f"d{n}")
        manifest = index._searcher.manifest
        assert index._searcher.model is before
        assert (len(index), len(manifest.shards) < 9, len(manifest.removed) < 9) == (N, True, True)
        assert {hit.id for hit in index.search("zebra", 9, mode="bm25")} == {f"new{n}" for n in range(9)}


def test_importing_it_imports_nothing_heavy():
    for module, heavy in (
        ("rayhier", {"torch", "ray", "numpy", "pydantic"}),
        ("rayhier.spec", {"torch", "ray", "numpy"}),
    ):
        said = f"import sys, {module}; print({heavy} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
        assert done.stdout == "set()\n"


def test_a_script_above_the_clone_imports_the_package(tmp_path):
    """Without a path entry, Python takes a folder of the package's name, such as a clone, for a namespace package."""
    (tmp_path / "rayhier").mkdir()
    subprocess.run([sys.executable, "-c", "import rayhier; rayhier.load"], cwd=tmp_path, check=True)
