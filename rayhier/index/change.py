"""Add, replace and delete documents of a published leaf map: write new files, then publish a new manifest.

A change that fails leaves only files that no manifest lists. If another writer publishes meanwhile, the change is
applied to the newest version, or refused if it no longer fits.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.index import leaf_limit
from rayhier.index.assign import IDS_SHOWN, Assigner, leaf_sizes
from rayhier.index.find import find, unknown
from rayhier.index.leaf_limit import Filling
from rayhier.index.shards import write_rows
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError
from rayhier.spec.index import LEAF_FACTOR
from rayhier.storage import leaf_map, parquet, schemas
from rayhier.storage.change_log import Change, ChangeLog
from rayhier.storage.files import File
from rayhier.storage.leaf_map import LeafMap, Manifest, key_of
from rayhier.storage.paths import Location
from rayhier.storage.pins import pinned, reading
from rayhier.storage.shard import Removal, Shard
from rayhier.storage.writer_lease import refuse_while_written

Batch = tuple[pa.Table, Encoded]
"""Documents in the corpus's columns, and the trained encoder's output for their texts."""
AGAIN = ("given more than once", "each id once")


def add(root: Location, assign: Assigner, batches: Iterable[Batch], factor: float = LEAF_FACTOR) -> LeafMap:
    """Publish a version with added documents. A leaf holds at most `factor` times the mean rows of a leaf."""
    return _put(root, assign, batches, factor, replace=False)


def upsert(root: Location, assign: Assigner, batches: Iterable[Batch], factor: float = LEAF_FACTOR) -> LeafMap:
    """Publish a version with further documents, which replace documents with the same ids."""
    return _put(root, assign, batches, factor, replace=True)


def delete(root: Location, ids: Sequence[str]) -> LeafMap:
    """Publish a version without the documents with the given ids. InputError if an id is not in the index."""
    named = pa.array(sorted(set(ids)), pa.string())
    if not len(named):
        raise InputError("ids: got none; allowed: one or more")
    _settle(root)
    with writing(root) as newest:
        _check_known(newest, named)
        file = write_ids(root, named)

        def change(now: LeafMap) -> Manifest:
            return without_rows(now.manifest, _check_known(now, named), file, len(named), "delete")

        return leaf_map.commit(root, change)


def fold(root: Location, assign: Assigner | None = None, factor: float = LEAF_FACTOR) -> LeafMap | None:
    """Publish a version whose leaf files hold the change log's tail. None if there is no tail.

    With `assign`, a leaf holds at most `factor` times the mean rows. Further rows go to their next-best leaf.
    InputError if an object of the log is damaged, or documents must be placed again and `assign` is not given.
    """
    with writing(root) as newest:
        log = ChangeLog(root)
        changes = list(log.after(newest.manifest.log))
        if not changes:
            return None
        last, named = changes[-1].number, pa.concat_arrays([change.ids for change in changes]).unique().sort()
        table, moved = last_rows(changes), 0
        routers = {change.router for change in changes if change.rows is not None}
        if table is not None and routers != {newest.manifest.router}:  # leaves changed or were rolled back since
            if assign is None:
                raise InputError(f"{root}: the change log has changes; allowed: rayhier index fold WORKDIR first")
            table = assign.again(table)
        if table is not None and assign is not None:
            size_L = np.array(newest.manifest.counts)
            most = leaf_limit.most_rows(int(size_L.sum()) + table.num_rows, newest.manifest.leaves, factor)
            table, moved = leaf_limit.within(assign.router, table, size_L, most)
        before = find(newest, named)  # fails before anything is written
        shards: list[Shard] = []
        if table is not None:
            name = f"data/folded-{last:012d}-{uuid.uuid4().hex[:12]}.parquet"
            shards = [write_rows(root, name, table, words=newest.manifest.words)]

        def change(now: LeafMap) -> Manifest:
            _check_revision(newest.manifest, now.manifest)
            if now.manifest.log != newest.manifest.log:
                raise InputError(
                    f"fold: version {now.manifest.version} ({now.manifest.change}) holds the log up to change "
                    f"{now.manifest.log} already. Nothing was changed"
                )
            manifest = now.manifest
            rows = before if manifest.version == newest.manifest.version else find(now, named)
            if rows.num_rows:
                gone = rows["id"].combine_chunks().unique().sort()
                manifest = without_rows(manifest, rows, write_ids(root, gone), len(gone), "fold")
            changed = with_shards(manifest, shards, now.manifest.version + 1, "fold")
            return changed.model_copy(update={"moved": manifest.moved + moved, "log": last})

        return leaf_map.commit(root, change)


def last_rows(changes: Sequence[Change]) -> pa.Table | None:
    last = {name: change.number for change in changes for name in change.ids.to_pylist()}
    tables = []
    for change in changes:
        if change.rows is not None:
            names = change.rows[key_of(change.rows.column_names)].to_pylist()
            is_last_N = [last[name] == change.number for name in names]
            if any(is_last_N):
                tables.append(change.rows if all(is_last_N) else change.rows.filter(pa.array(is_last_N)))
    return pa.concat_tables(tables) if tables else None


def rollback(root: Location, version: int) -> LeafMap:
    """Publish an older version again, without the log's tail. InputError if a server writes to the index now."""
    refuse_while_written(root)
    return restore(root, version)


