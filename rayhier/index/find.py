"""Find the rows of documents by id, by reading the column of ids of the shards that may have them.

Sorted hashes of ids tell which shards may have an id. The hashes are computed once on each machine.
"""

import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.dataset.words import word_hashes
from rayhier.storage import cache
from rayhier.storage.cache import Lease
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.shard import Shard

FORMAT = 1
FEWEST = 1_000
CACHE_BYTES = 2e9
"""Largest number of bytes of hashes of ids that are cached on this machine."""
OPENED = 100
"""Largest number of shards whose hashes stay mapped into memory: those that were used last."""
HASHES = "hashes.npy"
Hashes = npt.NDArray[np.uint64]
_known: "OrderedDict[str, tuple[Lease, Hashes]]" = OrderedDict()
_lock = threading.Lock()

FOUND = pa.schema([("id", pa.string()), ("leaf", pa.int32()), ("rank", pa.int8())])


def find(leaf_map: LeafMap, ids: pa.Array) -> pa.Table:
    """Find the rows of the documents with given ids, in columns `id`, `leaf`, `rank`, without removed rows."""
    hash_X, tables = np.sort(word_hashes(ids.to_pylist())), [pa.table([[], [], []], schema=FOUND)]
    for shard in leaf_map.manifest.shards:
        if shard.rows and _may_have(leaf_map, shard, hash_X):
            table = leaf_map.read(shard, [leaf_map.key(shard), "leaf", "rank"], verify=False)
            table = table.rename_columns(FOUND.names)
            tables.append(table.filter(pc.is_in(table["id"], ids)))
    return pa.concat_tables(tables)


def _may_have(leaf_map: LeafMap, shard: Shard, hash_X: Hashes) -> bool:
    """Return False if no row of a shard, removed rows included, has an id with one of these sorted hashes."""
    if shard.rows < FEWEST:
        return True
    hash_N = _hashes(leaf_map, shard)
    place_X = np.searchsorted(hash_N, hash_X)
    return bool((hash_N[np.minimum(place_X, len(hash_N) - 1)] == hash_X).any())


def _hashes(leaf_map: LeafMap, shard: Shard) -> Hashes:
    def fill(folder: Path) -> None:
        np.save(folder / HASHES, np.unique(word_hashes(leaf_map.ids(shard).unique().to_pylist())))

    with _lock:
        if shard.file.sha256 in _known:
            _known.move_to_end(shard.file.sha256)
            return _known[shard.file.sha256][1]
    lease = cache.get_or_build("ids", f"ids {FORMAT} {shard.file.sha256}", fill, CACHE_BYTES)
    hash_N: Hashes = np.load(lease.folder / HASHES, mmap_mode="r")
    with _lock:
        _known[shard.file.sha256] = lease, hash_N
        while len(_known) > OPENED:
            _known.popitem(last=False)
    return hash_N


def unknown(rows: pa.Table, ids: pa.Array) -> list[str]:
    missing: list[str] = ids.filter(pc.invert(pc.is_in(ids, rows["id"].combine_chunks()))).to_pylist()
    return missing
