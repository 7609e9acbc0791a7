"""Pack: write the rows of many small shards, which folds and additions left, to one, so that few files stay.

Of the shards of about a size, sixteen become one: a row is written again once for each sixteen times as many rows, and
not any more where its shard is as large as a build makes them.
"""

import math
import uuid
from collections import defaultdict
from collections.abc import Callable

import pyarrow as pa

from rayhier.index.shards import SHARD_BYTES, write_rows
from rayhier.spec import InputError
from rayhier.storage import leaf_map
from rayhier.storage.leaf_map import LeafMap, Manifest, Shard
from rayhier.storage.paths import Location
from rayhier.storage.pins import pinned, reading

WIDTH = 16
"""Number of shards of about a size that become one, and the factor between two sizes."""


def pack(root: Location) -> LeafMap | None:
    """Publish a version in which small shards are packed; None where no sixteen are of about a size.

    Memory holds the rows of the new shard. InputError where a file is damaged, or was replaced in the meantime.
    """
    with reading(root) as newest, pinned(root, newest.manifest.version, writes=True):
        chosen = small(newest.manifest)
        if not chosen:
            return None
        rows = pa.concat_tables([newest.read(shard, newest.columns(shard)) for shard in chosen])
        shards: list[Shard] = []
        if len(rows):
            name = f"data/packed-{newest.manifest.version:06d}-{uuid.uuid4().hex[:12]}.parquet"
            shards = [write_rows(root, name, rows, newest.manifest.version, words=newest.manifest.words)]
        return leaf_map.commit(root, _replaced(newest.manifest, chosen, shards))


def small(manifest: Manifest) -> list[Shard]:
    """Choose the shards to pack: the smallest ones, if there are sixteen of about a size; none of carried vectors."""
    sizes = defaultdict[int, list[Shard]](list)
    for shard in manifest.shards:
        if shard.file.bytes * WIDTH < SHARD_BYTES and not shard.carried:
            sizes[int(math.log(max(1, shard.rows), WIDTH))].append(shard)
    return next((sizes[size] for size in sorted(sizes) if len(sizes[size]) >= WIDTH), [])


def _replaced(base: Manifest, chosen: list[Shard], packed: list[Shard]) -> Callable[[LeafMap], Manifest]:
    """Return the change that puts packed shards, made of an older version, in the place of the chosen ones."""
    names = {shard.file.name for shard in chosen}

    def change(newest: LeafMap) -> Manifest:
        now = newest.manifest
        kept = [shard for shard in now.shards if shard.file.name not in names]
        # Removals after the older version act on the packed shards too; a rollback may have brought back earlier ones.
        removed = {removal.file.name for removal in base.removed}
        is_late = all(removal.since > base.version for removal in now.removed if removal.file.name not in removed)
        if len(kept) + len(names) != len(now.shards) or not is_late:
            raise InputError(
                f"pack: version {now.version} ({now.change}) no longer has all files of version {base.version}; "
                "nothing was changed"
            )
        update = {"change": "pack", "at": leaf_map.now(), "shards": [*kept, *packed]}
        return now.model_copy(update=update)

    return change
