"""Carry changes of documents from an index to the index of a newly trained model.

Training reads the corpus, which lacks changes that were written to the older index. So the newer index gets each
changed document from the older index. A deleted document is deleted, and other texts are encoded again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayhier.corpus.passages import DocumentLayout
from rayhier.dataset.documents import document_texts
from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.index.change import Batch
from rayhier.index.incoming import BATCH
from rayhier.search.routing.routes import Model
from rayhier.storage import leaf_map, parquet
from rayhier.storage.artifact import Artifact, Place
from rayhier.storage.change_log import Change, ChangeLog
from rayhier.storage.leaf_map import BUILT, LeafMap, Manifest
from rayhier.storage.pins import reading

Documents = dict[str, list[dict[str, Any]]]
"""Id of a document -> its rows in the corpus's columns. A document that is cut into passages has several."""


@dataclass(frozen=True)
class Carried:
    """Numbers of documents that were written and removed, and the number of the last change that the index holds."""

    written: int
    removed: int
    log: int


def carry_changes(before: Artifact, index: Artifact, model: Model) -> Carried | None:
    """Publish a version of `index` with the changes of the index `before`. None if there are no changes.

    The change log of `index` goes on after the last change of `before`. Fields that only the newer index declares are
    null. InputError if a server writes to the index, a file is damaged, or only one of the indexes has passages.
    """
    layout, opened = DocumentLayout.of(model.spec.corpus), LeafMap.open(index.root)
    taken = opened.manifest.taken
    with reading(before.root) as old:
        log = ChangeLog(before.root)
        tail = list(log.after(old.manifest.log))
        if old.manifest.version == BUILT and not tail:
            return None
        for shard in old.manifest.shards[:1]:
            layout.check_cut(old.columns(shard))
        last = tail[-1].number if tail else old.manifest.log
        logged = {name for made in log.there() for name in made.ids.to_pylist()}
        is_undone = old.manifest.undone_in > taken
        if is_undone and taken in leaf_map.versions(before.root):  # a rollback undid changes of the command line
            logged |= _named(LeafMap.open(before.root, taken), before, layout.key)
        names = pa.array(sorted(logged | _named(old, before, layout.key)), pa.string())
        older = _documents(old, tail, names, layout)
    built = _rows(_corpus(before, layout.schema.names), names, layout)
    wanted = {name: rows for name, rows in older.items() if name in logged or rows != built.get(name)}
    revised = opened.router()
    router = model.router if revised is None else model.with_router(revised).router
    assign = Assigner(router, model.spec, opened.manifest.model)
    opened = change.fold(index.root, assign) or opened
    there = _documents(opened, [], names, layout)
    written = {name: rows for name, rows in wanted.items() if rows != there.get(name)}
    gone = [name for name in there if name not in older]
    if written:
        change.upsert(index.root, assign, _batches(written, layout, model))
    if gone:
        change.delete(index.root, gone)
    if not written and not gone and last <= opened.manifest.log and not is_undone:
        return Carried(0, 0, opened.manifest.log)

    def numbered(now: LeafMap) -> Manifest:
        return now.manifest.changed("carry", log=max(last, now.manifest.log), taken=old.manifest.version)

    return Carried(len(written), len(gone), leaf_map.commit(index.root, numbered).manifest.log)


def _named(old: LeafMap, index: Artifact, key: str) -> set[str]:
    """Return the ids of the documents that were added or removed since an index was built, according to its files."""
    manifest, columns = old.manifest, list[pa.ChunkedArray]()
    for shard in manifest.shards:
        if shard.since > BUILT:
            columns.append(old.read(shard, [key], verify=False)[key])
    for removed in manifest.removed:
        columns.append(parquet.read(old.root / removed.file.name, ["doc_id"])["doc_id"])
    # If the index was compacted, only its corpus shows which documents were removed.
    if all(shard.since > BUILT for shard in manifest.shards):
        columns += [table[key] for table in _corpus(index, [key])]
    return {name for column in columns for name in column.to_pylist()}


def _corpus(index: Artifact, names: Sequence[str]) -> Iterator[pa.Table]:
    """Read the documents that an index was built from, file by file. Yields nothing if the corpus was removed."""
    folder = index.folder.parent.parent / "corpus" / index.record.inputs.get("corpus", "none")
    corpus = Place(folder).published()
    if corpus is not None:
        for name in corpus.names("documents/"):
            path = corpus.path(name)
            there = parquet.metadata(path).schema.to_arrow_schema().names
            yield parquet.read(path, [name for name in names if name in there])


def _documents(opened: LeafMap, tail: Sequence[Change], ids: pa.Array, layout: DocumentLayout) -> Documents:
    hidden, latest = {name for made in tail for name in made.ids.to_pylist()}, change.last_rows(tail)
    wanted = pa.array([name for name in ids.to_pylist() if name not in hidden], pa.string())
    names = {*layout.schema.names, "rank"}
    shards = [(shard, opened.columns(shard)) for shard in opened.manifest.shards if shard.rows]
    tables = (opened.read(shard, [name for name in there if name in names], verify=False) for shard, there in shards)
    stored = _rows(_first(tables), wanted, layout)
    return stored | ({} if latest is None else _rows(_first([latest]), ids, layout))


def _first(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    return (table.filter(pc.equal(table["rank"], 0)) for table in tables)


def _rows(tables: Iterable[pa.Table], ids: pa.Array, layout: DocumentLayout) -> Documents:
    """Collect the rows of the documents with some ids. The rows of a document are sorted by `doc_id`."""
    documents: Documents = {}
    for table in tables:
        fitted = layout.fitted(table)
        for row in fitted.filter(pc.is_in(fitted[layout.key], ids)).to_pylist():
            documents.setdefault(row[layout.key], []).append(row)
    return {name: sorted(rows, key=lambda row: str(row["doc_id"])) for name, rows in documents.items()}


def _batches(documents: Documents, layout: DocumentLayout, model: Model) -> Iterator[Batch]:
    names = list(documents)
    for begin in range(0, len(names), BATCH):
        rows = [row for name in names[begin : begin + BATCH] for row in documents[name]]
        table = pa.Table.from_pylist(rows, layout.schema)
        yield table, model.encode(document_texts(table))
