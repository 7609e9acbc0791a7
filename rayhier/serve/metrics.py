"""What a server shows of itself: metrics through ray.util.metrics, which Ray exports for Prometheus on every node.

Ray puts `ray_` before the names. jobs/grafana.json draws them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ray.util.metrics import Counter, Gauge, Histogram

SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30]
"""Upper bounds of the buckets of durations."""
DOCUMENTS = [10, 30, 100, 300, 1_000, 3_000, 10_000, 100_000, 1_000_000]
"""Upper bounds of the buckets of documents visited."""
SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
"""Upper bounds of the buckets of batch sizes."""


def _seconds(name: str, what: str, *tags: str) -> Histogram:
    return Histogram(name, description=what, boundaries=SECONDS, tag_keys=tags)


@dataclass(frozen=True)
class Metrics:
    """The metrics of one ingress."""

    requests: Histogram = field(
        default_factory=lambda: _seconds("rayhier_request_seconds", "Seconds of a request.", "path", "status")
    )
    stages: Histogram = field(
        default_factory=lambda: _seconds("rayhier_stage_seconds", "Seconds of a search by stage.", "stage")
    )
    visited: Histogram = field(
        default_factory=lambda: Histogram(
            "rayhier_visited_documents", description="Documents scored for a query.", boundaries=DOCUMENTS
        )
    )
    batches: Histogram = field(
        default_factory=lambda: Histogram(
            "rayhier_batch_size",
            description="Questions that were asked together.",
            boundaries=SIZES,
            tag_keys=("stage",),
        )
    )
    calls: Counter = field(
        default_factory=lambda: Counter("rayhier_calls", description="Documents that a cross-encoder read.")
    )
    partial: Counter = field(
        default_factory=lambda: Counter(
            "rayhier_partial", description="Answers that lack a group, by the group.", tag_keys=("group",)
        )
    )
    version: Gauge = field(
        default_factory=lambda: Gauge("rayhier_version", description="Version of the index that is served.")
    )

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Note an answered request: its path as the API names it, its status, and how long it took."""
        self.requests.observe(seconds, {"path": path, "status": str(status)})

    def searched(self, ms: Mapping[str, float], visited: Sequence[int], lost: Sequence[Sequence[str]]) -> None:
        """Note a search: milliseconds by stage, documents visited by each query, and the groups that each lacks."""
        for stage, value in ms.items():
            self.stages.observe(value / 1e3, {"stage": stage})
        for documents in visited:
            self.visited.observe(documents)
        for groups in lost:
            for group in groups:
                self.partial.inc(1, {"group": group})

    def batched(self, stage: str, size: int) -> None:
        """Note the size of a batch of a stage."""
        self.batches.observe(size, {"stage": stage})

    def read(self, calls: int) -> None:
        """Note documents that a cross-encoder read."""
        if calls:
            self.calls.inc(calls)


NAMES = (
    "rayhier_request_seconds",
    "rayhier_stage_seconds",
    "rayhier_visited_documents",
    "rayhier_batch_size",
    "rayhier_calls",
    "rayhier_partial",
    "rayhier_version",
)
"""Names of all metrics, without Ray's prefix."""
