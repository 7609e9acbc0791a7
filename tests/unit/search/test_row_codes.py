"""Searches of all documents by codes: against brute force, with filters, removals, in one process and in groups."""

import shutil

import numpy as np
import pytest

from rayhier.index.change import delete
from rayhier.search import flat_scan, row_codes
from rayhier.search.flat_scan import FlatScan, coded_part
from rayhier.search.index import index_root, open_leaf_map
from rayhier.search.reader import Reader
from rayhier.search.retrieve import Flat
from rayhier.search.row_codes import CodeSimilarity, RowCodes, code, multiply_adds
from rayhier.search.searcher import Searcher
from rayhier.search.shortlist import Shortlist
from rayhier.spec import InputError
from rayhier.spec.search import SearchSpec
from rayhier.storage import current

from ..serve.conftest import TEXTS, published

__all__ = ["published"]  # fixture
N, Q, M = 3_000, 40, 30


def near(rows, seed):
    """Vectors that lie close together in groups of ten, with a number of dimensions that is no multiple of 4."""
    numbers = np.random.default_rng(seed)
    centre = np.random.default_rng(1).normal(size=(300, M))
    x = centre[numbers.integers(0, 300, rows)] + 0.5 * numbers.normal(size=(rows, M))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module", params=["float32", "float16"])
def stored(request):
    return near(N, 2).astype(request.param)


def test_scores_are_those_of_the_decoded_vectors(stored):
    index, queries = code(stored), near(Q, 3)
    score, row = RowCodes(stored, index)(queries, 50)
    decoded = index.reconstruct_n(0, N)[:, :M]
    exact = queries @ decoded.T
    np.testing.assert_allclose(score, np.take_along_axis(exact, row, axis=1), atol=0.02)
    assert (np.diff(score, axis=1) <= 0).all()
    least = np.sort(exact, axis=1)[:, -50]
    assert (np.take_along_axis(exact, row, axis=1).min(axis=1) >= least - 0.04).all(), "no better one is left out"


def test_equal_vectors_have_equal_codes(stored):
    first, second = (RowCodes(stored, code(stored))(near(Q, 3), 20) for _ in range(2))
    np.testing.assert_array_equal(first[1], second[1])


def test_the_best_by_codes_hold_the_best_by_vectors(stored):
    queries = near(Q, 3)
    _, row = RowCodes(stored, code(stored))(queries, 100)
    best = np.argsort(-(queries @ stored.astype(np.float32).T), axis=1)[:, :10]
    held = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(row.tolist(), best.tolist(), strict=True)])
    assert held > 0.95


@pytest.mark.parametrize("coded", [True, False])
def test_a_mask_leaves_only_what_it_names_and_scores_it_by_vectors(stored, coded, monkeypatch):
    monkeypatch.setattr(row_codes, "AT_ONCE", 100)
    queries, mask = near(Q, 3), np.random.default_rng(4).random(N) < 0.2
    score, row = RowCodes(stored, code(stored) if coded else None)(queries, 30, mask)
    exact = np.where(mask, queries @ stored.astype(np.float32).T, -np.inf)
    np.testing.assert_allclose(score, -np.sort(-exact, axis=1)[:, :30], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(score, np.take_along_axis(exact, row, axis=1), rtol=1e-5, atol=1e-6)


def test_few_documents_are_compared_by_their_vectors(stored):
    few, queries = stored[:200], near(Q, 3)
    part = coded_part(few, np.arange(200))
    score, row = part.best(queries, 10)
    exact = queries @ few.astype(np.float32).T
    np.testing.assert_array_equal(row, np.argsort(-exact, axis=1, kind="stable")[:, :10])
    np.testing.assert_allclose(score, -np.sort(-exact, axis=1)[:, :10], rtol=1e-5, atol=1e-6)


def test_rows_that_faiss_leaves_out_are_no_rows(stored):
    class Forgetful:
        d = 32

        def search(self, queries, count):
            return np.full((len(queries), count), 0.5, np.float32), np.full((len(queries), count), -1)

    part = flat_scan.FlatPart(CodeSimilarity(), RowCodes(stored, Forgetful()), np.arange(N) + 7)
    score, row = part.best(near(2, 3), 5)
    assert (row == -1).all()
    assert (score == -np.inf).all()


def test_cost_counts_a_table_and_sums():
    assert multiply_adds(128_000, 384) == 16 * 384 + 128_000 * 3
    assert multiply_adds(128, 382) == 16 * 384 + 384


@pytest.fixture
def work(published, tmp_path, monkeypatch):
    """The published index, searched by codes, which it has although it is small; returns its folder."""
    for module in (row_codes, flat_scan):
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
    query = CodeSimilarity().query(searcher.model.encode(TEXTS[:20]).numpy)
    ranking = searcher.reader.read(Flat(query, 30)).finished(7)
    assert (ranking.scanned_Q == 30).all()
    exact = query.query_QK @ searcher.model.encode(TEXTS).numpy.T
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
    query = CodeSimilarity().query(searcher.model.encode(TEXTS[:5]).numpy)
    there = searcher.reader.leaves
    whole = searcher.reader.read(Flat(query, 120)).finished(7)
    leaf_map = open_leaf_map(work, current.read(work))
    halves = [
        Reader.open(searcher.model.spec, leaf_map, CodeSimilarity(), part).read(Flat(query, 120))
        for part in (range(4), range(4, len(there.leaves)))
    ]
    merged = Shortlist.merge(halves, 120).finished(7)
    np.testing.assert_allclose(merged.score_QK, whole.score_QK, atol=1e-6)
    assert (merged.visited_Q == 120).all()
    assert isinstance(searcher.reader.flat, FlatScan)
