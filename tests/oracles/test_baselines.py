"""Baselines against outside references: bm25s, exact search, faiss's and ScaNN's own counts."""

import bm25s
import faiss
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.cluster.neighbours import nearest
from rayhier.dataset.words import words
from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.evaluate.baselines.hnsw import Hnsw
from rayhier.evaluate.baselines.ivf import KmeansIvf
from rayhier.evaluate.baselines.scann import ScannTree
from rayhier.evaluate.significance import RESAMPLES, bootstrap
from rayhier.search.words.bm25 import Bm25Index

from ..draws import unit

N, M, Q, K = 600, 16, 25, 30
IDS = pa.array([f"d{row}" for row in range(N)])
PARENTS = np.arange(N) // 3
VECTORS, QUERIES = unit(0, N, M), unit(1, Q, M)
DOCUMENTS = BaselineDocuments(IDS, IDS, VECTORS)
RESULTS = pa.array([f"p{parent}" for parent in PARENTS])
PASSAGES = BaselineDocuments(IDS, RESULTS, VECTORS)


def ids_of(ranking):
    return [[ranking.ids[row] for row in rows if row >= 0] for rows in ranking.row_QK]


def exact(result_of, k):
    """Best results of a full scan, each by its best row."""
    order = np.argsort(-(QUERIES @ VECTORS.T), axis=1)
    return [list(dict.fromkeys(result_of(row) for row in rows))[:k] for rows in order.tolist()]


@given(
    st.lists(st.text("abcd  ", max_size=12), max_size=30), st.integers(1, 12), st.integers(0, 1 << 30), st.booleans()
)
def test_bm25_is_bm25s(texts, k, seed, masked):
    mask_N = np.random.default_rng(seed).random(len(texts)) < 0.5
    index, theirs = Bm25Index(texts, "none"), bm25s.BM25()
    split = [words(text, "none") for text in texts]
    if any(split):
        theirs.index(split, show_progress=False)
    queries = ["", "unheard", "ab", *texts, " ".join(texts[:2] * 2)]
    for query, score_K, row_K in zip(queries, *index.best(queries, k, mask_N if masked else None), strict=True):
        asked = words(query, "none")
        wanted_N = theirs.get_scores(asked) if any(split) and asked else np.zeros(len(texts))
        np.testing.assert_allclose(index.scores(query), wanted_N, rtol=1e-5)
        wanted_K = np.sort(np.where(mask_N, wanted_N, 0) if masked else wanted_N)[::-1][:k]
        np.testing.assert_allclose(np.maximum(score_K, 0), wanted_K, rtol=1e-5)
        assert ((row_K < 0) == (wanted_K == 0)).all()
        found_K = row_K[row_K >= 0]
        np.testing.assert_allclose(wanted_N[found_K], score_K[: len(found_K)], rtol=1e-5)
        assert np.lexsort((found_K, -score_K[: len(found_K)])).tolist() == [*range(len(found_K))]
        assert len({*found_K.tolist()}) == len(found_K)
        assert not masked or mask_N[found_K].all()


IVF = KmeansIvf(DOCUMENTS, 24, seed=4)
"""One baseline for all beams: a wider beam continues the search of the narrower beam."""


@pytest.mark.parametrize("nprobe", [5, 24, 1])
def test_the_ivf_baseline_is_faiss_ivf(nprobe):
    found = IVF.rank(QUERIES, nprobe, K)
    quantizer, centroids = faiss.IndexFlatIP(M), spherical_kmeans(VECTORS, 24, seed=4)
    quantizer.add(centroids)
    index = faiss.IndexIVFFlat(quantizer, M, 24, faiss.METRIC_INNER_PRODUCT)
    index.train(VECTORS)
    index.add(VECTORS)
    index.nprobe = nprobe
    scores, rows = index.search(QUERIES, K)
    assert ids_of(found) == [[f"d{row}" for row in own if row >= 0] for own in rows.tolist()]
    np.testing.assert_allclose(found.score_QK[rows >= 0], scores[rows >= 0], atol=1e-5)
    sizes = np.bincount(nearest(VECTORS, centroids, 1)[0][:, 0], minlength=24)
    wanted = sizes[nearest(QUERIES, centroids, nprobe)[0]].sum(axis=1)
    assert found.visited_Q.tolist() == found.scanned_Q.tolist() == wanted.tolist()


@pytest.mark.parametrize("effort", [16, 64])
def test_hnsw_visits_what_faiss_counts(effort):
    found = Hnsw(DOCUMENTS).rank(QUERIES, effort, K)
    index = faiss.IndexHNSWFlat(M, 32, faiss.METRIC_INNER_PRODUCT)
    index.add(VECTORS)
    index.hnsw.efSearch = effort
    faiss.cvar.hnsw_stats.reset()
    index.search(QUERIES, K)
    assert found.scanned_Q.sum() == faiss.cvar.hnsw_stats.ndis
    assert 0 < found.scanned_Q.min() < N


def test_scann_visits_whole_partitions_of_its_own_and_all_are_exact(tmp_path):
    """Found documents are those of as many partitions as were asked for, all of each, by ScaNN's own assignment."""
    pytest.importorskip("scann", reason="an optional extra, Linux only")
    tree = ScannTree(DOCUMENTS, 24)
    assert ids_of(tree.rank(QUERIES, 24, K)) == exact(lambda row: f"d{row}", K)
    assert ids_of(ScannTree(PASSAGES, 24).rank(QUERIES, 24, K)) == exact(lambda row: f"p{PARENTS[row]}", K)
    tree.index.serialize(str(tmp_path))
    token_N = np.load(tmp_path / "datapoint_to_token.npy")
    sizes = np.bincount(token_N, minlength=24)
    means = np.stack([VECTORS[token_N == token].mean(axis=0) for token in range(24)])
    nearest = np.square(VECTORS[:, None] - means).sum(axis=2).argmin(axis=1)
    assert (nearest == token_N).mean() > 0.9
    for beam in (1, 3, 24):
        everything = tree.rank(QUERIES, beam, N)
        for found, visited in zip(ids_of(everything), everything.visited_Q, strict=True):
            rows = [int(name[1:]) for name in found]
            partitions = np.unique(token_N[rows])
            assert len(partitions) == beam
            assert visited == len(rows) == sizes[partitions].sum()
        best = tree.rank(QUERIES, beam, 5)
        assert ids_of(best) == [found[:5] for found in ids_of(everything)]
        assert best.visited_Q.tolist() == everything.visited_Q.tolist()


def test_the_bootstrap_is_scipys():
    """Paired, percentile; two bootstraps differ by chance, a few hundredths of the interval's width."""
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(200), rng.beta(2, 3, 200)
    found = bootstrap((ours - theirs)[:, None])[0]
    wanted = stats.bootstrap(
        (ours, theirs),
        lambda one, other, axis: (one - other).mean(axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = wanted.confidence_interval
    assert found.difference == pytest.approx((ours - theirs).mean())
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.04 * (high - low))
    assert found.wins == pytest.approx((wanted.bootstrap_distribution > 0).mean(), abs=0.02)
