"""Measure how far an index has drifted from its model's training data, and advise on compaction and training."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from rayhier.dataset.balance import balance
from rayhier.storage.leaf_map import Manifest, Shard

TOMBSTONES, ADDED, FILES = 0.2, 0.3, 64
"""Limits above which to compact: share of removed rows (TOMBSTONES), share of added rows (ADDED), number of files of
added rows (FILES)."""
IMBALANCE, SURPRISE, FEWEST_ADDED = 2.0, 1.0, 100
"""Limits above which to train again: imbalance of leaf sizes (IMBALANCE), and nats by which at least FEWEST_ADDED new
documents are less probable in their leaf than old ones (SURPRISE). Even documents of the same kind are 0.6 to 0.7 nats
less probable in leaves that were trained without them (docs/growing.md)."""


@dataclass(frozen=True)
class Stats:
    """Sizes, balance and drift of one version of an index."""

    version: int
    documents: int
    rows: int
    leaves: int
    empty: int
    imbalance: float
    """L·Σn²/(Σn)² over the numbers n of rows in the L leaves; 1 where all leaves have the same number."""
    void: float
    """Share of stored rows that belong to removed documents."""
    added: float
    """Share of stored rows that were added after the build or the last compaction."""
    files: int
    added_files: int
    added_documents: int
    bytes: int
    log_prob: float
    """Mean log-probability of a document's first leaf, over documents of the build or the last compaction."""
    added_log_prob: float | None
    """Mean log-probability of a document's first leaf, over documents added since; None where there are none."""
    moved: int

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Compute sizes, balance and drift from a version's manifest."""
        base = [shard for shard in manifest.shards if not is_added(shard)]
        added = [shard for shard in manifest.shards if is_added(shard)]
        stored = sum(shard.rows for shard in manifest.shards)
        spread = balance(np.array(manifest.counts))
        return cls(
            version=manifest.version,
            documents=manifest.documents,
            rows=manifest.rows,
            leaves=len(manifest.counts),
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
        )

    def advice(self) -> list[str]:
        """Return lines that advise to compact or to train again, with reasons; none where nothing is to do."""
        lines = []
        if self.void > TOMBSTONES:
            lines.append(
                f"compact: {self.void:.0%} of the stored rows are of removed documents (above {TOMBSTONES:.0%})"
            )
        if self.added > ADDED:
            lines.append(f"compact: {self.added:.0%} of the rows lie outside the sorted shards (above {ADDED:.0%})")
        if self.added_files > FILES:
            lines.append(f"compact: {self.added_files:,} files of added rows (above {FILES})")
        if self.imbalance > IMBALANCE:
            lines.append(f"retrain: imbalance {self.imbalance:.2f} (above {IMBALANCE})")
        gap = 0.0 if self.added_log_prob is None else self.log_prob - self.added_log_prob
        if gap > SURPRISE and self.added_documents >= FEWEST_ADDED:
            lines.append(f"retrain: new documents are {gap:.2f} nats less probable in their leaf (above {SURPRISE})")
        return lines


def is_added(shard: Shard) -> bool:
    """Return True if a shard was added after the build or the last compaction."""
    return shard.file.name.startswith(("data/added-", "data/folded-"))


def _mean(shards: list[Shard]) -> float:
    documents = sum(shard.documents for shard in shards)
    return sum(shard.documents * shard.log_prob for shard in shards) / max(documents, 1)
