"""Gather the rows of a range of leaves, from routed parts or an older version, into a shard. Does not import torch."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rayhier.index.shards import write_shard
from rayhier.storage import files
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.ledger import Ledger, LedgerEntry
from rayhier.storage.paths import Location
from rayhier.storage.schemas import Language


@dataclass(frozen=True)
class RoutedParts:
    paths: list[Location]
    digests: list[str]

    def rows(self, leaves: range) -> Iterator[pa.Table]:
        wanted = [("leaf", ">=", leaves.start), ("leaf", "<", leaves.stop)]
        return (files.read_table(path, filters=wanted) for path in self.paths)


@dataclass(frozen=True)
class VersionRows:
    leaf_map: LeafMap

    @property
    def digests(self) -> list[str]:
        return [file.sha256 for file in self.leaf_map.manifest.files]

    def rows(self, leaves: range) -> Iterator[pa.Table]:
        leaf_map = self.leaf_map
        return (
            leaf_map.read(shard, leaf_map.columns(shard), leaves=leaves, verify=False)
            for shard in leaf_map.manifest.shards
        )


RowSource = RoutedParts | VersionRows


class GatherShard:
    """A Ray actor that writes the rows of ranges of leaves as shards below `root`, and notes each in a ledger."""

    def __init__(
        self,
        root: Location,
        source: RowSource,
        counts: list[int],
        ledger: Location,
        made_of: str,
        *,
        words: Language | None,
    ) -> None:
        self.root, self.source, self.counts, self.made_of, self.words = root, source, counts, made_of, words
        self.ledger = Ledger(ledger, root)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        key, leaves = str(row["key"]), range(int(row["first"]), int(row["last"]))
        name, rows = f"data/{key}.parquet", self.source.rows(leaves)
        shard = write_shard(self.root, name, rows, leaves, self.counts, words=self.words)
        entry = {"made_of": self.made_of, "shard": shard.model_dump(mode="json")}
        self.ledger.enter(key, LedgerEntry(tuple(shard.files), entry))
        return {"rows": shard.rows}
