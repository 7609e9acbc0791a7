"""Measure how far an index has drifted from the corpus that its model was trained on, and advise what to do."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

import numpy as np

from rayhier.arrays import Ints
from rayhier.dataset.balance import balance
from rayhier.spec import JobSpec
from rayhier.spec.index import MOST_SMALL
from rayhier.storage.leaf_map import Manifest
from rayhier.storage.shard import Shard

TOMBSTONES, ADDED, FILES = 0.2, 0.3, 64
"""Limits above which to compact: share of removed rows, share of added rows, number of files of added rows."""
IMBALANCE = 2.0
"""Imbalance above which to train again, if the router's leaves cannot be split."""
SURPRISE, FEWEST_ADDED = 1.6, 100
"""Limit in nats above which to train again: how much less probable new documents are in their leaf than old documents.
At least FEWEST_ADDED must be new. Documents of the same kind have 0.6 to 1.2. A new topic has 1.5, and other
collections have 1.7 to 2.3 (docs/results/growing.md)."""
NORMAL = 1.96
GROWN, SHRUNK = 1.5, 0.25
"""Leaves above and below these multiples of the mean rows in a rebuilt index are split or removed."""
FEWEST = 3
"""Largest number of rows of a leaf that is never split."""
EVEN = 1.2
DEAR, EMPTIER = 1.25, 0.2
"""Values of `Due.dear` and `Due.emptier` above which leaves need maintenance."""


@dataclass(frozen=True)
class Due:
    """Comparison of the leaves of a version with those of a rebuilt index."""

    mean: float
    dear: float
    """Rows that searches compare, as a multiple of those in a rebuilt index. Large leaves are visited most."""
    grown: Ints
    shrunk: Ints
    emptier: float
    """Share of the leaves in use that should be removed."""

    @classmethod
    def of(cls, manifest: Manifest, spec: JobSpec) -> Self:
        """Compute how even the leaves of a version are. Leaves that maintenance removed do not count."""
        count_L, documents = np.array(manifest.counts), max(1, manifest.documents)
        # Above MOST_SMALL documents, indexes have fewer leaves, as leaves hold codes. Grown indexes keep their leaves.
        leaves = max(spec.leaves(documents), spec.leaves(min(documents, MOST_SMALL)))
        mean = max(1, manifest.rows) / leaves
        dear = float((count_L**2).sum() / max(1, manifest.rows)) / (EVEN * mean)
        shrunk = np.flatnonzero(count_L < SHRUNK * mean)
        if manifest.revision is not None:
            shrunk = shrunk[count_L[shrunk] > 0]
        grown = np.flatnonzero(count_L > largest(mean))
        return cls(mean, dear, grown, shrunk, len(shrunk) / max(1, manifest.leaves))

    def advice(self) -> list[str]:
        lines = []
        if self.dear > DEAR and len(self.grown):
            times = f"searches compare {self.dear:.2f} times the rows of a rebuilt index (above {DEAR})"
            lines.append(f"maintain: {times}. {len(self.grown):,} leaves should be split")
        if self.emptier > EMPTIER:
            lines.append(f"maintain: {self.emptier:.0%} of the leaves are nearly empty (above {EMPTIER:.0%})")
        return lines


def largest(mean: float) -> float:
    return max(GROWN * mean, FEWEST)


@dataclass(frozen=True)
class ServedRecall:
    """Mean share of the exact best documents that searches found for some queries, with its 95% interval."""

    mean: float
    low: float
    high: float
    queries: int
    since: str
    """Time of the first query, in UTC (ISO 8601)."""

    @classmethod
    def of(cls, shares: Sequence[float], began: float) -> Self:
        """Compute the mean and Wilson's interval of queries' shares. `began` is the first query's UNIX time.

        Wilson's interval is for outcomes 0 and 1. Shares with the same mean vary less, so the interval may be too wide.

        >>> recall = ServedRecall.of([1.0] * 98 + [0.5] * 2, 0)
        >>> recall.mean, round(recall.low, 3), round(recall.high, 3), recall.since
        (0.99, 0.946, 0.998, '1970-01-01T00:00:00+00:00')
        """
        n, mean = len(shares), math.fsum(shares) / len(shares)
        centre = mean + NORMAL**2 / (2 * n)
        spread = NORMAL * math.sqrt(mean * (1 - mean) / n + (NORMAL / (2 * n)) ** 2)
        low, high = ((centre + side * spread) / (1 + NORMAL**2 / n) for side in (-1, 1))
        since = datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds")
        return cls(mean, max(0.0, low), min(1.0, high), n, since)


