"""An index of given vectors: what its metrics order, and changes beside an exact search of what is there."""

import os

import numpy as np
import pytest

from rayhier.adapters.vectors import METRICS, Space, VectorIndex
from rayhier.spec import InputError

N, M, K = 1_300, 12, 5


def drawn(count: int, seed: int) -> np.ndarray:
    """Vectors [count, 12] of many lengths, far from the origin."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, M)) * rng.uniform(0.2, 3, (count, 1)) + 2).astype(np.float32)


def nearest(metric: str, query_QM: np.ndarray, vectors: dict[int, np.ndarray], k: int) -> np.ndarray:
    """Numbers [q, k] of the best vectors, nearest first, each compared."""
    numbers, vector_NM = np.array(list(vectors)), np.array(list(vectors.values()), np.float64)
    score_QN = query_QM.astype(np.float64) @ vector_NM.T
    if metric == "angular":
        score_QN /= np.linalg.norm(vector_NM, axis=1)
    if metric == "euclidean":
        score_QN -= (vector_NM**2).sum(axis=1) / 2
    return numbers[np.argsort(-score_QN, axis=1)[:, :k]]


@pytest.mark.parametrize("metric", METRICS)
def test_products_in_a_space_order_as_its_metric_does(metric):
    vector_NM, query_QM = drawn(200, 0), drawn(20, 1)
    space = Space.of(metric, vector_NM[:150])  # the others come later
    product_QN = space.queries(query_QM).astype(np.float64) @ space.documents(vector_NM).astype(np.float64).T
    best_QK = np.argsort(-product_QN, axis=1)[:, :K]
    assert (best_QK == nearest(metric, query_QM, dict(enumerate(vector_NM)), K)).all()


def test_euclidean_vectors_become_equally_long():
    vector_NM = drawn(200, 0)
    length_N = np.linalg.norm(Space.of("euclidean", vector_NM).documents(vector_NM), axis=1)
    assert length_N == pytest.approx(length_N[0], rel=1e-4)
    same = np.ones((3, M), np.float32)
    assert np.isfinite(Space.of("euclidean", same).documents(same)).all()


class Beside:
    """An index, and a dictionary of what it should hold."""

    def __init__(self, metric: str, search: dict) -> None:
        self.metric, self.index, self.there = metric, VectorIndex(metric, K, {}), dict[int, np.ndarray]()
        self.index.search_as(search)
        self.query_QM = drawn(30, 2)

    def put(self, numbers: range, vector_NM: np.ndarray, *, replaces: bool = False) -> None:
        self.index.put(numbers, vector_NM, replaces=replaces)
        self.there.update(zip(numbers, vector_NM, strict=True))

    def delete(self, numbers: range) -> None:
        self.index.delete(numbers)
        for number in numbers:
            del self.there[number]

    def recall(self) -> float:
        true_QK = nearest(self.metric, self.query_QM, self.there, K)
        found_QK = self.index.search(self.query_QM, K)
        return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(true_QK, found_QK, strict=True)]))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("search", "least"), [({"beam": 2 * N}, 0.97), ({"beam": 300}, 0.9)])
def test_changes_are_found(metric, search, least, cache):
    before = set(cache.rglob("*"))
    drawn_NM, both = drawn(N, 3), Beside(metric, search)
    both.put(range(200), drawn_NM[:200])
    assert both.recall() > least
    both.put(range(200, N), drawn_NM[200:])
    assert both.recall() > least
    both.delete(range(100, 700))
    assert both.recall() > least
    both.put(range(100), drawn_NM[300:400], replaces=True)
    assert both.recall() > least
    index, sizes = both.index, [200, N, N - 600, N - 600]
    assert (index.visited == 30 * sum(sizes)) == (search["beam"] == 2 * N)
    with pytest.raises(InputError, match="1 in the index already"):
        index.put([5], drawn_NM[:1])
    with pytest.raises(InputError, match="1 not in the index"):
        index.delete([150])
    index.close()
    assert os.environ["RAYHIER_CACHE"] == str(cache)
    assert set(cache.rglob("*")) == before


def test_fewer_vectors_than_results_leave_places_empty():
    index = VectorIndex("ip", K, {})
    index.put([7, 3], np.array([[1, 0], [2, 0]], np.uint8))
    assert index.search(np.array([[1, 0]], np.uint8), 4).tolist() == [[3, 7, -1, -1]]


def test_fewer_vectors_than_leaves_are_refused():
    with pytest.raises(InputError, match="vectors: got 8; allowed: at first 9 or more"):
        VectorIndex("ip", K, {"router": {"branching": 9}}).put(range(8), drawn(8, 0))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"router": {"leaves": 3}}, "router.leaves"),
        ({"corpse": {}}, "corpse"),
        ({"router": {"branching": -1}}, "router.branching"),
    ],
)
def test_sections_that_are_not_allowed_are_named(sections, message):
    with pytest.raises(InputError, match=message):
        VectorIndex("ip", K, sections).put([1, 2], drawn(2, 0))


def test_a_metric_and_an_order_of_calls_are_refused():
    with pytest.raises(InputError, match="metric: got 'hamming'; allowed: angular, euclidean, ip"):
        VectorIndex("hamming", K, {})
    index = VectorIndex("ip", K, {})
    with pytest.raises(InputError, match="no vectors"):
        index.search(drawn(1, 0), K)
    with pytest.raises(InputError, match="no vectors"):
        index.delete([1])
