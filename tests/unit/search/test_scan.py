"""Searching a leaf map that lies in mapped files, in every codec, against sums written out by hand."""

import gc
import shutil
import weakref

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
from rayhier.search.retrieve import Exact
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.spec import InputError, JobSpec
from rayhier.spec.filter import OneOf
from rayhier.storage import files, schemas
from rayhier.storage.leaf_map import LeafMap

from ...draws import unit
from .hits import scan

N, M, L, Q, K, BEAM = 6000, 32, 24, 20, 10, 6
LEAST = {"name": "t", "workdir": "w", "corpus": {"type": "python_docs"}, "encoder": {"model": "package:none"}}
CODECS = ["flat", "fp16", "pq"]
FOUND = {"flat": 1, "fp16": 1, "pq": 0.8}
"""Least share of the ten best that a codec keeps, with random directions: the hardest there are to code."""


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
    spec = JobSpec.model_validate({**LEAST, "router": {"type": "learned_ivf"}, "index": {"leaves_per_document": 2}})
    return Assigner(router.requires_grad_(requires_grad=False), spec)


@pytest.fixture(scope="module")
def table(assign, vectors):
    return assign(documents(IDS), Encoded.of(vectors))


@pytest.fixture
def root(table, tmp_path, write_map, monkeypatch):
    """Three shards, and a cache of the test's own."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    write_map(tmp_path / "map", table, L, 3, leaves_per_document=2)
    return tmp_path / "map"


@pytest.fixture(scope="module")
def asked(assign):
    query = unit(2, Q, M)
    return query, route_all(assign.router, Encoded.of(query), BEAM)[0].numpy()


def by_hand(table, vectors, query, leaves, k):
    """Ids and scores of the best, and how many documents lie in the leaves."""
    inside = np.isin(table["leaf"].to_numpy(), leaves)
    rows = sorted({int(name[1:]) for name, own in zip(table["doc_id"].to_pylist(), inside, strict=True) if own})
    scores = vectors[rows] @ query
    order = np.argsort(-scores, kind="stable")[:k]
    return [IDS[rows[place]] for place in order], scores[order], len(rows), int(inside.sum())


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_scores_by_the_stored_vectors(root, table, vectors, asked, codec):
    query, leaves = asked
    found, right = scan(LeafScan.mapped(LeafMap.open(root), codec), query, leaves, K), 0
    for part, own, probed in zip(found, query, leaves, strict=True):
        ids, scores, visited, scanned = by_hand(table, vectors, own, probed, K)
        assert (part.visited, part.scanned) == (visited, scanned)
        for hit in part.hits:
            assert hit.score == pytest.approx(vectors[int(hit.id[1:])] @ own, abs=1e-5)
            assert hit.title == f"title {hit.id}"
            assert hit.leaf in probed
        assert len({hit.id for hit in part.hits}) == K
        right += len({hit.id for hit in part.hits} & set(ids))
        if codec != "pq":
            np.testing.assert_allclose([hit.score for hit in part.hits], scores, atol=1e-6)
    assert right >= FOUND[codec] * Q * K, right


@pytest.mark.parametrize("parts", [1, 3, 40])
@pytest.mark.parametrize("codec", CODECS)
def test_parts_of_an_exact_search_are_a_whole_one(root, table, vectors, asked, codec, parts):
    gone = IDS[:2000:7]
    change.delete(root, gone)
    query, kept = asked[0], np.setdiff1d(np.arange(N), np.arange(0, 2000, 7))
    groups = [LeafScan.mapped(LeafMap.open(root), codec, part) for part in (range(9), range(9, L))]
    pieces = [Exact(query, K, part=part, parts=parts) for part in range(parts)]
    found = merge([group.exact(query, K, piece.among) for group in groups for piece in pieces], K)
    best = -np.sort(-(query @ vectors[kept].T), axis=1)[:, :K]
    np.testing.assert_allclose(found.score_QK, best, atol=1e-5)
    assert found.documents.column_names == ["id"]
    assert not {*found.ids.tolist()} & {*gone}


@pytest.mark.parametrize("codec", CODECS)
def test_500_results_come_where_there_are_500(tmp_path, write_map, monkeypatch, codec):
    """faiss' fast scan of pq forgets rows whose sums are at the floor of its 8 bits: here, of 8 positive numbers."""
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    router = LearnedIvfRouter(8, 4, 0)
    router.begin(torch.from_numpy(np.abs(unit(4, 4, 8))))
    spec = JobSpec.model_validate({**LEAST, "router": {"type": "learned_ivf"}, "index": {"leaves_per_document": 1}})
    table = Assigner(router.requires_grad_(requires_grad=False), spec)(
        documents(IDS[:2100]), Encoded.of(np.abs(unit(3, 2100, 8)))
    )
    write_map(tmp_path / "map", table, 4, 1)
    queries, leaves = np.concatenate([unit(2, 20, 8), np.zeros((1, 8), np.float32)]), np.tile(np.arange(4), (21, 1))
    for beam in (1, 2, 4):
        for k in (500, 2100):
            found = scan(LeafScan.mapped(LeafMap.open(tmp_path / "map"), codec), queries, leaves[:, :beam], k)
            assert [len({hit.id for hit in part.hits}) for part in found] == [min(k, part.visited) for part in found]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
