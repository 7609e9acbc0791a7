"""The measure that picks the best epoch, by hand."""

import numpy as np
import pytest
import torch

from rayhier.dataset.queries import Queries
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.router import opened
from rayhier.train.ehi import DevMeasure, TrainedIndex, doublings

from ....draws import unit

N, M = 200, 8
IDS = [f"d{row}" for row in range(N)]


def snapshot(leaves, dev=None):
    rng = np.random.default_rng(0)
    documents = unit(rng, N, M)
    router = EhiRouter(M, leaves, 1, "none").requires_grad_(requires_grad=False)
    router.warm_start(torch.from_numpy(unit(rng, leaves, M)))
    own = opened(router).choose(Encoded(documents), 1)[:, 0]
    return TrainedIndex(router, documents, dev, own)


@pytest.fixture
def queries():
    rng = np.random.default_rng(1)
    vectors = unit(rng, 30, M)
    near = np.argsort(-(vectors @ snapshot(2).document_NM.T), axis=1)[:, :20]
    grades = {f"q{n}": {IDS[row]: 1 for row in rng.choice(rows, 4, replace=False)} for n, rows in enumerate(near)}
    return Queries(list(grades), vectors, grades)


def points(now, queries, cut, beams):
    """(share visited, recall) at some beams, by scans; nothing visited finds nothing."""
    leaf_of = (now.document_NM @ now.router.W[0].weight.numpy().T).argmax(axis=1)
    found = [(0.0, 0.0)]
    for beam in beams:
        shares, recalls = [], []
        for name, query in zip(queries.ids, queries.vector_QM, strict=True):
            leaves = np.argsort(-(now.router.W[0].weight.numpy() @ query))[:beam]
            members = np.flatnonzero(np.isin(leaf_of, leaves))
            best = members[np.argsort(-(now.document_NM[members] @ query))][:cut]
            shares.append(len(members) / N)
            recalls.append(len({IDS[row] for row in best} & set(queries.grades[name])) / 4)
        found.append((np.mean(shares), np.mean(recalls)))
    return np.array(found).T


@pytest.mark.parametrize("leaves", [2, 5, 40])
def test_dev_is_the_mean_recall_at_small_shares_visited(queries, leaves):
    now = snapshot(leaves, queries.vector_QM)
    found = DevMeasure(queries, IDS)(now)
    wanted = {}
    for cut in (10, 100):
        shares, recalls = points(now, queries, cut, doublings(leaves))
        for share in (0.05, 0.1, 0.2):
            wanted[f"R@{cut}@{share:.0%}"] = np.interp(share, shares, recalls)
    assert found.values == pytest.approx(wanted, abs=1e-6)
    assert found.dev == pytest.approx(np.mean(list(wanted.values())))
    assert len(found.share_Q) == len(queries)
    assert found.share_Q.mean() == pytest.approx(found.dev)
