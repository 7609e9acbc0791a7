"""Baselines against outside references: Lucene's BM25 by hand, exact search, faiss's and ScaNN's own counts."""

from math import log

import faiss
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from rayhier.cluster.kmeans import nearest, spherical_kmeans
from rayhier.evaluate.baselines.bm25 import Bm25
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


SIX = [
    "Red fish swims in cold water",
    "Blue fish, blue water",
    "A red fox",
    "The fox hunts at night",
    "Cold night",
    "Stone",
]


def lucene(query, texts):
    """Lucene's BM25 (k1 1.5, b 0.75) as the formula has it."""
    stop = {"in", "the", "at", "a"}
    words = [[word for word in text.lower().replace(",", "").split() if word not in stop] for text in texts]
    average = np.mean([len(own) for own in words])
    scores = []
    for own in words:
        score = 0.0
        for word in query.lower().split():
            holding = sum(word in other for other in words)
            idf = log(1 + (len(words) - holding + 0.5) / (holding + 0.5))
            tf = own.count(word)
            score += idf * tf / (tf + 1.5 * (1 - 0.75 + 0.75 * len(own) / average))
        scores.append(score)
    return np.array(scores)


@pytest.mark.parametrize("query", ["fox", "red fish", "cold night water", "blue blue fish"])
def test_bm25_is_lucenes_formula(query):
    ids = pa.array([f"d{row}" for row in range(6)])
    ranking = Bm25(ids, ids, Bm25Index(SIX)).rank([query], 6)
    wanted = lucene(query, SIX)
    order = [row for row in np.argsort(-wanted, kind="stable") if wanted[row] > 0]
    assert ranking.score_QK[0][: len(order)].tolist() == pytest.approx(wanted[order].tolist(), abs=1e-5)
    assert set(ids_of(ranking)[0]) == {f"d{row}" for row in order}
    nothing = Bm25(ids, ids, Bm25Index(SIX)).rank(["zebra", "the", ""], 3)
    assert ids_of(nothing) == [[], [], []]


@pytest.mark.parametrize("nprobe", [1, 5, 24])
def test_the_ivf_baseline_is_faiss_ivf(nprobe):
    found = KmeansIvf(DOCUMENTS, 24, seed=4).rank(QUERIES, nprobe, K)
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
