"""Compactions and rollbacks: readers see what they saw, and nothing is lost or brought back."""

import pytest

from rayhier.index import change
from rayhier.index.compact import replace_shards
from rayhier.index.shards import write_shard
from rayhier.index.verify import verify
from rayhier.spec import InputError
from rayhier.storage import files, leaf_map
from rayhier.storage.leaf_map import LeafMap, ranges

from .changes import FACTOR, batch, content


@pytest.mark.parametrize("first", ["add", "delete"])
def test_what_lands_during_a_compaction_stays(made, first):
    base = LeafMap.open(made.root)
    if first == "delete":  # as the version right after
        change.delete(made.root, ["d001", "d002"])
    change.add(made.root, made.assign, batch(["n1"]), FACTOR)
    if first == "add":
        change.delete(made.root, ["d001", "d002"])
    now = content(LeafMap.open(made.root))
    shards = []
    for first, last in ranges(base.manifest.counts, 2):
        tables = [base.read(shard, leaves=range(first, last)) for shard in base.manifest.shards]
        shards.append(
            write_shard(made.root, f"data/late-{first}.parquet", tables, range(first, last), base.manifest.counts)
        )
    after = leaf_map.commit(made.root, replace_shards(base.manifest, shards))
    assert content(after) == now
    verify(made.root)
    with pytest.raises(InputError, match=r"compact: version 4 \(compact\) no longer has all files of version"):
        leaf_map.commit(made.root, replace_shards(base.manifest, shards))


def test_a_damaged_file_is_named_by_whoever_reads_it(made):
    shard = LeafMap.open(made.root).manifest.shards[1]
    path = made.root / shard.file.name
    whole = path.read_bytes()
    page = bytes(one ^ 255 if 100 <= number < 140 else one for number, one in enumerate(whole))
    for damaged in (whole[: len(whole) // 2], page, None):
        path.unlink() if damaged is None else files.replace(path, damaged)
        for work in (
            lambda: change.add(made.root, made.assign, batch(["new"]), FACTOR),
            lambda: change.delete(made.root, ["d001"]),
        ):
            with pytest.raises(InputError, match=f"{shard.file.name}: cannot be read: .*rebuild"):
                work()
    assert leaf_map.versions(made.root) == [1]
