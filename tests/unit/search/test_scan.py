"""Searching a leaf map that lies in mapped files: its versions, its cache, and files that are not as published."""

import gc
import shutil
import weakref

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import opened
from rayhier.search.request.hits import answers
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.spec import InputError
from rayhier.spec.filter import OneOf
from rayhier.storage import parquet, schemas
from rayhier.storage.leaf_map import LeafMap

from ...draws import unit
from ...toys import job

N, M, L, Q, K, BEAM = 6000, 32, 24, 20, 10, 6


def scan(leaves, query_QM, leaves_QB, k):
    return answers(leaves.scan(query_QM, leaves_QB, k), leaves_QB, 1, k)


def documents(ids):
    return pa.table([ids, [f"title {n}" for n in ids], [f"text {n}" for n in ids]], schema=schemas.DOCUMENTS)


IDS = [f"d{n:04d}" for n in range(N)]


@pytest.fixture(scope="module")
def assign():
    router = LearnedIvfRouter(M, L, 0)
    router.begin(torch.from_numpy(unit(1, L, M)))
    router.cells.border.fill_(0.1)
    spec = job(router={"type": "learned_ivf"}, index={"leaves_per_document": 2})
    return Assigner(opened(router), spec)


@pytest.fixture(scope="module")
def table(assign):
    return assign(documents(IDS), Encoded(unit(0, N, M)))


@pytest.fixture
def root(table, tmp_path, write_map, monkeypatch):
    """Three shards, and a cache of the test's own."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    write_map(tmp_path / "map", table, L, 3, leaves_per_document=2)
    return tmp_path / "map"


@pytest.fixture(scope="module")
def asked(assign):
    query = unit(2, Q, M)
    return query, assign.router.choose(Encoded(query), BEAM)


def test_500_results_come_where_there_are_500(tmp_path, write_map, monkeypatch):
    """Also of float32 vectors of 8 positive numbers, of which many have the same codes, and for a query of zeros."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    router = LearnedIvfRouter(8, 4, 0)
    router.begin(torch.from_numpy(np.abs(unit(4, 4, 8))))
    spec = job(router={"type": "learned_ivf"}, index={"leaves_per_document": 1, "vectors": "float32"})
    table = Assigner(opened(router), spec)(documents(IDS[:2100]), Encoded(np.abs(unit(3, 2100, 8))))
    write_map(tmp_path / "map", table, 4, 1)
    queries, leaves = np.concatenate([unit(2, 20, 8), np.zeros((1, 8), np.float32)]), np.tile(np.arange(4), (21, 1))
    for beam in (1, 2, 4):
        for k in (500, 2100):
            found = scan(LeafScan.mapped(LeafMap.open(tmp_path / "map")), queries, leaves[:, :beam], k)
            assert [len({hit.id for hit in part.hits}) for part in found] == [min(k, part.documents) for part in found]


def test_versions_that_are_open_together_find_their_own_rows(root, assign, asked):
    """Versions share the files of segments. Removed rows change those of later versions."""
    change.add(root, assign, [(documents([f"n{n}" for n in range(1_500)]), Encoded(unit(5, 1_500, M)))], 4)
    change.delete(root, IDS[:900])
    versions = {number: LeafMap.open(root, number) for number in (1, 2, 3)}
    alone = {number: scan(LeafScan.mapped(there), *asked, K) for number, there in versions.items()}
    opened = {number: LeafScan.mapped(versions[number]) for number in (3, 1, 2)}
    for number in (3, 1, 2, 3):
        for found, wanted in zip(scan(opened[number], *asked, K), alone[number], strict=True):
            assert [hit.id for hit in found.hits] == [hit.id for hit in wanted.hits]
            assert [hit.score for hit in found.hits] == pytest.approx([hit.score for hit in wanted.hits], abs=1e-6)
            assert (found.documents, found.scored) == (wanted.documents, wanted.scored)
    shared = [one.folder == other.folder for one, other in zip(opened[1].segments, opened[2].segments, strict=False)]
    assert all(shared)


@pytest.mark.parametrize("name", ["codes.npy", "rows.arrow", "vectors.npy", "about.json"])
def test_what_was_made_once_is_kept_and_made_again_where_it_was_cut_short(root, asked, tmp_path, name):
    first = scan(LeafScan.mapped(LeafMap.open(root)), *asked, K)
    for path in (tmp_path / "cache").rglob(name):
        path.write_bytes(path.read_bytes()[:-7])
    assert scan(LeafScan.mapped(LeafMap.open(root)), *asked, K) == first
    shutil.rmtree(root / "data")
    assert scan(LeafScan.mapped(LeafMap.open(root)), *asked, K) == first


def test_another_file_on_storage_is_named_and_nothing_kept(root, asked, tmp_path):
    """It can be read, and lacks a row."""
    name = LeafMap.open(root).manifest.shards[0].file.name
    rows = parquet.read(root / name)
    parquet.write(root, name, [rows.slice(1)], rows.schema)
    for _ in range(2):
        with pytest.raises(InputError, match=r"data/0\.parquet: .* published"):
            LeafScan.mapped(LeafMap.open(root)).open()
    assert not list((tmp_path / "cache" / "lists").glob("*"))


def test_a_cache_that_cannot_be_written_is_named(root, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"file.*RAYHIER_CACHE"):
        LeafScan.mapped(LeafMap.open(root)).open()


def test_what_is_mapped_outlives_a_full_cache(root, asked, tmp_path):
    """A version with other rows fills it: the one that is open goes on."""
    scanned = LeafScan.mapped(LeafMap.open(root))
    scanned.open()
    mapped = set((tmp_path / "cache" / "lists").iterdir())
    change.delete(root, IDS[::100])
    LeafScan.mapped(LeafMap.open(root), cache_bytes=1).open()
    assert mapped < set((tmp_path / "cache" / "lists").iterdir())
    assert scan(scanned, *asked, K)[0].hits


def test_a_scan_that_was_filtered_goes_without_the_collector(root, asked):
    """A server leaves what is alive at its start out of collections: a cycle would keep a version's files for good."""
    query, leaves = asked
    filtered = LeafScan.mapped(LeafMap.open(root))
    assert scan(filtered, query, leaves, K)
    filtered.scan(query, leaves, K, OneOf("doc_id", ("d0001",)))
    alive = weakref.ref(filtered)
    gc.disable()
    try:
        del filtered
        assert alive() is None
    finally:
        gc.enable()
