"""Measurements, each next to its baseline: `python -m benchmarks.NAME` (README.md)."""

import rayhier  # noqa: F401  before torch, so that OpenMP waits as it does in a run
