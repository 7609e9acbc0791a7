"""Where the index puts documents is where training placed them, and where a scan written out by hand does."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.index.assign import Assigner
from rayhier.model.encoded import Encoded
from rayhier.model.placing import place
from rayhier.model.router import load_router, save_router
from rayhier.model.spill import CANDIDATES, WEIGHT
from rayhier.spec import JobSpec
from rayhier.spec.index import SPILLED
from rayhier.storage import schemas
from rayhier.train.learned_ivf.kmeans_start import make_router, settle

from ..draws import to_unit

N, M = 500, 12
IDS = [f"d{row:03d}" for row in range(N)]
ROUTERS = {"flat": {"branching": 40}, "few": {"branching": 9}}


def job(router):
    least = {"name": "t", "workdir": "w", "corpus": {"type": "python_docs"}, "encoder": {"model": "package:none"}}
    return JobSpec.model_validate({**least, "router": {"type": "learned_ivf", **router}})


@pytest.fixture(scope="module")
def vectors():
    """Half of them crowded."""
    rng = np.random.default_rng(0)
    found = rng.normal(size=(N, M)) + np.eye(M)[0] * 3 * (np.arange(N) % 2)[:, None]
    return to_unit(found).astype(np.float32)


class Case:
    """A taught router that knows its documents, and the leaf map's rows of it."""

    def __init__(self, spec, vectors, folder):
        self.spec = spec
        self.router = make_router(spec.router, vectors, 0)
        self.leaf_NR = settle(self.router, vectors, spec, 0)
        save_router(self.router, folder)
        self.table = Assigner(load_router(folder), spec)(
            pa.table([IDS, IDS, IDS], schema=schemas.DOCUMENTS), Encoded(vectors)
        )

    def rows(self):
        """Leaves of every document in the leaf map, by rank."""
        found = {name: {} for name in IDS}
        for row in self.table.select(["doc_id", "leaf", "rank", "leaves"]).to_pylist():
            assert row["rank"] not in found[row["doc_id"]]
            assert row["leaves"][row["rank"]] == row["leaf"]
            found[row["doc_id"]][row["rank"]] = row["leaf"]
        return [[own[rank] for rank in sorted(own)] for own in found.values()]


@pytest.mark.parametrize("name", ROUTERS)
def test_the_leaf_map_is_what_was_taught(vectors, tmp_path, name):
    case = Case(job(ROUTERS[name]), vectors, tmp_path)
    taught = [list(dict.fromkeys(own)) for own in case.leaf_NR.tolist()]
    assert case.rows() == taught
    assert np.array_equal(place(case.router, Encoded(vectors), 2)[0], case.leaf_NR)
    held = np.bincount([leaf for own in taught for leaf in own], minlength=case.router.n_leaves)
    np.testing.assert_allclose(case.router.log_size_L, np.log(held + 0.5), rtol=1e-6)
    two = np.mean([len(own) == 2 for own in taught])
    assert two == pytest.approx(SPILLED, abs=0.1)


def test_by_hand(vectors, tmp_path):
    """The first leaf is the nearest after price; the second, near a border, SOAR's of the 32 nearest after price."""
    case = Case(job(ROUTERS["flat"]), vectors, tmp_path)
    cells, x = case.router.cells, vectors.astype(np.float64)
    centroids, prices = cells.centroid_LM.double().numpy(), cells.price_L.double().numpy()
    near = x @ centroids.T - prices
    assert np.ptp(prices) > 0
    for n, leaves in enumerate(case.rows()):
        order = np.argsort(-near[n])[:CANDIDATES]
        assert leaves[0] == order[0]
        gap = near[n, order[0]] - near[n, order[1]]
        assert abs(gap - cells.border) < 1e-5 or (len(leaves) == 2) == (gap < cells.border)
        if len(leaves) == 2:
            r = x[n] - centroids[order[0]]
            others = x[n] - centroids[order[1:]]
            loss = (others**2).sum(axis=1) + WEIGHT * (others @ r / np.linalg.norm(r)) ** 2 + 2 * prices[order[1:]]
            assert loss[order[1:].tolist().index(leaves[1])] == pytest.approx(loss.min(), abs=1e-5)
