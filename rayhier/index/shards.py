"""Write ranges of leaves as shards, parquet files in which leaves do not share row groups. Imports no torch."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.dataset.documents import document_texts
from rayhier.dataset.words import postings
from rayhier.spec import JobSpec
from rayhier.spec.corpus import Language
from rayhier.storage import parquet
from rayhier.storage.files import File
from rayhier.storage.ledger import Ledger, LedgerEntry
from rayhier.storage.paths import Location
from rayhier.storage.shard import Shard, Sidecar

GROUP_ROWS = 4096
SHARD_BYTES = 256 << 20
"""Approximate bytes of a shard on storage if `index.shards` is `auto`."""
FEWEST_SHARDS = 4
MAKER = b"rayhier.maker"
"""Key in the metadata of a field that makes its column a sidecar."""


def shard_count(spec: JobSpec, sizes: Iterable[int]) -> int:
    return max(FEWEST_SHARDS, -(-sum(sizes) // SHARD_BYTES)) if spec.index.shards == "auto" else spec.index.shards


def write_shard(
    root: Location,
    name: str,
    tables: Iterable[pa.Table],
    leaves: range,
    counts: Sequence[int],
    *,
    words: Language | None = "english",
) -> Shard:
    """Write the rows of a range of leaves to a shard. RuntimeError unless leaves have `counts` rows."""
    table = pa.concat_tables(tables)
    counted = np.bincount(table["leaf"].to_numpy() - leaves.start, minlength=len(leaves))
    if counted.tolist() != list(counts[leaves.start : leaves.stop]):
        raise RuntimeError(
            f"{root / name}: leaves {leaves.start} to {leaves[-1]} do not hold the rows that were counted"
        )
    return write_rows(root, name, table, words=words)


class DivideParts:
    """An actor that merges groups of parts, each sorted by leaf, and writes a file of the group for each shard.

    `GatherShard` then reads one file per group, and not some rows of each part. `ends`: shard -> its last leaf + 1.
    """

    def __init__(self, paths: list[Location], ends: dict[str, int], ledger: Ledger, made_of: str) -> None:
        self.paths, self.ends, self.ledger, self.made_of = paths, ends, ledger, made_of

    def __call__(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        key, files, rows = str(item["key"]), list[File](), 0
        paths = self.paths[int(item["first"]) : int(item["last"])]
        parts = [parquet.divided(path, "leaf", self.ends.values()) for path in paths]
        for shard, tables in zip(self.ends, zip(*parts, strict=True), strict=True):
            table = pa.concat_tables(tables)
            files.append(parquet.write(self.ledger.root, f"{key}/{shard}.parquet", [table], table.schema))
            rows += table.num_rows
            yield {"rows": table.num_rows}
        self.ledger.enter(key, LedgerEntry(tuple(files), {"made_of": self.made_of, "rows": rows}))


class GatherShard:
    """An actor that writes the rows of ranges of leaves as shards. Each of `folders` has a file for each shard."""

    def __init__(
        self, folders: list[Location], counts: list[int], ledger: Ledger, made_of: str, *, words: Language | None
    ) -> None:
        self.folders, self.counts, self.ledger, self.made_of, self.words = folders, counts, ledger, made_of, words

    def __call__(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        key, leaves = str(item["key"]), range(int(item["first"]), int(item["last"]))
        rows = (parquet.read(folder / f"{key}.parquet") for folder in self.folders)
        shard = write_shard(self.ledger.root, f"data/{key}.parquet", rows, leaves, self.counts, words=self.words)
        entry = {"made_of": self.made_of, "rows": shard.rows, "shard": shard.model_dump(mode="json")}
        self.ledger.enter(key, LedgerEntry(tuple(shard.files), entry))
        yield {"rows": shard.rows}


def write_rows(
    root: Location, name: str, table: pa.Table, since: int = 1, *, words: Language | None = "english"
) -> Shard:
    """Write rows of the leaf map to the shard `root/name`, and sidecars and words to their own files."""
    table = table.sort_by([("leaf", "ascending"), ("rank", "ascending"), ("doc_id", "ascending")])
    leaves, begins = np.unique(table["leaf"].to_numpy(), return_index=True)
    offsets = [*begins.tolist(), table.num_rows]
    metadata = {field.name: field.metadata or {} for field in table.schema}
    makers = {name: held[MAKER].decode() for name, held in metadata.items() if MAKER in held}

    def write(file: str, columns: pa.Table) -> File:
        return parquet.write(root, file, row_groups(columns, offsets), columns.schema)

    first, stem = table.filter(pc.equal(table["rank"], 0)), name.removesuffix(".parquet")
    counted = None
    if words is not None:
        first_N = np.flatnonzero(table["rank"].to_numpy() == 0)
        lists = postings(document_texts(first), first_N, words)
        counted = parquet.write(root, f"words/{Path(name).name}", [lists], lists.schema)
    return Shard(
        file=write(name, table.drop_columns(list(makers))),
        rows=table.num_rows,
        documents=first.num_rows,
        leaves=leaves.tolist(),
        offsets=offsets,
        log_prob=float(pc.mean(first["log_prob"]).as_py() or 0.0),
        since=since,
        sidecars={
            column: Sidecar(file=write(f"{stem}.{column}.parquet", table.select([column])), maker=maker)
            for column, maker in makers.items()
        },
        postings=counted,
    )


def sidecar(name: str, kind: pa.DataType, maker: str) -> pa.Field:
    """Make the field of a sidecar's column. `maker` is the fingerprint of the model that computes its values."""
    return pa.field(name, kind, metadata={MAKER: maker})


def row_groups(table: pa.Table, offsets: Sequence[int]) -> Iterator[pa.Table]:
    """Yield slices of whole leaves, each of at least `GROUP_ROWS` rows. The last slice may be smaller."""
    begin = 0
    for end in offsets[1:]:
        if end - begin >= GROUP_ROWS or (end == offsets[-1] and end > begin):
            yield table.slice(begin, end - begin)
            begin = end
