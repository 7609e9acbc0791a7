"""A server that is killed and whose model is swapped while clients change and read loses nothing, by a checker."""

import pytest

from tests.system.history.driver import Plan, checked

SMALL = Plan(operations=700, kills=2, swaps=1, failovers=0, seed=7, fold_documents=40)


@pytest.mark.parametrize(
    "plan",
    [SMALL, pytest.param(Plan(2_000, 15, 2, 3, seed=5, fold_documents=40), marks=pytest.mark.slow)],
)
def test_nothing_is_lost_doubled_or_mixed(tmp_path, plan):
    report = checked(plan, tmp_path / "history")
    assert not report.violations, "\n".join(map(str, report.violations))
    assert report.counts["operations"] >= plan.operations
    assert report.counts["killed"] >= plan.kills
    assert report.counts["swap"] == plan.swaps
    assert report.counts["changes"] > plan.operations / 20
    assert report.counts["fold: versions seen"] > 0