@pytest.mark.parametrize("codec", CODECS)
def test_versions_that_are_open_together_find_their_own_rows(root, assign, asked, codec, order):
    """Versions share lists, of codes where rows have the same numbers: removed rows change those of later ones."""
    new = [f"n{n}" for n in range(1_500)]
    change.add(root, assign, [(documents(new), Encoded.of(unit(5, len(new), M)))], 4)
    change.delete(root, IDS[:900])
    versions = {number: LeafMap.open(root, number) for number in (1, 2, 3)}
    alone = {number: scan(LeafScan.mapped(there, codec), *asked, K) for number, there in versions.items()}
    opened = {number: LeafScan.mapped(versions[number], codec) for number in order}
    for _ in range(2):
        for number in order:
            for found, wanted in zip(scan(opened[number], *asked, K), alone[number], strict=True):
                assert [hit.id for hit in found.hits] == [hit.id for hit in wanted.hits]
                assert [hit.score for hit in found.hits] == pytest.approx([hit.score for hit in wanted.hits], abs=1e-6)
                assert (found.visited, found.scanned) == (wanted.visited, wanted.scanned)
    shared = [one.lists is other.lists for one, other in zip(opened[1].segments, opened[2].segments, strict=False)]
    assert all(shared)


def test_what_was_made_once_is_not_read_from_storage_again(root, asked):
    first = scan(LeafScan.mapped(LeafMap.open(root), "pq"), *asked, K)
    shutil.rmtree(root / "data")
    assert scan(LeafScan.mapped(LeafMap.open(root), "pq"), *asked, K) == first


@pytest.mark.parametrize("name", ["lists.faiss", "rows.arrow", "vectors.npy", "lower.npy", "about.json"])
def test_a_file_that_was_cut_short_is_made_again(root, asked, tmp_path, name):
    first = scan(LeafScan.mapped(LeafMap.open(root), "pq"), *asked, K)
    for path in (tmp_path / "cache").rglob(name):
        path.write_bytes(path.read_bytes()[:-7])
    assert scan(LeafScan.mapped(LeafMap.open(root), "pq"), *asked, K) == first


def test_another_file_on_storage_is_named_and_nothing_kept(root, asked, tmp_path):
    """It can be read, and lacks a row."""
    name = LeafMap.open(root).manifest.shards[0].file.name
    rows = files.read_table(root / name)
    files.write_parquet(root, name, [rows.slice(1)], rows.schema)
    for _ in range(2):
        with pytest.raises(InputError, match=r"data/0\.parquet: .* published"):
            LeafScan.mapped(LeafMap.open(root)).open()
    assert not list((tmp_path / "cache" / "lists").glob("*"))


def test_a_cache_that_cannot_be_written_is_named(root, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"file.*RAYHIER_CACHE"):
        LeafScan.mapped(LeafMap.open(root)).open()


def test_lists_that_cannot_be_written_are_named(root, tmp_path, monkeypatch):
    def full(*_):
        raise RuntimeError("Error in void faiss::write_InvertedLists: write error")

    monkeypatch.setattr("rayhier.search.segment.codecs.faiss.write_index", full)
    with pytest.raises(
        InputError, match=r"lists\.faiss: cannot be written \(.*\); is there space left\?; searches cache"
    ):
        LeafScan.mapped(LeafMap.open(root)).open()
    assert not list((tmp_path / "cache").rglob("lists.faiss"))


def test_what_is_mapped_outlives_a_full_cache(root, asked, tmp_path):
    """Two searches of other codecs fill it: the one that is open goes on, the one that is closed is made again."""
    cached = tmp_path / "cache" / "lists"
    open_, closed = LeafScan.mapped(LeafMap.open(root), "flat"), LeafScan.mapped(LeafMap.open(root), "pq")
    open_.open()
    mapped = set(cached.iterdir())
    found = scan(closed, *asked, K)
    del closed
    LeafScan.mapped(LeafMap.open(root), "fp16", cache_bytes=1).open()
    assert mapped < set(cached.iterdir())
    assert len(set(cached.iterdir())) == 2 * len(mapped) == 6
    assert scan(open_, *asked, K)[0].hits
    assert scan(LeafScan.mapped(LeafMap.open(root), "pq", cache_bytes=1), *asked, K) == found


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_removed_is_not_found_and_what_was_added_is(root, assign, vectors, asked, codec):
    query, leaves = asked
    before = scan(LeafScan.mapped(LeafMap.open(root), codec), query, leaves, K)
    gone = sorted({hit.id for part in before for hit in part.hits[:3]})
    change.delete(root, gone)
    change.add(root, assign, iter([(documents(["new"]), Encoded.of(query[:1]))]), 8.0)
    there = LeafMap.open(root)
    after = scan(LeafScan.mapped(there, codec), query, leaves, K)
    assert not {hit.id for part in after for hit in part.hits} & set(gone)
    assert after[0].hits[0].id == "new"
    rows = sum(part.scanned for part in after)
    assert rows < sum(part.scanned for part in before) + 2 * Q
    # The old version still has them.
    assert scan(LeafScan.mapped(LeafMap.open(root, 1), codec), query, leaves, K) == before


def test_a_scan_that_was_filtered_goes_without_the_collector(root, asked):
    """A server leaves what is alive at its start out of collections: a cycle would keep a version's lists for good."""
    query, leaves = asked
    filtered = LeafScan.mapped(LeafMap.open(root), "flat")
    assert scan(filtered, query, leaves, K)
    filtered.scan(query, leaves, K, OneOf("doc_id", ("d0001",)))
    alive = weakref.ref(filtered)
    gc.disable()
    try:
        del filtered
        assert alive() is None
    finally:
        gc.enable()
