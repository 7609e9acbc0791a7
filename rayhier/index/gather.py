"""Gather the rows of a range of leaves from routed parts into a shard. Does not import torch."""

from dataclasses import dataclass
from typing import Any

from rayhier.index.shards import write_shard
from rayhier.storage import files
from rayhier.storage.ledger import Ledger, LedgerEntry
from rayhier.storage.paths import Location
from rayhier.storage.schemas import Language


@dataclass(frozen=True)
class RoutedParts:
    paths: list[Location]
    digests: list[str]


class GatherShard:
    """A Ray actor that writes the rows of ranges of leaves as shards below `root`, and notes each in a ledger."""

    def __init__(
        self,
        root: Location,
        paths: list[Location],
        counts: list[int],
        ledger: Location,
        made_of: str,
        *,
        words: Language | None,
    ) -> None:
        self.root, self.paths, self.counts, self.made_of, self.words = root, paths, counts, made_of, words
        self.ledger = Ledger(ledger, root)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        key, leaves = str(row["key"]), range(int(row["first"]), int(row["last"]))
        wanted = [("leaf", ">=", leaves.start), ("leaf", "<", leaves.stop)]
        rows = (files.read_table(path, filters=wanted) for path in self.paths)
        shard = write_shard(self.root, f"data/{key}.parquet", rows, leaves, self.counts, words=self.words)
        entry = {"made_of": self.made_of, "shard": shard.model_dump(mode="json")}
        self.ledger.enter(key, LedgerEntry(tuple(shard.files), entry))
        return {"rows": shard.rows}
