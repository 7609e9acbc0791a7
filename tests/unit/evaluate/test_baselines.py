"""The k-means controls and how many lists they get; the scan itself is in tests/oracles/test_faiss_scan.py."""

import faiss
import numpy as np
import pyarrow as pa
import pytest

from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.dataset.queries import Queries
from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.evaluate.baselines.ivf import list_choices, tuned_lists
from rayhier.evaluate.curve import beams

M, Q = 8, 60


def case(groups, documents, spread, seed):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(groups, M))
    vectors = centers[rng.integers(0, groups, documents)] + spread * rng.normal(size=(documents, M))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    asked = vectors[rng.choice(documents, Q, replace=False)] + 0.3 * spread * rng.normal(size=(Q, M))
    asked = (asked / np.linalg.norm(asked, axis=1, keepdims=True)).astype(np.float32)
    near = np.argsort(-(asked @ vectors.T), axis=1)[:, :20]
    ids = [f"d{row}" for row in range(documents)]
    grades = {f"q{n}": {ids[row]: 1 for row in rows} for n, rows in enumerate(near)}
    return Queries(list(grades), asked, grades), vectors, ids


def recall(queries, rows, ids):
    found = [
        len(set(queries.grades[query]) & {ids[row] for row in own if row >= 0}) / len(queries.grades[query])
        for query, own in zip(queries.ids, rows, strict=True)
    ]
    return float(np.mean(found))


def cost(queries, vectors, ids, lists, seed):
    """Least cost of 95% of exact R@100, by faiss's own IVF search and its own count of distances."""
    flat = faiss.IndexFlatIP(M)
    flat.add(vectors)
    target = 0.95 * recall(queries, flat.search(queries.vector_QM, 100)[1], ids)
    quantizer = faiss.IndexFlatIP(M)
    quantizer.add(spherical_kmeans(vectors, lists, seed))
    index = faiss.IndexIVFFlat(quantizer, M, lists, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    before = None
    for index.nprobe in beams(lists):
        faiss.cvar.indexIVF_stats.reset()
        here = recall(queries, index.search(queries.vector_QM, 100)[1], ids)
        paid = (faiss.cvar.indexIVF_stats.ndis / len(queries) + lists) / len(vectors)
        if here >= target:
            if before is None:
                return paid
            share = (target - before[0]) / (here - before[0])
            return before[1] + share * (paid - before[1])
        before = here, paid
    return np.inf


@pytest.mark.parametrize(
    ("groups", "documents", "spread", "seed"), [(200, 4000, 0.1, 0), (4, 2000, 0.5, 0), (4, 520, 0.5, 1)]
)
def test_tuned_lists_are_the_cheapest_for_95_percent_of_exact(groups, documents, spread, seed):
    queries, vectors, ids = case(groups, documents, spread, seed)
    costs = {lists: cost(queries, vectors, ids, lists, seed) for lists in list_choices(documents)}
    own = pa.array(ids)
    assert tuned_lists(BaselineDocuments(own, own, vectors), queries, seed) == min(costs, key=costs.get)
