"""Compaction: write all rows except removed rows to a few new shards, each with a contiguous range of leaves."""

from collections.abc import Callable, Sequence

from rayhier.index.change import check_kept, writing
from rayhier.index.shards import shard_count, write_shard
from rayhier.spec import JobSpec
from rayhier.storage import leaf_map
from rayhier.storage.artifact import check
from rayhier.storage.leaf_map import MEND, LeafMap, Manifest, ranges
from rayhier.storage.paths import Location
from rayhier.storage.shard import Shard


def compact_here(spec: JobSpec, root: Location) -> LeafMap:
    with writing(root) as opened:
        base = opened.manifest
        for file in base.files:  # checked once here, as each file is read for many shards
            check(root, file, MEND)
        shards = []
        for number, cut in enumerate(ranges(base.counts, shard_count(spec, [file.bytes for file in base.files]))):
            leaves, name = range(*cut), f"data/compacted-{base.version:06d}-{number:05d}.parquet"
            read = (opened.read(each, opened.columns(each), leaves=leaves, verify=False) for each in base.shards)
            shards.append(write_shard(root, name, read, leaves, base.counts, words=base.words))
        return leaf_map.commit(root, replace_shards(base, shards))


def replace_shards(base: Manifest, shards: Sequence[Shard]) -> Callable[[LeafMap], Manifest]:
    """Return a function for `leaf_map.commit` that puts `shards` in place of `base`'s files. Later changes stay."""
    old = {file.name for file in base.files}
    dated = [shard.model_copy(update={"since": base.version}) for shard in shards]

    def change(newest: LeafMap) -> Manifest:
        now = newest.manifest
        check_kept("compact", base, base.files, now)
        later = [removed for removed in now.removed if removed.file.name not in old]
        shards = [*dated, *(shard for shard in now.shards if shard.file.name not in old)]
        return now.changed("compact", shards=shards, removed=later)

    return change
