"""Describe every node of an index's tree to people: size, keywords, representative documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Ints
from rayhier.index.shown import ShownTree
from rayhier.index.words import Counts, counted, joined
from rayhier.storage import files, schemas
from rayhier.storage.leaf_map import LeafMap, Shard
from rayhier.storage.paths import Location

KEYWORDS, DOCUMENTS = 12, 3
"""Keywords and representative documents of a node."""
WORDS, BEST = "words", "best"
"""Names of the files that an actor writes about a shard."""
READ = ("doc_id", "leaf", "rank", "log_prob", "title", "text")


class DescribeShard:
    """An actor that counts the words of shards and finds what is best in their leaves; writes both below scratch."""

    def __init__(self, there: LeafMap, scratch: Location) -> None:
        self.there, self.scratch = there, scratch

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Describe the shard of the number `row["shard"]`; returns how many documents it holds."""
        shard = self.there.manifest.shards[number := int(row["shard"])]
        part = read_part(self.there, shard)
        for name, made in ((WORDS, part.counts.table()), (BEST, part.best)):
            files.write_parquet(self.scratch, f"{name}-{number:05d}.parquet", [made], made.schema)
        return {"rows": shard.documents}


@dataclass(frozen=True)
class Part:
    """Words of a shard's documents, and the documents that most probably lie in its leaves."""

    counts: Counts
    best: pa.Table


def read_part(there: LeafMap, shard: Shard) -> Part:
    """Describe a shard by its documents."""
    rows = there.read(shard, READ, verify=False)
    first = rows.filter(pc.equal(rows["rank"], 0))
    best = first.select(["leaf", "log_prob", "doc_id"])
    return Part(counted(first, len(there.manifest.counts)), best_of(best, best["leaf"].to_numpy()))


def written_part(scratch: Location, number: int, leaves: int) -> Part:
    """Read what an actor wrote about a shard."""
    words, best = (files.read_table(scratch / f"{name}-{number:05d}.parquet") for name in (WORDS, BEST))
    return Part(Counts.of(words, leaves), best)


def describe(there: LeafMap, tree: ShownTree) -> pa.Table:
    """Describe a version's nodes by its documents, shard by shard; rows as schemas.LEAVES has them."""
    return table(tree, np.array(there.manifest.counts), [read_part(there, shard) for shard in there.manifest.shards])


def best_of(rows: pa.Table, node_N: Ints) -> pa.Table:
    """Keep the rows [n] of each node, their nodes given, with the highest log-probabilities: DOCUMENTS of each."""
    order = np.lexsort((rows["doc_id"].combine_chunks(), -rows["log_prob"].to_numpy(), node_N))
    sorted_N = np.asarray(node_N)[order]
    kept = order[np.arange(len(order)) - np.searchsorted(sorted_N, sorted_N) < DOCUMENTS]
    return rows.take(pa.array(kept))


def table(tree: ShownTree, size_L: Ints, parts: Sequence[Part]) -> pa.Table:
    """Rows of every node of every level, top down, from what was found in parts of the documents."""
    path_LT = tree.paths()
    held, whole = pa.concat_tables([part.best for part in parts]), joined([part.counts for part in parts])
    levels = [whole.above(tree.leaf_L, tree.counts[-1])]
    for parent_K, count in zip(reversed(tree.parents[1:]), reversed(tree.counts[:-1]), strict=True):
        levels.insert(0, levels[0].above(parent_K, count))
    made = []
    for level, (own, size_K) in enumerate(zip(levels, tree.summed(size_L), strict=True), start=1):
        node_N = path_LT[held["leaf"].to_numpy(), level - 1]
        held_K: list[list[str]] = [[] for _ in size_K]
        chosen = best_of(held, node_N)
        for leaf, name in zip(chosen["leaf"].to_pylist(), chosen["doc_id"].to_pylist(), strict=True):
            held_K[path_LT[leaf, level - 1]].append(name)
        columns = [
            pa.array(np.full(len(size_K), level), pa.int8()),
            pa.array(np.arange(len(size_K)), pa.int32()),
            pa.array(tree.parents[level - 1], pa.int32()),
            pa.array(size_K.astype(np.int64)),
            pa.array(own.keywords(KEYWORDS), pa.list_(pa.string())),
            pa.array(held_K, pa.list_(pa.string())),
        ]
        made.append(pa.table(columns, schema=schemas.LEAVES))
    return pa.concat_tables(made)
