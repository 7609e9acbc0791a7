"""Goals of the benchmark of filters: met by every number of results, or missed, which is the exit code."""

import math

import pytest

from benchmarks import filters
from benchmarks.filters import Outcome, goals


def outcome(share, k, recall):
    """A search that visits as many documents as its share has percent."""
    return Outcome(share, 100 * share, k, 9.0, visited=share, found=1.0, recall=recall, queries=3, enough=1, seconds=0)


def test_a_line_for_each_filter():
    given = [outcome(100, 10, 0.1), outcome(50, 10, 0.95), outcome(10, 10, 0.99), outcome(1, 10, 1.0)]
    given += [outcome(100, 100, 0.1), outcome(50, 100, 1.0), outcome(10, 100, 0.949), outcome(1, 100, math.nan)]
    said = "match, recall over that of exact search:"
    assert goals(given) == {
        f"met    50% {said} R@10 0.950, 50 documents visited; R@100 1.000, 50 documents visited (asked 0.95)": True,
        f"MISSED 10% {said} R@10 0.990, 10 documents visited; R@100 0.949, 10 documents visited (asked 0.95)": False,
        f"MISSED 1% {said} R@10 1.000, 1 documents visited; R@100 -, 1 documents visited (asked 0.95)": False,
    }


@pytest.mark.parametrize(("recalls", "code"), [((1.0, 1.0), 0), ((0.9, 1.0), 1), ((1.0, 0.9), 1)])
def test_a_goal_that_one_collection_misses_is_the_exit_code(monkeypatch, capsys, recalls, code):
    found = iter(recalls)
    monkeypatch.setattr(filters, "measured", lambda name, _: (name, [outcome(50, 10, next(found))]))
    monkeypatch.setattr(filters, "set_threads", lambda _: None)
    assert filters.main(["one", "other"]) == code
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "asked" in line]
    assert lines == ["met" if recall == 1 else "MISSED" for recall in recalls]
