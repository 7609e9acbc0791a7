"""Searches of all documents by codes: against brute force, with filters, removals, in one process and in groups."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.documents import Copies
from rayhier.dataset.ranking import merge
from rayhier.index.change import delete
from rayhier.search import codebook, row_codes
from rayhier.search.index import index_root, open_leaf_map
from rayhier.search.reader import Reader
from rayhier.search.retrieve import Coded, Exact
from rayhier.search.row_codes import CodeScan, Part
from rayhier.search.searcher import Searcher
from rayhier.search.segment import MemorySegment
from rayhier.spec import InputError
from rayhier.spec.filter import OneOf
from rayhier.spec.search import SearchSpec
from rayhier.storage import current

from ..serve.conftest import TEXTS, published
from .test_codebook import M, N, Q, near

__all__ = ["published"]  # fixture


def held(vectors, fields=None, copies=None):
    ids = pa.array([f"d{row}" for row in range(len(vectors))])
    return MemorySegment.of(ids, vectors, np.zeros(len(vectors), np.int64), 1, copies, fields)


def numbers(ranking):
    return [[int(ranking.ids[row][1:]) for row in row_K if row >= 0] for row_K in ranking.row_QK]


@pytest.fixture(scope="module")
def vectors():
    return near(N, 2)


def test_the_best_by_codes_hold_the_best_by_vectors(vectors):
    queries = near(Q, 3)
    ranking = CodeScan.memory(held(vectors)).scan(queries, 10, listed=100)
    best = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
    share = np.mean([len({*a} & {*b}) / 10 for a, b in zip(numbers(ranking), best.tolist(), strict=True)])
    assert 0.95 < share < 1, "100 of 3,000 are scored again"
    np.testing.assert_allclose(
        ranking.score_QK, np.take_along_axis(queries @ vectors.T, np.array(numbers(ranking)), axis=1), atol=1e-5
    )
    assert (ranking.visited_Q == N).all()


@pytest.mark.parametrize("rows_held", [200, N])
def test_where_all_are_listed_or_few_are_held_the_answer_is_exact(vectors, rows_held):
    few, queries = vectors[:rows_held], near(Q, 3)
    ranking = CodeScan.memory(held(few)).scan(queries, 10, listed=None if rows_held == 200 else N)
    assert numbers(ranking) == np.argsort(-(queries @ few.T), axis=1, kind="stable")[:, :10].tolist()


@pytest.mark.parametrize("at_once", [100, 100_000])
def test_a_filter_leaves_only_what_it_names_and_scores_it_by_vectors(vectors, at_once, monkeypatch):
    for module in (row_codes,):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
    queries, colour = near(Q, 3), np.random.default_rng(4).integers(0, 5, N)
    scan = CodeScan.memory(held(vectors, pa.table({"colour": colour})))
    ranking = scan.scan(queries, 30, OneOf("colour", (3,)))
    exact = np.where(colour == 3, queries @ vectors.T, -np.inf)
    np.testing.assert_allclose(ranking.score_QK, -np.sort(-exact, axis=1)[:, :30], rtol=1e-5, atol=1e-6)
    assert (ranking.visited_Q == (colour == 3).sum()).all()
    nothing = scan.scan(queries, 30, OneOf("colour", (9,)))
    assert nothing.documents.num_rows == 0


def test_as_many_documents_as_are_asked_for_where_passages_are_alike(vectors):
    """Of 3,000 passages the best 300 belong to three documents."""
    parent = np.arange(N) // 100
    queries = near(1, 3)
    close = vectors.copy()
    close[:300] = queries + 0.01 * close[:300]
    ids = pa.array([f"d{row}" for row in parent])
    segment = MemorySegment.of(ids, close, np.zeros(N, np.int64), 1, Copies(parent))
    (found,) = numbers(CodeScan.memory(segment).scan(queries, 10, listed=50))
    assert len(set(found)) == 10
    assert set(found) >= {0, 1, 2}


def test_rows_that_faiss_leaves_out_are_no_rows(vectors):
    class Forgetful:
        d = M

        def search(self, queries, count):
            return np.full((len(queries), count), 0.5, np.float32), np.full((len(queries), count), -1)

    scan = CodeScan.memory(held(vectors))
    scan._index = Forgetful()
    assert numbers(scan.scan(near(2, 3), 5, listed=50)) == [
        list(row) for row in numbers(scan.scan(near(2, 3), 5, listed=N))
    ]


@pytest.fixture
def work(published, tmp_path, monkeypatch):
    """The published index, searched by codes, which it has although it is small; returns its folder."""
    for module in (codebook, row_codes):
        monkeypatch.setattr(module, "FEWEST", 20)
    folder = shutil.copytree(published, tmp_path / "work")
    now = current.read(folder)
    search = SearchSpec(k=7, how="codes", shortlist=120)
    current.write(folder, now.model_copy(update={"spec": now.spec.model_copy(update={"search": search})}))
    return folder


def brute_force(searcher, text, chosen):
    query = searcher.model.encode([text]).numpy[0]
    vectors = searcher.model.encode([TEXTS[n] for n in chosen]).numpy
    return -np.sort(-(vectors @ query))[:7]


def scores(answer):
    return [hit.score for hit in answer.hits]


def test_results_have_exact_scores_and_all_documents_are_compared(work):
    searcher = Searcher.open(work)
    for text, answer in zip(TEXTS[:8], searcher.search(TEXTS[:8]), strict=True):
        assert (answer.documents, answer.scored, answer.leaves) == (120, 120, [])
        np.testing.assert_allclose(scores(answer), brute_force(searcher, text, range(120)), atol=1e-4)
    with pytest.raises(InputError, match=r"search.how is codes, which visits no leaves"):
        searcher.search(["oak"], beam=3)


def test_a_shortlist_by_codes_has_exact_scores_and_most_of_the_best(work):
    searcher = Searcher.open(work)
    query_QM = searcher.model.encode(TEXTS[:20]).numpy
    ranking = searcher.reader.codes.scan(query_QM, 7, listed=30)
    assert (ranking.scanned_Q == 30).all()
    exact = query_QM @ searcher.model.encode(TEXTS).numpy.T
    for row in range(20):
        numbers = [int(str(ranking.ids[place])[1:]) for place in ranking.row_QK[row]]
        np.testing.assert_allclose(ranking.score_QK[row], exact[row, numbers], atol=1e-5)
    assert (ranking.score_QK[:, 0] > exact.mean(axis=1)).all()


def test_filters_and_removals(work):
    searcher = Searcher.open(work)
    (answer,) = searcher.search(["oak elm"], filter={"year": {"gte": 1990}})
    assert answer.documents == 30
    assert all(int(hit.id[1:]) >= 90 for hit in answer.hits)
    np.testing.assert_allclose(scores(answer), brute_force(searcher, "oak elm", range(90, 120)), atol=1e-4)
    gone = [hit.id for hit in searcher.search(["oak elm"])[0].hits[:3]]
    delete(index_root(work, current.read(work)), gone)
    (after,) = Searcher.open(work).search(["oak elm"])
    assert not set(gone) & {hit.id for hit in after.hits}
    assert after.documents == 117


def test_groups_find_together_what_one_process_finds(work):
    searcher = Searcher.open(work)
    asked = Coded(searcher.model.encode(TEXTS[:5]).numpy, 7)
    whole = searcher.reader.read(asked)
    leaf_map, leaves = open_leaf_map(work, current.read(work)), len(searcher.reader.leaves.leaves)
    halves = [
        Reader.open(searcher.model.spec, leaf_map, leaves=part).read(asked) for part in (range(4), range(4, leaves))
    ]
    merged = merge(halves, 7)
    np.testing.assert_allclose(merged.score_QK, whole.score_QK, atol=1e-6)
    assert (merged.visited_Q == 120).all()


@pytest.mark.parametrize("where", [None, OneOf("year", tuple(range(1900, 1990)))])
def test_parts_of_an_exact_search_are_a_whole_one(work, where):
    searcher = Searcher.open(work)
    query = searcher.model.encode(["oak elm"]).numpy
    parts = [searcher.reader.read(Exact(query, 7, where, part, 4)) for part in range(4)]
    assert sum(int(part.visited_Q[0]) for part in parts) == (120 if where is None else 90)
    best = brute_force(searcher, "oak elm", range(120 if where is None else 90))
    np.testing.assert_allclose(merge(parts, 7).score_QK[0], best, atol=1e-4)


def test_files_that_change_are_noticed(work, tmp_path, monkeypatch):
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "cache"))
    reader = Searcher.open(work).reader
    assert reader.intact()
    next((tmp_path / "cache" / "lists").rglob("rows.arrow")).touch()
    assert not reader.intact()


@pytest.mark.parametrize("sizes", [[N], [1_000, 1_400, 600], [2_950, 50]])
def test_parts_are_searched_as_one(vectors, sizes):
    queries, book = near(Q, 3), codebook.Codebook.train(vectors)
    cuts = np.split(vectors, np.cumsum(sizes)[:-1])
    parts = [Part(row_codes._stored(part), book.flat(part)) for part in cuts]
    colour = np.random.default_rng(4).integers(0, 5, N)
    leaves = CodeScan.memory(held(vectors, pa.table({"colour": colour})))._leaves
    scan = CodeScan(leaves, np.arange(N), parts)
    exact_QN = queries @ vectors.T
    best = np.argsort(-exact_QN, axis=1, kind="stable")[:, :10]
    assert numbers(scan.scan(queries, 10, listed=N)) == best.tolist()
    ranking = scan.scan(queries, 10, listed=100)
    assert np.mean([len({*a} & {*b}) / 10 for a, b in zip(numbers(ranking), best.tolist(), strict=True)]) > 0.95
    assert (ranking.score_QK[:, :-1] >= ranking.score_QK[:, 1:]).all()
    assert (ranking.visited_Q == N).all()
    filtered = scan.scan(queries, 30, OneOf("colour", (3,)))
    wanted_QK = -np.sort(-np.where(colour == 3, exact_QN, -np.inf), axis=1)[:, :30]
    np.testing.assert_allclose(filtered.score_QK, wanted_QK, rtol=1e-5, atol=1e-6)


def test_versions_share_the_parts_that_did_not_change(published, monkeypatch):
    """A part is read again only where its folders differ."""
    now, leaf_map = current.read(published), open_leaf_map(published, current.read(published))
    spec = now.spec.model_copy(update={"search": SearchSpec(how="codes")})
    first = Reader.open(spec, leaf_map)
    monkeypatch.setattr(row_codes, "_read", lambda *_: pytest.fail("read again"))
    assert Reader.open(spec, leaf_map).codes.documents == first.codes.documents == len(TEXTS)
