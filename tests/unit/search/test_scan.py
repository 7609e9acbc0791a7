"""Searching a leaf map that lies in mapped files, against sums written out by hand."""

import errno
import gc
import shutil
import weakref
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.dataset.ranking import merge
from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import route_all
from rayhier.search.request.hits import Hit, answers
from rayhier.search.retrieve import Exact
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.spec import InputError
from rayhier.spec.filter import OneOf
from rayhier.storage import parquet, schemas
from rayhier.storage.leaf_map import LeafMap

from ...draws import unit
from ...toys import job

N, M, L, Q, K, BEAM = 6000, 32, 24, 20, 10, 6
FOUND = 0.95
"""Least share of the ten best that codes keep, with random directions: the hardest there are to code."""


@dataclass(frozen=True)
class Part:
    """Hits of one query and what they cost."""

    hits: list[Hit]
    visited: int
    scanned: int


def scan(leaves, query_QM, leaves_QB, k):
    """Hits, documents visited and rows scanned of each query."""
    ranking = leaves.scan(query_QM, leaves_QB, k)
    counts = zip(ranking.visited_Q.tolist(), ranking.scanned_Q.tolist(), strict=True)
    found = answers(ranking, leaves_QB, 1, k)
    return [Part(answer.hits, *own) for answer, own in zip(found, counts, strict=True)]


def documents(ids):
    return pa.table([ids, [f"title {n}" for n in ids], [f"text {n}" for n in ids]], schema=schemas.DOCUMENTS)


IDS = [f"d{n:04d}" for n in range(N)]


@pytest.fixture(scope="module")
def vectors():
    """Round vectors as float16 stores them."""
    return unit(0, N, M).astype(np.float16).astype(np.float32)


@pytest.fixture(scope="module")
def assign():
    router = LearnedIvfRouter(M, L, 0)
    router.begin(torch.from_numpy(unit(1, L, M)))
    router.cells.border.fill_(0.1)
    spec = job(router={"type": "learned_ivf"}, index={"leaves_per_document": 2})
    return Assigner(router.requires_grad_(requires_grad=False), spec)


@pytest.fixture(scope="module")
def table(assign, vectors):
    return assign(documents(IDS), Encoded(vectors))


