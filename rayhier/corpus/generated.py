"""Read generated queries: pairs of a document and a query that was written for the document."""

from collections.abc import Container
from pathlib import Path

import pyarrow as pa

from rayhier.corpus import ids, lines, row_checks, tables
from rayhier.corpus.parts import groups
from rayhier.corpus.reader import Rows, collect
from rayhier.corpus.row_checks import Pair, ParsedRows, Reason, Rejection, beginning, digest
from rayhier.progress import here, log, say
from rayhier.spec import InputError
from rayhier.spec.corpus import Limits
from rayhier.storage import parquet, schemas
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.listing import NamedFile
from rayhier.storage.pair_source import ALLOWED, KEY
from rayhier.storage.paths import Location


def build(path: Path, corpus: Artifact, limits: Limits, attempt: Attempt) -> Output:
    """Read a file of pairs for documents of `corpus`. InputError if no pair is accepted."""
    output = write(attempt.root, path.name, read(path, corpus, limits))
    counts = output.counts["pairs"]
    summary = tables.line(counts)
    if not counts["accepted"]:
        raise InputError(f"{KEY}: {path}: no pair accepted ({summary}); allowed: {ALLOWED}")
    log(f"  generated pairs: {summary}")
    log(f"  generated queries: {output.counts['queries']:,}, for {output.counts['documents']:,} documents")
    if counts["rejected"]:
        say(f"  rejected rows: {here(attempt.root / tables.REJECTED)}")
    return output


def read(path: Path, corpus: Artifact, limits: Limits) -> ParsedRows[Pair]:
    """Read accepted and rejected pairs of a file. InputError if no pair names a document of the corpus."""
    form = lines.Format(lambda line: row_checks.pair(row_checks.json_row(line), limits), ALLOWED)
    documents = ids.IdSet(ids.of(ids.of_documents(corpus)))
    parsed = collect(distinct(known(lines.whole(NamedFile(path.name, path), form).rows, documents)))
    unknown = [rejection.value for _, rejection in parsed.rejected if rejection.reason == Reason.UNKNOWN_DOCUMENT]
    if unknown and not parsed.accepted:
        raise InputError(
            f"{KEY}: {path}: none of {len(unknown):,} pairs names a known document (first: "
            f"{unknown[0]!r}); allowed: ids of its documents, such as {next(ids.of_documents(corpus))!r}"
        )
    return parsed


def known(rows: Rows[Pair], documents: Container[str]) -> Rows[Pair]:
    for row in rows:
        if isinstance(row, Pair) and row.doc_id not in documents:
            yield Rejection(Reason.UNKNOWN_DOCUMENT, beginning(row.doc_id))
        else:
            yield row


def distinct(rows: Rows[Pair]) -> Rows[Pair]:
    """Reject pairs that an earlier row contains."""
    earlier: set[bytes] = set()
    for row in rows:
        if not isinstance(row, Pair):
            yield row
        elif (key := digest(row.query) + digest(row.doc_id)) in earlier:
            yield Rejection(Reason.DUPLICATE_PAIR, beginning(f"{row.doc_id} {row.query}"))
        else:
            earlier.add(key)
            yield row


def write(root: Location, name: str, parsed: ParsedRows[Pair]) -> Output:
    """Write accepted pairs, distinct queries and rejected rows below `root`, as parquet. Returns counts and files."""
    pairs = [pair for _, pair in parsed.accepted]
    key_of = {query: f"g{number}" for number, query in enumerate(dict.fromkeys(pair.query for pair in pairs))}
    queries = pa.table([list(key_of.values()), list(key_of)], schema=schemas.QUERIES)
    paired = pa.table([[key_of[pair.query] for pair in pairs], [pair.doc_id for pair in pairs]], schema=schemas.PAIRS)
    rejected = tables.rejected((name, *row) for row in parsed.rejected)
    written = tuple(
        parquet.write(root, file, groups(table), table.schema)
        for file, table in (("queries.parquet", queries), ("pairs.parquet", paired), (tables.REJECTED, rejected))
    )
    counts = {
        "pairs": tables.count(parsed.read, pairs, [rejection.reason for _, rejection in parsed.rejected]),
        "documents": len({pair.doc_id for pair in pairs}),
        "queries": len(key_of),
    }
    return Output(counts, written)
