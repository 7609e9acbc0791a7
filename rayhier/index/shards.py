"""Leaf ranges -> parquet shards whose row groups end where leaves end."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from rayhier.storage import files
from rayhier.storage.leaf_map import Shard
from rayhier.storage.paths import Location

GROUP_ROWS = 4096


def ranges(counts: Sequence[int], shards: int) -> list[tuple[int, int]]:
    """At most `shards` contiguous leaf ranges [first, last) that balance documents; together all leaves.

    >>> ranges([5, 1, 1, 1, 4], 2)
    [(0, 2), (2, 5)]
    """
    before = np.concatenate([[0], np.cumsum(counts)])
    shards = min(shards, len(counts))
    cuts = [0]
    for number in range(1, shards):
        target = before[-1] * number / shards
        nearest = int(np.abs(before - target).argmin())
        cuts.append(min(max(nearest, cuts[-1] + 1), len(counts) - (shards - number)))
    return list(zip(cuts, [*cuts[1:], len(counts)], strict=True))


def write_shard(
    root: Location, name: str, parts: Sequence[Location], first: int, last: int, counts: Sequence[int]
) -> Shard:
    """Gather the rows of leaves [first, last) from routed parts into the file `root/name`.

    Raises RuntimeError where a leaf does not hold as many documents as were counted for it.
    """
    wanted = [("leaf", ">=", first), ("leaf", "<", last)]
    table = pa.concat_tables([files.read_table(part, filters=wanted) for part in parts])
    table = table.sort_by([("leaf", "ascending"), ("rank", "ascending"), ("doc_id", "ascending")])
    found = np.bincount(table["leaf"].to_numpy() - first, minlength=last - first)
    if found.tolist() != list(counts[first:last]):
        raise RuntimeError(f"{root / name}: leaves {first} to {last - 1} do not hold the documents counted for them")
    offsets = [0, *np.cumsum(found).tolist()]
    file = files.write_parquet(root, name, row_groups(table, offsets), table.schema)
    return Shard(file=file, rows=table.num_rows, first_leaf=first, offsets=offsets)


def row_groups(table: pa.Table, offsets: Sequence[int]) -> Iterator[pa.Table]:
    """Slices of whole leaves, each of about `GROUP_ROWS` rows or one larger leaf."""
    begin = 0
    for end in offsets[1:]:
        if end - begin >= GROUP_ROWS or (end == offsets[-1] and end > begin):
            yield table.slice(begin, end - begin)
            begin = end