@pytest.fixture
def root(table, tmp_path, write_map, monkeypatch):
    """Three shards, and a cache of the test's own."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    write_map(tmp_path / "map", table, L, 3, leaves_per_document=2)
    return tmp_path / "map"


@pytest.fixture(scope="module")
def asked(assign):
    query = unit(2, Q, M)
    return query, route_all(assign.router, Encoded(query), BEAM)[0].numpy()


def by_hand(table, vectors, query, leaves, k):
    """Ids and scores of the best, and how many documents lie in the leaves."""
    inside = np.isin(table["leaf"].to_numpy(), leaves)
    rows = sorted({int(name[1:]) for name, own in zip(table["doc_id"].to_pylist(), inside, strict=True) if own})
    scores = vectors[rows] @ query
    order = np.argsort(-scores, kind="stable")[:k]
    return [IDS[rows[place]] for place in order], scores[order], len(rows)


@pytest.mark.parametrize("listed", [None, lambda _: N], ids=["codes first", "all by their vectors"])
def test_scores_are_those_of_the_stored_vectors(root, table, vectors, asked, listed):
    query, leaves = asked
    found, right = scan(LeafScan.mapped(LeafMap.open(root), listed=listed), query, leaves, K), 0
    for part, own, probed in zip(found, query, leaves, strict=True):
        ids, scores, documents = by_hand(table, vectors, own, probed, K)
        assert part.visited == part.scanned == documents
        for hit in part.hits:
            assert hit.score == pytest.approx(vectors[int(hit.id[1:])] @ own, abs=1e-5)
            assert hit.title == f"title {hit.id}"
            assert hit.leaf in probed
        assert len({hit.id for hit in part.hits}) == K
        right += len({hit.id for hit in part.hits} & set(ids))
        if listed is not None:
            np.testing.assert_allclose([hit.score for hit in part.hits], scores, atol=1e-6)
    assert right >= FOUND * Q * K, right


@pytest.mark.parametrize("parts", [1, 3, 40])
def test_parts_of_an_exact_search_are_a_whole_one(root, vectors, asked, parts):
    gone = IDS[:2000:7]
    change.delete(root, gone)
    query, kept = asked[0], np.setdiff1d(np.arange(N), np.arange(0, 2000, 7))
    groups = [LeafScan.mapped(LeafMap.open(root), part) for part in (range(9), range(9, L))]
    pieces = [Exact(query, K, part=part, parts=parts) for part in range(parts)]
    found = merge([group.exact(query, K, piece.among) for group in groups for piece in pieces], K)
    best = -np.sort(-(query @ vectors[kept].T), axis=1)[:, :K]
    np.testing.assert_allclose(found.score_QK, best, atol=1e-5)
    assert found.documents.column_names == ["id"]
    assert not {*found.ids.tolist()} & {*gone}


def test_500_results_come_where_there_are_500(tmp_path, write_map, monkeypatch):
    """Also of float32 vectors of 8 positive numbers, of which many have the same codes, and for a query of zeros."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    router = LearnedIvfRouter(8, 4, 0)
    router.begin(torch.from_numpy(np.abs(unit(4, 4, 8))))
    spec = job(router={"type": "learned_ivf"}, index={"leaves_per_document": 1, "vectors": "float32"})
    table = Assigner(router.requires_grad_(requires_grad=False), spec)(
        documents(IDS[:2100]), Encoded(np.abs(unit(3, 2100, 8)))
    )
    write_map(tmp_path / "map", table, 4, 1)
    queries, leaves = np.concatenate([unit(2, 20, 8), np.zeros((1, 8), np.float32)]), np.tile(np.arange(4), (21, 1))
    for beam in (1, 2, 4):
        for k in (500, 2100):
            found = scan(LeafScan.mapped(LeafMap.open(tmp_path / "map")), queries, leaves[:, :beam], k)
            assert [len({hit.id for hit in part.hits}) for part in found] == [min(k, part.visited) for part in found]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_versions_that_are_open_together_find_their_own_rows(root, assign, asked, order):
    """Versions share the files of segments. Removed rows change those of later versions."""
    new = [f"n{n}" for n in range(1_500)]
    change.add(root, assign, [(documents(new), Encoded(unit(5, len(new), M)))], 4)
    change.delete(root, IDS[:900])
    versions = {number: LeafMap.open(root, number) for number in (1, 2, 3)}
    alone = {number: scan(LeafScan.mapped(there), *asked, K) for number, there in versions.items()}
    opened = {number: LeafScan.mapped(versions[number]) for number in order}
    for _ in range(2):
        for number in order:
            for found, wanted in zip(scan(opened[number], *asked, K), alone[number], strict=True):
                assert [hit.id for hit in found.hits] == [hit.id for hit in wanted.hits]
                assert [hit.score for hit in found.hits] == pytest.approx([hit.score for hit in wanted.hits], abs=1e-6)
                assert (found.visited, found.scanned) == (wanted.visited, wanted.scanned)
    shared = [one.folder == other.folder for one, other in zip(opened[1].segments, opened[2].segments, strict=False)]
    assert all(shared)


def test_what_was_made_once_is_not_read_from_storage_again(root, asked):
    first = scan(LeafScan.mapped(LeafMap.open(root)), *asked, K)
    shutil.rmtree(root / "data")
    assert scan(LeafScan.mapped(LeafMap.open(root)), *asked, K) == first


@pytest.mark.parametrize("name", ["codes.npy", "rows.arrow", "vectors.npy", "about.json"])
def test_a_file_that_was_cut_short_is_made_again(root, asked, tmp_path, name):
    first = scan(LeafScan.mapped(LeafMap.open(root)), *asked, K)
    for path in (tmp_path / "cache").rglob(name):
        path.write_bytes(path.read_bytes()[:-7])
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


def test_a_cache_that_cannot_be_written_and_a_full_disk_are_named(root, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("rayhier.search.segment.segment.np.save", full)
        with pytest.raises(InputError, match="cache: No space left on device; searches cache"):
            LeafScan.mapped(LeafMap.open(root)).open()
    assert not list((tmp_path / "cache" / "lists").glob("*"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"file.*RAYHIER_CACHE"):
        LeafScan.mapped(LeafMap.open(root)).open()


def test_what_is_mapped_outlives_a_full_cache(root, asked, tmp_path):
    """Versions with other rows fill it: the one that is open goes on, the one that is closed is made again."""
    cached = tmp_path / "cache" / "lists"
    change.delete(root, IDS[::100])
    change.delete(root, IDS[1::100])
    open_, closed, last = (LeafMap.open(root, number) for number in (1, 2, 3))
    scanned = LeafScan.mapped(open_)
    scanned.open()
    mapped = set(cached.iterdir())
    found = scan(LeafScan.mapped(closed), *asked, K)
    LeafScan.mapped(last, cache_bytes=1).open()
    assert mapped < set(cached.iterdir())
    assert len(set(cached.iterdir())) == 2 * len(mapped) == 6
    assert scan(scanned, *asked, K)[0].hits
    assert scan(LeafScan.mapped(closed, cache_bytes=1), *asked, K) == found


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
