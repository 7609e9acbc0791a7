"""A server that is killed and whose model is swapped while clients change and read loses nothing, by a checker."""

import pytest

from benchmarks.history.checker import check
from benchmarks.history.driver import Plan, drive


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_mixed(tmp_path):
    plan = Plan(operations=2_000, kills=3, swaps=2, seed=5, fold_documents=40, mounts=False)
    with drive(plan, tmp_path / "history", print).open() as lines:
        report = check(lines)
    assert [str(violation) for violation in report.violations] == []
    assert report.counts["operations"] >= plan.operations
    assert report.counts["killed"] >= plan.kills
    assert report.counts["swap"] == plan.swaps
    assert report.counts["fold: versions seen"] > 0
    assert report.counts["maintain: versions made"] > 0  # of so few, a kill may take each away before an answer
    assert report.counts["changes"] > 100