def recall_advice(served: ServedRecall, on_dev: float | None) -> list[str]:
    """Advise to train again if the whole interval of recall as served is below `on_dev`, the recall of dev queries."""
    if on_dev is None or served.high >= on_dev:
        return []
    interval = f"{served.low:.1%} to {served.high:.1%}, {served.queries:,} queries"
    told = f"searches find {served.mean:.1%} of the exact best documents ({interval})"
    return [f"retrain: {told}, less than the {on_dev:.1%} on dev. Or set a larger search.beam"]


@dataclass(frozen=True)
class Stats:
    version: int
    documents: int
    rows: int
    leaves: int
    empty: int
    imbalance: float
    """L·Σn²/(Σn)² over the numbers n of rows in the L leaves. 1 if all leaves have the same number."""
    void: float
    added: float
    files: int
    added_files: int
    added_documents: int
    bytes: int
    log_prob: float
    added_log_prob: float | None
    """Mean log-probability of a document's first leaf, over documents added after the build or last compaction."""
    moved: int
    due: Due | None = None
    """Leaves that need maintenance. None if leaves do not split, or the spec is not known."""

    @classmethod
    def of(cls, manifest: Manifest, spec: JobSpec | None = None) -> Self:
        base = [shard for shard in manifest.shards if not is_added(shard)]
        added = [shard for shard in manifest.shards if is_added(shard)]
        stored = sum(shard.rows for shard in manifest.shards)
        counts = [count for count in manifest.counts if count or manifest.revision is None]
        spread = balance(np.array(counts))
        return cls(
            version=manifest.version,
            documents=manifest.documents,
            rows=manifest.rows,
            leaves=manifest.leaves,
            empty=int(spread["empty"]),
            imbalance=spread["imbalance"],
            void=1 - manifest.rows / stored if stored else 0.0,
            added=sum(shard.rows for shard in added) / stored if stored else 0.0,
            files=len(manifest.files),
            added_files=len(added),
            added_documents=sum(shard.documents for shard in added),
            bytes=sum(file.bytes for file in manifest.files),
            log_prob=_mean(base),
            added_log_prob=_mean(added) if added else None,
            moved=manifest.moved,
            due=Due.of(manifest, spec) if spec is not None and spec.router.splits_leaves else None,
        )

    def advice(self) -> list[str]:
        """Return advice to compact, maintain or train again, with a reason for each limit that is exceeded."""
        lines = []
        if self.void > TOMBSTONES:
            lines.append(
                f"compact: {self.void:.0%} of the stored rows are of removed documents (above {TOMBSTONES:.0%})"
            )
        if self.added > ADDED:
            lines.append(f"compact: {self.added:.0%} of the rows lie outside the sorted shards (above {ADDED:.0%})")
        if self.added_files > FILES:
            lines.append(f"compact: {self.added_files:,} files of added rows (above {FILES})")
        if self.due is not None:
            lines += self.due.advice()
        elif self.imbalance > IMBALANCE:
            lines.append(f"retrain: imbalance {self.imbalance:.2f} (above {IMBALANCE})")
        gap = 0.0 if self.added_log_prob is None else self.log_prob - self.added_log_prob
        if gap > SURPRISE and self.added_documents >= FEWEST_ADDED:
            lines.append(f"retrain: new documents are {gap:.2f} nats less probable in their leaf (above {SURPRISE})")
        return lines


def is_added(shard: Shard) -> bool:
    return shard.file.name.startswith(("data/added-", "data/folded-", "data/moved-"))


def _mean(shards: list[Shard]) -> float:
    documents = sum(shard.documents for shard in shards)
    return sum(shard.documents * shard.log_prob for shard in shards) / max(documents, 1)
