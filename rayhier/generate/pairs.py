"""Generated pairs of a query and its document: accepted pairs, and rejected pairs with reasons."""

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
"""Name of a source of pairs in rejected.parquet, and its accepted and rejected pairs."""


def read_file(path: Path, corpus: Artifact, limits: Limits) -> Source:
    """Read a file of pairs: accepted and rejected ones; InputError where no pair names a document of the corpus."""
    form = lines.Format(lambda line: check.pair(check.json_row(line), limits), ALLOWED)
    rows = lines.whole(NamedFile(path.name, path), form).rows
    parsed = collect(distinct(known(rows, document_ids(corpus)), set()))
    unknown = [rejection.value for _, rejection in parsed.rejected if rejection.reason == Reason.UNKNOWN_DOCUMENT]
    if unknown and not parsed.accepted:
        raise InputError(
            f"{FILE}: {path}: none of its {len(unknown):,} pairs names a document of the corpus (the first: "
            f"{unknown[0]!r}); allowed: ids of its documents, such as {_first_id(corpus)!r}"
        )
    return path.name, parsed


def check_written(written: Iterable[tuple[str, pa.Table]], limits: Limits) -> list[Source]:
    """Check queries that a model wrote for each part of the corpus, given as a name and a table (`query`, `doc_id`)."""
    earlier: set[bytes] = set()
    return [
        (name, collect(distinct(checked(table.to_pylist(), lambda row: check.pair(row, limits)), earlier)))
        for name, table in written
    ]


def known(rows: Rows[Pair], documents: Container[str]) -> Rows[Pair]:
    """Yield the rows in order, with a rejection in place of each pair whose document is not in `documents`."""
    for row in rows:
        if isinstance(row, Pair) and row.doc_id not in documents:
            yield Rejection(Reason.UNKNOWN_DOCUMENT, beginning(row.doc_id))
        else:
            yield row


def distinct(rows: Rows[Pair], earlier: set[bytes]) -> Rows[Pair]:
    """Reject pairs that occurred before: their digest is in `earlier`, to which digests of accepted pairs are added."""
    for row in rows:
        if not isinstance(row, Pair):
            yield row
        elif (key := digest(row.query) + digest(row.doc_id)) in earlier:
            yield Rejection(Reason.DUPLICATE_PAIR, beginning(f"{row.doc_id} {row.query}"))
        else:
            earlier.add(key)
            yield row


def write(root: Location, sources: Sequence[Source]) -> Output:
    """Write accepted pairs, their queries and rejected rows below `root`, as parquet files; returns counts and files.

    A text that is a query of several documents is one query there.
    """
    pairs = [pair for _, parsed in sources for _, pair in parsed.accepted]
    ids = {query: f"g{number}" for number, query in enumerate(dict.fromkeys(pair.query for pair in pairs))}
    queries = pa.table([list(ids.values()), list(ids)], schema=schemas.QUERIES)
    paired = pa.table([[ids[pair.query] for pair in pairs], [pair.doc_id for pair in pairs]], schema=schemas.PAIRS)
    rejected = tables.rejected((name, *row) for name, parsed in sources for row in parsed.rejected)
    written = [
        files.write_parquet(root, "queries.parquet", groups(queries), schemas.QUERIES),
        files.write_parquet(root, "pairs.parquet", groups(paired), schemas.PAIRS),
        files.write_parquet(root, tables.REJECTED, groups(rejected), schemas.REJECTED),
    ]
    return Output(_counts(sources, pairs) | {"queries": len(ids)}, tuple(written))


def _counts(sources: Sequence[Source], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Counts for record.json; read = accepted + rejected."""
    read = sum(parsed.read for _, parsed in sources)
    reasons = [rejection.reason for _, parsed in sources for _, rejection in parsed.rejected]
    return {"pairs": tables.count(read, pairs, reasons), "documents": len({pair.doc_id for pair in pairs})}


def document_ids(corpus: Artifact) -> IdSet:
    """Return the ids that a pair may name: of documents, also where the corpus is cut into passages."""
    digests = [np.array([digest(name) for name in names], NO_DIGESTS.dtype) for names in _ids(corpus)]
    return IdSet(np.concatenate([NO_DIGESTS, *digests]))


def _first_id(corpus: Artifact) -> str:
    return next(name for names in _ids(corpus) for name in names)


def _ids(corpus: Artifact) -> Iterator[list[str]]:
    for name in corpus.names("documents/"):
        key = named_by(corpus.path(name))
        yield columns.read([corpus.path(name)], [key])[key].unique().to_pylist()


def named_by(path: Location) -> str:
    """Return the name of the column with a document's id, also where rows are passages, in a file of documents."""
    columns_there = files.read_metadata(path).schema.to_arrow_schema().names
    return schemas.PARENT.name if schemas.PARENT.name in columns_there else "doc_id"
