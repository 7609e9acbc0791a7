"""Queries that visit leaves of a least relative density, with and without codes before the router."""

import numpy as np
import pytest
import torch

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import SCALE
from rayhier.model.router import route_all
from rayhier.search.coded_router import CodedRouter
from rayhier.search.promised_beam import PromisedBeam

from .test_coded_router import L, M, made

Q, K = 40, 20


@pytest.fixture(scope="module")
def router():
    return made()


@pytest.fixture(scope="module", params=[False, True], ids=["all leaves", "codes first"])
def finds(request, router):
    return CodedRouter(router) if request.param else router


@pytest.fixture(scope="module")
def queries(router):
    rng = np.random.default_rng(1)
    near = router.W[0].numpy()[rng.integers(0, L, Q)] / SCALE + 0.08 * rng.normal(size=(Q, M))
    return Encoded(torch.tensor(near / np.linalg.norm(near, axis=1, keepdims=True), dtype=torch.float32))


def visited(leaf_NK):
    return [set(row[row >= 0].tolist()) for row in leaf_NK]


def relative(router, queries):
    """Log densities of all leaves less that of the eleventh, for twenty results."""
    density_QL = router.log_probs(queries.vectors)[-1] - router.log_size_L
    return density_QL - density_QL.sort(dim=1, descending=True).values[:, K // 2, None]


@pytest.mark.parametrize("floor", [2.0, 0.5, -0.5, -2.0, -6.0, -50.0])
def test_a_query_visits_the_leaves_of_at_least_the_floor(router, queries, floor):
    leaf_QK, log_p_QK = route_all(PromisedBeam(router, router, K, floor), queries, L)
    for found, log_p, density in zip(leaf_QK, log_p_QK, relative(router, queries), strict=True):
        kept = found[found >= 0]
        assert set(kept.tolist()) == {*torch.where(density >= floor)[0].tolist(), int(density.argmax())}
        assert (density[kept].diff() <= 1e-4).all()
        assert (log_p[found < 0] == -torch.inf).all()
    assert leaf_QK.shape[1] == max(map(len, visited(leaf_QK)))


@pytest.mark.parametrize("floor", [2.0, 0.5, -0.5, -2.0, -6.0, -50.0])
def test_the_floors_of_leaves_tell_which_are_visited(router, finds, queries, floor):
    floor_QL = PromisedBeam(router, finds, K, 0.0).floors(queries)
    leaf_QK, _ = route_all(PromisedBeam(router, finds, K, floor), queries, L)
    for found, largest in zip(visited(leaf_QK), floor_QL, strict=True):
        promised = set(torch.where(largest >= floor)[0].tolist())
        assert promised <= found
        assert len(found - promised) <= max(1, 0.01 * len(found))  # codes may miss a leaf, more leaves may find it


def test_codes_visit_nearly_the_same_leaves(router, queries):
    for floor in (0.5, -1.0, -6.0):
        plain, coded = (
            visited(route_all(PromisedBeam(router, finds, K, floor), queries, L)[0])
            for finds in (router, CodedRouter(router))
        )
        shared = np.mean([len(one & other) / len(one) for one, other in zip(plain, coded, strict=True)])
        assert shared > 0.9


def test_queries_together_and_alone_visit_the_same(router, finds, queries):
    promised = PromisedBeam(router, finds, K, -1.0)
    together = visited(route_all(promised, queries, L)[0])
    assert len({len(leaves) for leaves in together}) > 3
    assert together == [visited(route_all(promised, queries[row : row + 1], L)[0])[0] for row in range(Q)]


def test_at_most_a_beam_and_at_least_a_leaf(router, queries):
    plain = route_all(router, queries, 3)[0]
    assert torch.equal(route_all(PromisedBeam(router, router, K, -50.0), queries, 3)[0], plain)
    assert torch.equal(route_all(PromisedBeam(router, router, K, 1e9), queries, 3)[0], plain[:, :1])
    assert route_all(PromisedBeam(router, router, K, 0.0), queries[:0], L)[0].shape[0] == 0
