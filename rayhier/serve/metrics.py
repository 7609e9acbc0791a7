"""Metrics of a server: durations, documents visited, sizes of batches, calls of the cross-encoder, partial answers.

A server of one process answers `GET /metrics` with the metrics. Under Ray Serve, Ray exports the metrics for Prometheus
on every node, with `ray_` before each name. The dashboard jobs/grafana.json draws the metrics.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30]
DOCUMENTS = [10, 30, 100, 300, 1_000, 3_000, 10_000, 100_000, 1_000_000]
SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
HISTOGRAMS: dict[str, tuple[str, Sequence[float], tuple[str, ...]]] = {
    "rayhier_request_seconds": ("Seconds of a request.", SECONDS, ("path", "status")),
    "rayhier_stage_seconds": ("Seconds of a search by stage.", SECONDS, ("stage",)),
    "rayhier_visited_documents": ("Documents scored for a query.", DOCUMENTS, ()),
    "rayhier_batch_size": ("Queries that were encoded or scanned together.", SIZES, ("stage",)),
}
"""Histograms by name: description, upper bounds of the buckets, names of the tags."""
COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "rayhier_calls": ("Documents that a cross-encoder read.", ()),
    "rayhier_partial": ("Answers without the documents of a group, by group.", ("group",)),
    "rayhier_audited": ("Queries that were also searched exactly.", ()),
    "rayhier_audits_skipped": ("Queries that were drawn for an exact search, but skipped.", ()),
}
"""Counters by name: description, names of the tags."""
VERSION, RECALL = "rayhier_version", "rayhier_recall"
GAUGES = {
    VERSION: "Version of the index that is served.",
    RECALL: "Share of the exact best documents that searches by vectors find, for the newest audited queries.",
    f"{RECALL}_low": "Lower end of the 95% interval of rayhier_recall.",
    f"{RECALL}_high": "Upper end of the 95% interval of rayhier_recall.",
}
NAMES = (*HISTOGRAMS, *COUNTERS, *GAUGES)
"""Names of all metrics, without Ray's prefix."""


class Instruments(Protocol):
    """Interface of a store of metrics, such as Prometheus's or Ray's: histograms, counters and gauges by name."""

    def observe(self, name: str, value: float, tags: Mapping[str, str]) -> None: ...

    def count(self, name: str, value: float, tags: Mapping[str, str]) -> None: ...

    def set(self, name: str, value: float) -> None: ...


class Prometheus:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._all: dict[str, Any] = {
            name: Histogram(name, what, tags, buckets=bounds, registry=self.registry)
            for name, (what, bounds, tags) in HISTOGRAMS.items()
        }
        self._all |= {
            name: Counter(name, what, tags, registry=self.registry) for name, (what, tags) in COUNTERS.items()
        }
        self._of_tags = dict[tuple[str, ...], Any]()
        self._all |= {name: Gauge(name, what, registry=self.registry) for name, what in GAUGES.items()}
        for name in GAUGES:
            self.set(name, math.nan)  # until the first value

    def observe(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        self._of(name, tags).observe(value)

    def count(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        self._of(name, tags).inc(value)

    def set(self, name: str, value: float) -> None:
        self._all[name].set(value)

    def _of(self, name: str, tags: Mapping[str, str]) -> Any:
        key = name, *tags.values()
        if key not in self._of_tags:
            self._of_tags[key] = self._all[name].labels(**tags) if tags else self._all[name]
        return self._of_tags[key]


class Metrics:
    """Records the metrics of a server's requests, searches, batches and version."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Record a request: its path as the API names it, its HTTP status, and its duration in seconds."""
        self._instruments.observe("rayhier_request_seconds", seconds, {"path": path, "status": str(status)})

    def searched(
        self, ms: Mapping[str, float], visited: Sequence[int], lost: Sequence[Sequence[str]], calls: int
    ) -> None:
        """Record a search: milliseconds by step, documents visited and lost groups per query, and calls."""
        for stage, value in ms.items():
            self._instruments.observe("rayhier_stage_seconds", value / 1e3, {"stage": stage})
        for documents in visited:
            self._instruments.observe("rayhier_visited_documents", documents, {})
        for groups in lost:
            for group in groups:
                self._instruments.count("rayhier_partial", 1, {"group": group})
        if calls:
            self._instruments.count("rayhier_calls", calls, {})

    def batched(self, stage: str, size: int) -> None:
        self._instruments.observe("rayhier_batch_size", size, {"stage": stage})

    def serves(self, version: int) -> None:
        self._instruments.set(VERSION, version)

    def audited(self, mean: float, low: float, high: float) -> None:
        """Record an audited query, the recall as served and its 95% interval."""
        self._instruments.count("rayhier_audited", 1, {})
        for name, value in ((RECALL, mean), (f"{RECALL}_low", low), (f"{RECALL}_high", high)):
            self._instruments.set(name, value)

    def skipped(self) -> None:
        self._instruments.count("rayhier_audits_skipped", 1, {})
