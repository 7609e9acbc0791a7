"""The exported file in plain faiss: the same rows found in the same leaves, and nothing of ours needed to open it."""

import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest
from faiss.contrib import ivf_tools

from rayhier.index import change
from rayhier.index import export as exporting
from rayhier.index.export import export
from rayhier.model.encoded import Encoded
from rayhier.search.request.hits import answers
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.spec import InputError
from rayhier.storage.leaf_map import LeafMap

from .changes import FACTOR, batch
from .conftest import L, M, unit

K = 10


@pytest.fixture
def exported(made, tmp_path):
    change.upsert(made.root, made.assign, batch(["d004", "new"]), FACTOR)
    there = LeafMap.open(made.root)
    found = export(there, tmp_path / "out" / "index.faiss", 4)
    assert (found.rows, found.lists) == (there.manifest.rows, L)
    assert 0.5 < found.recall < 1
    assert export(there, tmp_path / "out" / "index.faiss", L).recall == 1
    rows = pq.read_table(tmp_path / "out" / "index.faiss.rows.parquet")
    return there, faiss.read_index(str(tmp_path / "out" / "index.faiss")), rows


def best(ids, scores):
    """Each id once, best first."""
    held = {}
    for name, score in zip(ids, scores, strict=True):
        held.setdefault(name, score)
    return list(held.items())[:K]


def test_our_probes_find_the_same_rows_which_say_where_they_lie(made, exported):
    there, index, rows = exported
    queries = unit(5, 30, M)
    leaves = made.assign.router.choose(Encoded(queries), 4)
    index.nprobe = 4
    scores, found = ivf_tools.search_preassigned(index, queries, 4 * K, leaves)
    ids = rows["id"].to_pylist()
    for ours, row, score in zip(
        answers(LeafScan.mapped(there).scan(queries, leaves, K), leaves, 1, K), found, scores, strict=True
    ):
        there_N = row >= 0
        theirs = best([ids[n] for n in row[there_N]], score[there_N].tolist())
        mine = [(hit.id, hit.score) for hit in ours.hits]
        assert [name for name, _ in mine] == [name for name, _ in theirs]
        np.testing.assert_allclose([one for _, one in mine], [one for _, one in theirs], atol=1e-6)
    assert rows["row"].to_pylist() == list(range(there.manifest.rows))
    for leaf in range(L):
        size = index.invlists.list_size(leaf)
        own = faiss.rev_swig_ptr(index.invlists.get_ids(leaf), size).tolist() if size else []
        assert {rows["leaf"][n].as_py() for n in own} <= {leaf}


def test_too_little_memory_is_said_before(made, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "available", lambda: 1)
    with pytest.raises(InputError, match=r"export: needs"):
        export(LeafMap.open(made.root), tmp_path / "index.faiss", 4)


def test_a_file_that_cannot_be_written_is_named(made, tmp_path, monkeypatch):
    def full(*_):
        raise RuntimeError("Error in void faiss::write_InvertedLists: failed: write error")

    monkeypatch.setattr(exporting.faiss, "write_index", full)
    with pytest.raises(OSError, match=r"cannot be written \(write error\)\. Is there space left\?.*index\.faiss"):
        export(LeafMap.open(made.root), tmp_path / "index.faiss", 4)
    assert not (tmp_path / "index.faiss").exists()