def restore(root: Location, version: int, model: str | None = None, key: str | None = None) -> LeafMap:
    """Publish an older version again, for a Writer's request. InputError if `model` did not make the version."""
    with pinned(root, version), pinned(root, leaf_map.versions(root)[-1], writes=True):
        made_by = LeafMap.open(root, version).manifest.model
        if model is not None and made_by != model:
            raise InputError(f"version {version}: got one of model {made_by}; allowed: versions of {model}")
        last = 0
        with contextlib.suppress(InputError):  # a rollback may repair a damaged newest version
            last = LeafMap.open(root).manifest.log
        return leaf_map.republish(root, version, ChangeLog(root).last(last), key)


def _put(root: Location, assign: Assigner, batches: Iterable[Batch], factor: float, *, replace: bool) -> LeafMap:
    _settle(root, assign, factor)
    with writing(root) as newest:
        filling = Filling(newest, assign, factor, replace=replace)
        shards: list[Shard] = []
        try:
            named = _write_shards(newest, filling, batches, shards, replace=replace)
            file = write_ids(root, named) if replace else None
        except (InputError, OSError):
            for file in (file for shard in shards for file in shard.files):
                with contextlib.suppress(OSError):
                    (root / file.name).unlink(missing_ok=True)
            raise

        def change(now: LeafMap) -> Manifest:
            manifest = now.manifest
            _check_revision(newest.manifest, manifest)
            if file is not None:
                manifest = without_rows(manifest, find(now, named), file, len(named), "upsert")
            elif manifest.version != newest.manifest.version:
                _check_new(now, named)
            changed = with_shards(manifest, shards, now.manifest.version + 1, "upsert" if replace else "add")
            return changed.model_copy(update={"moved": manifest.moved + filling.moved})

        # From here on, files must stay after any error, as an error may hide that they were published.
        return leaf_map.commit(root, change)


def _settle(root: Location, assign: Assigner | None = None, factor: float = LEAF_FACTOR) -> None:
    """Fold the tail that a server left in the log, before a change. InputError if a server writes to the index now."""
    refuse_while_written(root)
    folded = fold(root, assign, factor)
    if folded is not None:
        ChangeLog(root).tidy(folded.manifest.log)


def _check_revision(placed: Manifest, now: Manifest) -> None:
    """Raise InputError if leaves were split or merged after version `placed`, whose leaves hold the new rows."""
    if placed.revision != now.revision:
        raise InputError(
            f"leaves were split or merged by version {now.version}, after version {placed.version} was read. Nothing "
            "was changed. Run it again"
        )


@contextlib.contextmanager
def writing(root: Location) -> Iterator[LeafMap]:
    """Open the newest version. Inside the block, a vacuum keeps the version's files and this writer's new files."""
    with reading(root) as newest, pinned(root, newest.manifest.version, writes=True):
        yield newest


def _write_shards(
    newest: LeafMap, filling: Filling, batches: Iterable[Batch], shards: list[Shard], *, replace: bool
) -> pa.Array:
    """Write a file of rows for each batch, and add it to `shards`. Returns the ids of all documents."""
    token, named = uuid.uuid4().hex[:12], pa.array([], pa.string())
    with _writing_behind(shards) as write:
        for number, (documents, encoded) in enumerate(batches):
            dimension = encoded.source.shape[1]
            if dimension != newest.manifest.dimension:
                allowed = f"{newest.manifest.dimension}, the index's"
                raise InputError(f"vectors: got dimension {dimension}; allowed: {allowed}")
            ids = _ids(documents)
            _refuse(ids.filter(pc.is_in(ids, named)).to_pylist(), *AGAIN)
            if not replace:
                _check_new(newest, ids)
            named = pa.concat_arrays([named, ids])
            table = filling.take(documents, encoded, ids)
            name = f"data/added-{token}-{number:05d}.parquet"
            write(partial(write_rows, newest.root, name, table, words=newest.manifest.words))
    if not shards:
        raise InputError("documents: got none; allowed: one or more")
    return named


