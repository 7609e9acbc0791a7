"""Pack: merge many small shards, which folds and additions left, so that there are few files.

Sixteen shards of about the same size become one shard. Files of removed ids must act on the same shards.
"""

import contextlib
import math
import uuid
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from rayhier.index.change import check_kept, write_ids, writing
from rayhier.index.shards import SHARD_BYTES, write_rows
from rayhier.spec import InputError
from rayhier.storage import leaf_map
from rayhier.storage.files import File
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.storage.paths import Location
from rayhier.storage.shard import Removal, Shard

WIDTH = 16
"""Number of files that become one file. The files' sizes must lie between the same two powers of this number."""
T = TypeVar("T")


def pack(root: Location) -> LeafMap | None:
    """Publish a version with packed shards or files of removed ids. None if no sixteen files have similar sizes."""
    with writing(root) as newest:
        base = newest.manifest
        if chosen := small(base):
            rows = pa.concat_tables([newest.read(shard, newest.columns(shard)) for shard in chosen])
            packed: list[Shard] = []
            if len(rows):
                name = f"data/packed-{base.version:06d}-{uuid.uuid4().hex[:12]}.parquet"
                packed = [write_rows(root, name, rows, base.version, words=base.words)]
            return leaf_map.commit(root, _placed(base, [shard.file for shard in chosen], "shards", chosen, packed))
        if few := together(base):
            ids = newest.removed_ids(few)
            file = write_ids(root, ids)
            since = max(removal.since for removal in few)
            joined = Removal(file=file, ids=len(ids), rows=sum(removal.rows for removal in few), since=since)
            # A shard that was packed meanwhile may have the date of a version between the removals.
            return leaf_map.commit(root, _placed(base, [shard.file for shard in base.shards], "removed", few, [joined]))
        return None


def packed(changed: LeafMap) -> LeafMap:
    """Pack files if a change has left too many. Returns the newest version that was published."""
    with contextlib.suppress(InputError, OSError):  # the change is published, and the next change packs
        while (after := pack(changed.root)) is not None:
            changed = after
    return changed


def small(manifest: Manifest) -> list[Shard]:
    shards = (shard for shard in manifest.shards if shard.file.bytes * WIDTH < SHARD_BYTES)
    return _alike(shards, lambda shard: _magnitude(shard.rows))


def together(manifest: Manifest) -> list[Removal]:
    """Choose the files of removed ids to pack: sixteen of about the same size, if they act on the same shards."""
    sinces = sorted(shard.since for shard in manifest.shards)
    return _alike(manifest.removed, lambda removal: (bisect_left(sinces, removal.since), _magnitude(removal.ids)))


def _alike(files: Iterable[T], kind: Callable[[T], Any]) -> list[T]:
    kinds = defaultdict[Any, list[T]](list)
    for file in files:
        kinds[kind(file)].append(file)
    return next((kinds[each] for each in sorted(kinds) if len(kinds[each]) >= WIDTH), [])


def _magnitude(count: int) -> int:
    return int(math.log(max(1, count), WIDTH))


def _placed(
    base: Manifest, used: list[File], listed: str, gone: Sequence[Any], packed: Sequence[Any]
) -> Callable[[LeafMap], Manifest]:
    def change(newest: LeafMap) -> Manifest:
        now = newest.manifest
        check_kept("pack", base, used, now)
        kept = [each for each in getattr(now, listed) if each not in gone]
        return now.changed("pack", **{listed: [*kept, *packed]})

    return change
