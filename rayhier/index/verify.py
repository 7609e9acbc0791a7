"""Check an index: all bytes of all versions, and that documents have one row in each of their leaves."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.corpus import ids
from rayhier.spec import InputError
from rayhier.storage import leaf_map
from rayhier.storage.artifact import check
from rayhier.storage.change_log import ChangeLog
from rayhier.storage.leaf_map import MEND, LeafMap
from rayhier.storage.paths import Location
from rayhier.storage.pins import reading
from rayhier.storage.schemas import NODES
from rayhier.storage.shard import Shard


def verify(root: Location, version: int | None = None) -> list[int]:
    """Check the files of all versions, the change log, and the rows of one version. Returns the versions checked."""
    checked_versions, checked = [], set[str]()
    for number in leaf_map.versions(root):
        try:
            with reading(root, number) as leaf_map_version:
                for file in leaf_map_version.manifest.files:
                    if file.name not in checked:
                        check(root, file, MEND)
                        checked.add(file.name)
        except InputError:
            if number in leaf_map.versions(root):  # else a vacuum removed it
                raise
        else:
            checked_versions.append(number)
    with reading(root, version) as leaf_map_version:
        _check_rows(leaf_map_version)
    log = ChangeLog(root)
    for changes in (log.there(with_table=False), log.after(LeafMap.open(root).manifest.log)):
        for _ in changes:  # reading a change checks it
            pass
    return checked_versions


def _check_rows(version: LeafMap) -> None:
    manifest = version.manifest
    counts = np.zeros(len(manifest.counts), dtype=np.int64)
    digests: dict[int, list[ids.Digests]] = {0: [], 1: []}
    for shard in manifest.shards:
        _check_order(version, shard)
        table = version.read(shard, ["doc_id", "leaf", "rank"], verify=False)
        _check_sidecars(version, shard, table["rank"])
        counts += np.bincount(table["leaf"].to_numpy(), minlength=len(counts))
        for rank, rank_digests in digests.items():
            rank_digests.append(ids.of(table.filter(pc.equal(table["rank"], rank))["doc_id"].to_pylist()))
    place = f"{version.root}: version {manifest.version}"
    if counts.tolist() != manifest.counts:
        leaf = int(np.flatnonzero(counts != manifest.counts)[0])
        raise InputError(f"{place}: leaf {leaf} has {counts[leaf]} rows, but {manifest.counts[leaf]} in the manifest")
    first, second = (np.sort(np.concatenate([ids.NO_DIGESTS, *rank_digests])) for rank_digests in digests.values())
    for rank, sorted_N in ((0, first), (1, second)):
        if np.any(sorted_N[1:] == sorted_N[:-1]):
            raise InputError(f"{place}: a document has two rows of rank {rank}")
    if len(first) != manifest.documents:
        raise InputError(f"{place}: {len(first)} documents, but {manifest.documents} in the manifest")
    if not np.isin(second, first, assume_unique=True).all():
        raise InputError(f"{place}: a document has a second row and no first")


def _check_order(version: LeafMap, shard: Shard) -> None:
    unfiltered = LeafMap(version.root, version.manifest.model_copy(update={"removed": []}))
    leaf_A = unfiltered.read(shard, ["leaf"], verify=False)["leaf"].to_numpy()
    if not np.array_equal(np.repeat(shard.leaves, np.diff(shard.offsets)), leaf_A):
        raise InputError(f"{version.root / shard.file.name}: the manifest has other places of leaves. You can {MEND}")


def _check_sidecars(version: LeafMap, shard: Shard, ranks: pa.ChunkedArray) -> None:
    for name, sidecar in shard.sidecars.items():
        if name == NODES:
            version.check_maker(sidecar)
        values = version.read(shard, [name], verify=False)[name]
        if not pc.all(pc.equal(values.is_valid(), pc.equal(ranks, 0)), min_count=0).as_py():
            path = version.root / sidecar.file.name
            raise InputError(f"{path}: a value is missing in a document's first row, or in another row. You can {MEND}")
