"""Generated pairs as queries and what answers them: which are accepted, and why the others are not."""

from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rayhier.corpus import check, lines, tables
from rayhier.corpus.check import Pair, ParsedRows, Reason, Rejection, beginning, digest
from rayhier.corpus.ids import NO_DIGESTS, IdSet
from rayhier.corpus.parts import groups
from rayhier.corpus.rows import Rows, checked, collect
from rayhier.spec import InputError
from rayhier.spec.corpus import Limits
from rayhier.storage import columns, files, schemas
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Output
from rayhier.storage.listing import NamedFile
from rayhier.storage.pair_source import ALLOWED, FILE
from rayhier.storage.paths import Location

Source = tuple[str, ParsedRows[Pair]]
"""Pairs of one source, and its name in rejected.parquet."""


def read_file(path: Path, corpus: Artifact, limits: Limits) -> Source:
    """Read a file of pairs; InputError where every one names a document that the corpus has not."""
    form = lines.Format(lambda line: check.pair(check.json_row(line), limits), ALLOWED)
    rows = lines.whole(NamedFile(path.name, path), form).rows
    found = collect(distinct(known(rows, document_ids(corpus)), set()))
    unknown = [one.value for _, one in found.rejected if one.reason == Reason.UNKNOWN_DOCUMENT]
    if unknown and not found.accepted:
        raise InputError(
            f"{FILE}: {path}: none of its {len(unknown):,} pairs names a document of the corpus (the first: "
            f"{unknown[0]!r}); allowed: ids of its documents, such as {_first_id(corpus)!r}"
        )
    return path.name, found


def check_written(written: Iterable[tuple[str, pa.Table]], limits: Limits) -> list[Source]:
    """Check queries that a model wrote: for each part of the corpus its name, and a table of `query` and `doc_id`."""
    seen: set[bytes] = set()
    return [
        (name, collect(distinct(checked(table.to_pylist(), lambda row: check.pair(row, limits)), seen)))
        for name, table in written
    ]


def known(rows: Rows[Pair], documents: Container[str]) -> Rows[Pair]:
    """Reject pairs of unknown documents."""
    for one in rows:
        if isinstance(one, Pair) and one.doc_id not in documents:
            yield Rejection(Reason.UNKNOWN_DOCUMENT, beginning(one.doc_id))
        else:
            yield one


def distinct(rows: Rows[Pair], seen: set[bytes]) -> Rows[Pair]:
    """Reject pairs in `seen`; the others are added to it."""
    for one in rows:
        if not isinstance(one, Pair):
            yield one
        elif (key := digest(one.query) + digest(one.doc_id)) in seen:
            yield Rejection(Reason.DUPLICATE_PAIR, beginning(f"{one.doc_id} {one.query}"))
        else:
            seen.add(key)
            yield one


def write(root: Location, sources: Sequence[Source]) -> Output:
    """Write the accepted pairs and the rejected rows; equal queries of several documents become one query."""
    pairs = [one for _, found in sources for _, one in found.accepted]
    ids = {query: f"g{number}" for number, query in enumerate(dict.fromkeys(one.query for one in pairs))}
    queries = pa.table([list(ids.values()), list(ids)], schema=schemas.QUERIES)
    paired = pa.table([[ids[one.query] for one in pairs], [one.doc_id for one in pairs]], schema=schemas.PAIRS)
    rejected = tables.rejected((name, *row) for name, found in sources for row in found.rejected)
    made = [
        files.write_parquet(root, "queries.parquet", groups(queries), schemas.QUERIES),
        files.write_parquet(root, "pairs.parquet", groups(paired), schemas.PAIRS),
        files.write_parquet(root, tables.REJECTED, groups(rejected), schemas.REJECTED),
    ]
    return Output(_counts(sources, pairs) | {"queries": len(ids)}, tuple(made))


def _counts(sources: Sequence[Source], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Counts for record.json; read = accepted + rejected."""
    read = sum(found.read for _, found in sources)
    reasons = [one.reason for _, found in sources for _, one in found.rejected]
    return {"pairs": tables.count(read, pairs, reasons), "documents": len({one.doc_id for one in pairs})}


def document_ids(corpus: Artifact) -> IdSet:
    """Ids that a pair may name: those of whole documents."""
    found = [np.array([digest(name) for name in names], NO_DIGESTS.dtype) for names in _ids(corpus)]
    return IdSet(np.concatenate([NO_DIGESTS, *found]))


def _first_id(corpus: Artifact) -> str:
    return next(name for names in _ids(corpus) for name in names)


def _ids(corpus: Artifact) -> Iterator[list[str]]:
    """Ids of whole documents, one file of the corpus at a time."""
    for name in corpus.names("documents/"):
        key = named_by(corpus.path(name))
        yield columns.read([corpus.path(name)], [key])[key].unique().to_pylist()


def named_by(path: Location) -> str:
    """Column of a file of documents that holds the id of the whole document."""
    columns_there = files.read_metadata(path).schema.to_arrow_schema().names
    return schemas.PARENT.name if schemas.PARENT.name in columns_there else "doc_id"
