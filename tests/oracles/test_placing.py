"""Where the index puts documents is where training placed them, and where a scan written out by hand does."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.index.assign import Assigner
from rayhier.model import opened_router, spill
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import open_router
from rayhier.model.placing import place
from rayhier.model.router import opened, save_router
from rayhier.spec.index import SPILLED
from rayhier.storage import schemas
from rayhier.train.learned_ivf.kmeans_start import make_router, settle

from ..draws import to_unit
from ..toys import job

N, M = 500, 12
IDS = [f"d{row:03d}" for row in range(N)]


@pytest.fixture(scope="module")
def vectors():
    """Half of them crowded."""
    rng = np.random.default_rng(0)
    found = rng.normal(size=(N, M)) + np.eye(M)[0] * 3 * (np.arange(N) % 2)[:, None]
    return to_unit(found).astype(np.float32)


def placed(vectors, folder, branching):
    """A taught router, the leaves of documents that it knows, and those in the leaf map's rows, by rank."""
    spec = job(router={"type": "learned_ivf", "branching": branching})
    router = make_router(spec.router, vectors, 0)
    leaf_NR = settle(router, vectors, spec, 0)
    save_router(router, folder)
    documents = pa.table([IDS, IDS, IDS], schema=schemas.DOCUMENTS)
    found = {name: {} for name in IDS}
    for row in Assigner(open_router(folder), spec)(documents, Encoded(vectors)).to_pylist():
        assert row["rank"] not in found[row["doc_id"]]
        assert row["leaves"][row["rank"]] == row["leaf"]
        found[row["doc_id"]][row["rank"]] = row["leaf"]
    return router, leaf_NR, [[own[rank] for rank in sorted(own)] for own in found.values()]


@pytest.mark.parametrize("branching", [9, 40])
def test_the_leaf_map_is_what_was_taught(vectors, tmp_path, branching):
    router, leaf_NR, rows = placed(vectors, tmp_path, branching)
    taught = [list(dict.fromkeys(own)) for own in leaf_NR.tolist()]
    assert rows == taught
    assert np.array_equal(place(opened(router), Encoded(vectors), 2)[0], leaf_NR)
    held = np.bincount([leaf for own in taught for leaf in own], minlength=router.n_leaves)
    np.testing.assert_allclose(router.log_size_L, np.log(held + 0.5), rtol=1e-6)
    two = np.mean([len(own) == 2 for own in taught])
    assert two == pytest.approx(SPILLED, abs=0.1)


def test_on_a_gpu_documents_lie_where_numpy_puts_them(vectors, monkeypatch):
    torch.manual_seed(0)
    spec = job(router={"type": "learned_ivf", "branching": 40})
    routers = make_router(spec.router, vectors, 0), EhiRouter(M, 40, 1, "relu")
    wanted = [opened(router).place(Encoded(vectors), 5) for router in routers]
    monkeypatch.setattr(opened_router, "gpu", lambda: "cpu")
    for router, (leaf_NC, log_p_NC) in zip(routers, wanted, strict=True):
        found_NC, values_NC = opened(router).place(Encoded(vectors), 5)
        assert np.array_equal(found_NC, leaf_NC)
        np.testing.assert_allclose(values_NC, log_p_NC, atol=1e-4)


def test_by_hand(vectors, tmp_path, monkeypatch):
    """The first leaf is the nearest after price; the second, near a border, SOAR's of the 32 nearest after price."""
    monkeypatch.setattr(spill, "VECTORS", 70)
    router, _, rows = placed(vectors, tmp_path, 40)
    cells, x = router.cells, vectors.astype(np.float64)
    centroids, prices = cells.centroid_LM.double().numpy(), cells.price_L.double().numpy()
    near = x @ centroids.T - prices
    assert np.ptp(prices) > 0
    for n, leaves in enumerate(rows):
        order = np.argsort(-near[n])[: spill.CANDIDATES]
        assert leaves[0] == order[0]
        gap = near[n, order[0]] - near[n, order[1]]
        assert abs(gap - cells.border) < 1e-5 or (len(leaves) == 2) == (gap < cells.border)
        if len(leaves) == 2:
            r = x[n] - centroids[order[0]]
            others = x[n] - centroids[order[1:]]
            loss = (
                (others**2).sum(axis=1) + spill.WEIGHT * (others @ r / np.linalg.norm(r)) ** 2 + 2 * prices[order[1:]]
            )
            assert loss[order[1:].tolist().index(leaves[1])] == pytest.approx(loss.min(), abs=1e-5)


def test_a_document_on_its_centroid_has_no_residual_to_avoid_and_length_makes_no_difference(vectors):
    centroids = np.eye(M, dtype=np.float32)[:3]
    assert spill.second_leaves(centroids[:1], np.array([[0, 2, 1]]), centroids).tolist() == [1]
    others, near = vectors[9:], np.argsort(-(vectors[9:] @ vectors[:9].T), axis=1)
    wanted = spill.second_leaves(others, near, vectors[:9]).tolist()
    assert spill.second_leaves(6 * others, near, vectors[:9]).tolist() == wanted
