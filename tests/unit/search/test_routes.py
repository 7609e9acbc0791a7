"""Where queries go: leaves, a level of the tree, or nowhere; and parts of what was routed."""

from types import SimpleNamespace

import numpy as np
import pytest

from rayhier.model.encoded import Encoded
from rayhier.search.level_similarity import FlatQuery
from rayhier.search.routes import Routes, find_routes

VECTORS = np.eye(3, dtype=np.float32)


class Model:
    """Notes what it is asked; a query goes to the leaves from 5 on."""

    def __init__(self, similarity=None, *, dense=False):
        self.asked, self._similarity, self._dense = [], similarity, dense

    def flat_query(self, encoded):
        return None if self._similarity is None else self._similarity.query(encoded)

    def encode(self, texts):
        self.asked.append(("encode", list(texts)))
        return Encoded.of(VECTORS[: len(texts)])

    def route(self, encoded, beam):
        self.asked.append(("route", len(encoded), beam))
        leaves_QB = np.tile(np.arange(5, 5 + beam), (len(encoded), 1))
        return leaves_QB, -leaves_QB.astype(np.float32)

    def densities(self, leaves_QB, log_prob_QB):
        return log_prob_QB - 1 if self._dense else None


SIMILARITY = SimpleNamespace(query=lambda encoded: FlatQuery(encoded.numpy, None))


def test_texts_are_encoded_and_visit_leaves():
    model = Model()
    routes = find_routes(model, ["oak", "elm"], 2)
    assert model.asked == [("encode", ["oak", "elm"]), ("route", 2, 2)]
    assert routes.leaves_QB.tolist() == [[5, 6]] * 2
    assert routes.log_prob_QB.tolist() == [[-5, -6]] * 2
    assert (routes.log_density_QB, routes.flat) == (None, None)
    assert routes.encode_ms >= 0 <= routes.route_ms


def test_densities_are_there_where_the_router_has_them():
    assert find_routes(Model(dense=True), VECTORS, 1).log_density_QB.tolist() == [[-6]] * 3


def test_vectors_and_what_was_encoded_before_go_unencoded():
    model = Model()
    encoded = Encoded.of(VECTORS)
    assert find_routes(model, VECTORS, 1).encoded.numpy.tolist() == VECTORS.tolist()
    assert find_routes(model, encoded, 1).encoded is encoded
    assert model.asked == [("route", 3, 1)] * 2


def test_without_a_beam_queries_visit_nothing():
    model = Model()
    routes = find_routes(model, ["oak"], 0)
    assert model.asked == [("encode", ["oak"])]
    assert (routes.leaves_QB.shape, routes.log_prob_QB.shape, routes.flat) == ((1, 0), (1, 0), None)


def test_a_level_is_compared_with_where_the_spec_says_so():
    model = Model(SIMILARITY)
    routes = find_routes(model, VECTORS[:2], 0)
    assert model.asked == []
    assert routes.leaves_QB.shape == (2, 0)
    assert routes.flat.query_QK.tolist() == VECTORS[:2].tolist()


def test_a_request_that_names_a_beam_is_routed_to_leaves_of_a_tree_too():
    routes = find_routes(Model(SIMILARITY), VECTORS, 2)
    assert (routes.leaves_QB.tolist(), routes.flat) == ([[5, 6]] * 3, None)


@pytest.mark.parametrize("rows", [slice(0, 1), slice(1, 3), slice(2, 9), slice(3, 3)])
def test_a_part_is_that_of_some_queries(rows):
    numbers = np.arange(6).reshape(3, 2)
    level = FlatQuery(VECTORS, 2 * VECTORS)
    routes = Routes(Encoded.of(VECTORS), numbers, -numbers, numbers / 2, level, 1.0, 2.0, 3.0)
    part = routes.part(rows)
    np.testing.assert_array_equal(part.encoded.numpy, VECTORS[rows])
    np.testing.assert_array_equal(part.leaves_QB, numbers[rows])
    np.testing.assert_array_equal(part.log_prob_QB, -numbers[rows])
    np.testing.assert_array_equal(part.log_density_QB, numbers[rows] / 2)
    np.testing.assert_array_equal(part.flat.query_QK, VECTORS[rows])
    np.testing.assert_array_equal(part.flat.again_QX, 2 * VECTORS[rows])
    assert (part.encode_ms, part.route_ms, part.queue_ms) == (1.0, 2.0, 3.0)


def test_a_part_lacks_what_the_whole_lacks():
    part = Routes(Encoded.of(VECTORS), np.zeros((3, 0)), np.zeros((3, 0))).part(slice(1))
    assert (part.log_density_QB, part.flat) == (None, None)
