"""Curves: which beams, what a point counts, how a curve is read."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import whole_scan
from rayhier.evaluate.curve import Point, System, beams, mean_curve, measure_at, reach, read, read_values
from rayhier.search.segment.scan import ListedRows, scan


def point(visited, value, beam=1, cost=None):
    values = {"R@10": np.array([value, 2 * value])}
    return Point(beam, visited, visited, cost if cost is not None else visited, 1.0, {"R@10": value}, values)


CURVE = [point(0.2, 0.6, cost=0.4), point(0.1, 0.4, cost=0.2), point(0.1, 0.5, cost=0.2), point(0.5, 0.9, cost=0.9)]


def test_a_curve_is_read_between_points_in_the_order_of_visits():
    assert np.isnan(read(CURVE, 0.09, "R@10"))
    assert read_values(CURVE, 0.09, "R@10") is None
    for share, value in ((0.1, 0.5), (0.15, 0.55), (0.3, 0.7), (1.0, 0.9)):
        assert read(CURVE, share, "R@10") == pytest.approx(value)
        assert read_values(CURVE, share, "R@10").tolist() == pytest.approx([value, 2 * value])


def test_reach():
    curve = [point(*row) for row in ((0.1, 0.4, 1, 0.2), (0.2, 0.6, 1, 0.4), (0.3, 0.6, 1, 0.4), (0.5, 0.9, 1, 0.9))]
    found = [reach(curve, "R@10", target) for target in (0.3, 0.6, 0.75, 0.95)]
    assert found == pytest.approx([0.2, 0.4, 0.65, np.nan], nan_ok=True)
    assert reach(curve, "R@10", 0.5, "visited_mean") == pytest.approx(0.15)


@pytest.fixture
def small():
    """Leaf sizes 3, 0, 1; two queries probe leaves 0, 1, 2 in their own order."""
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1], [0.6, 0.8]], np.float32)
    rows, ids = ListedRows.of(vectors, np.array([3, 0, 1])), ["d0", "d1", "d2", "d3"]
    queries = Queries(["q0", "q1"], np.array([[1, 0], [0, 1]], np.float32), {"q0": {"d0": 1}, "q1": {"d2": 1}})

    def rank(beam):
        leaves = np.array([[0, 1, 2], [2, 0, 1]])[:, :beam]
        visited = rows.size_L[leaves].sum(axis=1)
        found = whole_scan(*scan(rows, queries.vector_QM, leaves, 2).arrays, pa.array(ids), visited)
        return replace(found, leaves_Q=(leaves >= 0).sum(axis=1))

    return System("s", 4, beams(3), rank, lambda beam: 2.0 * beam), queries


def test_a_point_by_hand(small):
    measured, queries = small
    judge = Judge(queries, ["R@10"])
    first, ranking = measure_at(measured, judge, 1)
    # q0 visits 3 of 4 documents and finds d0; q1 visits 1 and misses d2. Routing costs 2 documents of 4.
    named = [[ranking.ids[row] for row in rows if row >= 0] for rows in ranking.row_QK]
    assert named == [["d0", "d1"], ["d3"]]
    assert first == Point(1, 0.5, pytest.approx(0.25 + 0.95 * 0.5), 0.5 + 0.5, 1.0, {"R@10": 0.5})
    assert first.values["R@10"].tolist() == [1, 0]
    second = measure_at(measured, judge, 2)[0]
    assert second == Point(2, 0.875, pytest.approx(0.75 + 0.95 * 0.25), 0.875 + 1.0, 2.0, {"R@10": 1.0})


def test_a_single_query_takes_the_median_of_those_that_were_timed(small):
    measured, queries = small
    judge = Judge(queries, ["R@10"])
    assert measure_at(measured, judge, 1)[0].microseconds is None
    timed = replace(measured, seconds=lambda beam: np.array([9e-6, 1e-6, 2e-6]) * beam)
    points = [measure_at(timed, judge, beam)[0] for beam in (1, 2)]
    assert [point.microseconds for point in points] == pytest.approx([2, 4])
    assert points[0].flat()["microseconds"] == pytest.approx(2)
    assert mean_curve([points[:1], points[1:]])[0].microseconds == pytest.approx(3)
    # R@10 is .5 at the first and 1 at the second: half way between them.
    assert reach(points, "R@10", 0.75, "microseconds") == pytest.approx(3)
