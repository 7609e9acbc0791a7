"""What benchmarks share: prose of pages, plots, goals, arrays that are kept, and work that is timed."""

import numpy as np

from benchmarks import pages, statistics, tables
from benchmarks.machine import interleaved, medians
from benchmarks.quality.view import Places
from benchmarks.statistics import Curve, Estimate
from benchmarks.tables import Goal


def test_a_plot_is_saved_with_its_panels(tmp_path):
    path = tmp_path / "images" / "a.png"
    with pages.plot(path, 2) as panels:
        assert len(panels) == 2
        assert not path.exists()
    assert path.read_bytes().startswith(b"\x89PNG")
    assert pages.link("both", path) == "![both](images/a.png)"


def test_goals_as_a_table():
    given = [Goal("recall", 0.5, 0.6, seen="few"), Goal("seconds", None, 3, "most"), Goal("shown", 0.25, None)]
    assert tables.goal_table(given) == [
        "|  | value | limit |  |",
        "|---|---:|---:|---:|",
        "| recall | 0.500 | at least 0.6 | MISSED |",
        "| seconds | - | at most 3 | not measured |",
        "| shown | 0.250 | - |  |",
    ]
    assert not any(Goal("", value, 1, "most").met for value in (None, float("nan"), float("inf")))


def test_works_take_turns():
    order = []
    works = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    assert {name: len(seconds) for name, seconds in interleaved(works, 3).items()} == {"a": 3, "b": 3}
    assert order == ["a", "b"] * 4
    assert set(medians(works, 2)) == {"a", "b"}


def test_no_leaf_is_not_visited():
    places = Places(np.array([[0, 1], [1, 1], [2, 2]]), 3)
    probed_QL = places.probed(np.array([[1, -1], [0, 2]]))
    assert probed_QL.tolist() == [[False, True, False], [True, False, True]]
    assert [counts.tolist() for counts in places.counts(probed_QL)] == [[2, 2], [2, 2]]


def test_estimates():
    assert Estimate(1.04, -0.2, 2.3).shown == "+1.0 [-0.2, +2.3]"
    assert statistics.estimate(np.array([2.0, 1.0, 3.0])) == Estimate(value=2.0, low=1.05, high=2.95)
    assert statistics.draws(4, resamples=10).shape == (11, 4)
    assert statistics.paired(np.array([0.5, 0.75]), np.array([0.25, 0.5])).value == 25.0
    assert statistics.compared(np.array([[0.5, 0.5]]), np.array([[0.25, 0.25]])) == ["0.500", "+25.0 [+25.0, +25.0]"]


def test_curves_are_read_between_their_points():
    recall, visited, cost = (np.array(values)[:, None] for values in ([0.5, 1.0], [0.1, 0.3], [0.2, 0.4]))
    curve = Curve(recall, visited, cost, exact_Q=np.ones(1))
    assert statistics.reached(curve, [0.4, 0.75]).round(3).tolist() == [[0.1, 0.2]]
    assert np.isnan(statistics.reached(curve, [1.1])).all()
    np.testing.assert_allclose(
        statistics.recall_at(curve, [0.05, 0.1, 0.2, 0.3, 0.4]), [[np.nan, 0.5, 0.75, 1.0, np.nan]]
    )
    np.testing.assert_allclose(statistics.recall_at(curve, [0.3], "cost"), [[0.75]])
