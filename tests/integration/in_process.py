"""Runs in this process, also where the session has a Ray cluster."""

from pathlib import Path

import pytest

from rayhier.threads import threads


def make(spec: Path, *stages: str) -> None:
    """Run these stages of a spec, or all, in this process."""
    from rayhier import run

    with pytest.MonkeyPatch.context() as patch, threads():
        in_this_process(patch)
        assert run.main([str(spec), *(part for stage in stages for part in ("--stage", stage))]) == 0


def in_this_process(patch: pytest.MonkeyPatch) -> None:
    """Until `patch` is undone, `cluster.address: auto` finds no cluster."""
    patch.setattr("rayhier.executor.cluster.running", lambda: None)