@contextlib.contextmanager
def _writing_behind(shards: list[Shard]) -> Iterator[Callable[[Callable[[], Shard]], None]]:
    """Yield a function that writes shards in a thread and adds them to `shards`. A call raises earlier errors."""
    waiting = list[Future[Shard]]()

    def settle() -> None:
        while waiting:
            shards.append(waiting.pop().result())

    with ThreadPoolExecutor(1, "write") as thread:

        def write(work: Callable[[], Shard]) -> None:
            settle()
            waiting.append(thread.submit(work))

        try:
            yield write
        except BaseException:
            with contextlib.suppress(Exception):
                settle()
            raise
        settle()


def _ids(documents: pa.Table) -> pa.Array:
    """Return the sorted ids of a batch. InputError if an id occurs twice."""
    rows = documents["doc_id"].combine_chunks().value_counts()
    _refuse(rows.filter(pc.greater(rows.field("counts"), 1)).field("values").to_pylist(), *AGAIN)
    return documents[key_of(documents.column_names)].combine_chunks().unique().sort()


def _check_new(now: LeafMap, ids: pa.Array) -> None:
    present = find(now, ids)["id"].unique().sort().to_pylist()
    _refuse(present, f"in the index already (version {now.manifest.version})", "new ids, or add --upsert to replace")


def _check_known(now: LeafMap, ids: pa.Array) -> pa.Table:
    rows = find(now, ids)
    _refuse(unknown(rows, ids), f"not in the index (version {now.manifest.version})", "ids of documents in the index")
    return rows


def _refuse(ids: Sequence[str], why: str, allowed: str) -> None:
    if ids:
        shown = ", ".join(repr(name) for name in ids[:IDS_SHOWN]) + (", …" if len(ids) > IDS_SHOWN else "")
        raise InputError(f"ids: {len(ids)} {why}: {shown}; allowed: {allowed}. Nothing was changed")


def write_ids(root: Location, ids: pa.Array) -> File:
    table = pa.table({"doc_id": ids}, schema=schemas.IDS)
    return parquet.write(root, f"removed/{uuid.uuid4().hex[:12]}.parquet", [table], schemas.IDS)


def without_rows(manifest: Manifest, rows: pa.Table, file: File, ids: int, change: leaf_map.Change) -> Manifest:
    removed = Removal(file=file, ids=ids, rows=rows.num_rows, since=manifest.version + 1)
    counts = np.array(manifest.counts) - leaf_sizes(rows, len(manifest.counts))
    documents = manifest.documents - int(pc.sum(pc.equal(rows["rank"], 0)).as_py() or 0)
    return manifest.changed(change, documents=documents, counts=counts.tolist(), removed=[*manifest.removed, removed])


def with_shards(manifest: Manifest, shards: Sequence[Shard], version: int, change: leaf_map.Change) -> Manifest:
    counts = np.array(manifest.counts)
    for shard in shards:
        counts[shard.leaves] += np.diff(shard.offsets)
    dated = [shard.model_copy(update={"since": version}) for shard in shards]
    documents = manifest.documents + sum(shard.documents for shard in shards)
    return manifest.changed(change, documents=documents, counts=counts.tolist(), shards=[*manifest.shards, *dated])


def check_kept(what: str, base: Manifest, used: Iterable[File], now: Manifest) -> None:
    """Raise InputError if new files cannot replace the files `used` of `base` in the newest version.

    New files can if the newest version has all of `used` and all removals of `base`, unlike after some rollbacks.
    """
    removed = {removal.file.name for removal in base.removed}
    is_earlier = (removal.since <= base.version for removal in now.removed if removal.file.name not in removed)
    if any(is_earlier) or not removed | {file.name for file in used} <= {file.name for file in now.files}:
        raise InputError(
            f"{what}: version {now.version} ({now.change}) no longer has all files of version {base.version}. Nothing "
            "was changed. Run it again"
        )
