"""Describe each node of an index's tree for people: size, keywords, representative documents."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Ints
from rayhier.index.display import DisplayTree
from rayhier.index.leaf_keywords import COUNTS, counted, keywords
from rayhier.storage import files, schemas
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import Location

KEYWORDS, DOCUMENTS = 12, 3
"""Most keywords (KEYWORDS) and most representative documents (DOCUMENTS) of a node."""
WORDS, BEST = "words", "best"
"""Beginnings of the names of the two files that describe a shard: counts of words, and each leaf's best documents."""
READ = ("doc_id", "leaf", "rank", "log_prob", "title", "text")
ROWS_A_BUCKET = 50_000
"""Number of rows, about, whose words make one bucket; the word counts of a bucket must fit in memory."""


class DescribeShard:
    """A Ray actor that describes shards: counts the words of each leaf, and finds each leaf's best documents."""

    def __init__(self, leaf_map: LeafMap, scratch: Location) -> None:
        self.leaf_map, self.scratch = leaf_map, scratch

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Describe the shard number `row["shard"]`, in files below scratch; returns its number of documents."""
        return {"rows": write_part(self.leaf_map, int(row["shard"]), self.scratch)}


@dataclass(frozen=True)
class ShardDescription:
    """Description of a shard: counts of words, and documents that most probably lie in its leaves."""

    words: Location
    total_L: Ints
    """Number [leaves] of occurrences of words in each leaf's documents, each document in its best leaf only."""
    best: pa.Table


def write_part(leaf_map: LeafMap, number: int, scratch: Location) -> int:
    shard = leaf_map.manifest.shards[number]
    rows = leaf_map.read(shard, READ, verify=False)
    first = rows.filter(pc.equal(rows["rank"], 0))
    best = first.select(["leaf", "log_prob", "doc_id"])
    best = best_of(best, best["leaf"].to_numpy())
    counts = counted(first, buckets(leaf_map.manifest.counts))
    for name, tables, schema in ((WORDS, counts, COUNTS), (BEST, [best], best.schema)):
        files.write_parquet(scratch, f"{name}-{number:05d}.parquet", tables, schema)
    return shard.documents


def written_part(scratch: Location, number: int, leaves: int) -> ShardDescription:
    """Read the description of a shard, by its number; counts of words stay on storage."""
    words, best = (scratch / f"{name}-{number:05d}.parquet" for name in (WORDS, BEST))
    counts = files.read_table(words, ["leaf", "count"])
    total_L = np.bincount(counts["leaf"].to_numpy(), weights=counts["count"].to_numpy(), minlength=leaves)
    return ShardDescription(words, total_L, files.read_table(best))


def buckets(size_L: Sequence[int] | Ints) -> int:
    """Return the number of buckets among which an index's words are divided, from the rows of its leaves."""
    return max(1, -(-int(sum(size_L)) // ROWS_A_BUCKET))


def describe(leaf_map: LeafMap, tree: DisplayTree) -> pa.Table:
    """Describe the nodes of a version from its documents, shard by shard; a row for each node, in columns LEAVES."""
    size_L, shards = np.array(leaf_map.manifest.counts), range(len(leaf_map.manifest.shards))
    with tempfile.TemporaryDirectory(prefix="rayhier-") as folder:
        for number in shards:
            write_part(leaf_map, number, Path(folder))
        return table(tree, size_L, [written_part(Path(folder), number, len(size_L)) for number in shards])


def best_of(rows: pa.Table, node_N: Ints) -> pa.Table:
    """Keep DOCUMENTS rows of each node, those with the highest log-probabilities; `node_N` are the rows' nodes."""
    order = np.lexsort((rows["doc_id"].combine_chunks(), -rows["log_prob"].to_numpy(), node_N))
    sorted_N = np.asarray(node_N)[order]
    chosen = order[np.arange(len(order)) - np.searchsorted(sorted_N, sorted_N) < DOCUMENTS]
    return rows.take(pa.array(chosen))


def table(tree: DisplayTree, size_L: Ints, parts: Sequence[ShardDescription]) -> pa.Table:
    """Make a row for each node of each level, top down, from the descriptions of all shards and the sizes of leaves."""
    path_LT, best = tree.paths(), pa.concat_tables([part.best for part in parts])
    totals = tree.summed(np.sum([part.total_L for part in parts], axis=0))
    words_of_levels = keywords(_buckets(parts, buckets(size_L)), path_LT, totals, KEYWORDS)
    tables = []
    for level, (words, size_K) in enumerate(zip(words_of_levels, tree.summed(size_L), strict=True), start=1):
        node_N = path_LT[best["leaf"].to_numpy(), level - 1]
        ids_K: list[list[str]] = [[] for _ in size_K]
        chosen = best_of(best, node_N)
        for leaf, name in zip(chosen["leaf"].to_pylist(), chosen["doc_id"].to_pylist(), strict=True):
            ids_K[path_LT[leaf, level - 1]].append(name)
        columns = [
            pa.array(np.full(len(size_K), level), pa.int8()),
            pa.array(np.arange(len(size_K)), pa.int32()),
            pa.array(tree.parents[level - 1], pa.int32()),
            pa.array(size_K.astype(np.int64)),
            pa.array(words, pa.list_(pa.string())),
            pa.array(ids_K, pa.list_(pa.string())),
        ]
        tables.append(pa.table(columns, schema=schemas.LEAVES))
    return pa.concat_tables(tables)


def _buckets(parts: Sequence[ShardDescription], count: int) -> Iterator[pa.Table]:
    for bucket in range(count):
        wanted = [("bucket", "==", bucket)]
        yield pa.concat_tables([files.read_table(part.words, COUNTS.names, wanted) for part in parts])
