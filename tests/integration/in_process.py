"""Runs in this process, also where the session has a Ray cluster."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import faiss
import pytest
import torch


def make(spec: Path, *stages: str) -> None:
    """Run these stages of a spec, or all, in this process."""
    from rayhier import run

    with pytest.MonkeyPatch.context() as patch, threads_as_before():
        in_this_process(patch)
        assert run.main([str(spec), *(part for stage in stages for part in ("--stage", stage))]) == 0


def in_this_process(patch: pytest.MonkeyPatch) -> None:
    """Until `patch` is undone, `cluster.address: auto` finds no cluster."""
    patch.setattr("rayhier.executor.cluster.running", lambda: None)


@contextlib.contextmanager
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        faiss.omp_set_num_threads(before[1])
