"""Tables of queries, judgements and rejected rows, and counts of all rows. The driver process writes these tables."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from rayhier.corpus import row_checks
from rayhier.corpus.parts import groups
from rayhier.corpus.row_checks import Entry, Judgement, Reason, Rejection
from rayhier.dataset.documents import document_texts
from rayhier.dataset.families import told_before, told_cut
from rayhier.dataset.words import SOME, language_of
from rayhier.spec.corpus import Language
from rayhier.storage import parquet, schemas
from rayhier.storage.files import File
from rayhier.storage.paths import Location

REJECTED = "rejected.parquet"


def describe(judgements: Mapping[str, Sequence[Judgement]]) -> dict[str, dict[str, int]]:
    return {
        split: {
            "queries": len({judgement.query_id for judgement in rows}),
            "judgements": len(rows),
            "relevant": sum(judgement.grade > 0 for judgement in rows),
        }
        for split, rows in judgements.items()
    }


def stored(
    root: Location, documents: Sequence[File], fields: Iterable[str], language: Language | Literal["auto"]
) -> dict[str, Any]:
    """Count the rows in files of documents and the values of each declared field. If `language` is auto, detect it."""
    rows, filled, some = 0, dict.fromkeys(fields, 0), -(-SOME // max(1, len(documents)))
    read = (parquet.read_rows(root / file.name, ["title", "text"], 0, some) for file in documents)
    if language == "auto":
        language = language_of(text for table in read for text in document_texts(table))
    for file in documents:
        metadata = parquet.metadata(root / file.name)
        rows += metadata.num_rows
        names = metadata.schema.to_arrow_schema().names
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for name in filled:
                column = group.column(names.index(name))
                filled[name] += column.num_values - column.statistics.null_count
    return {"rows": rows, "fields": filled, "language": language}


def rejected(rows: Iterable[tuple[str, int, Rejection]]) -> pa.Table:
    listed = [(source, line, str(rejection.reason), rejection.value) for source, line, rejection in rows]
    return pa.table(list(zip(*listed, strict=True)) or [()] * len(schemas.REJECTED), schema=schemas.REJECTED)


def count(read: int, accepted: Sequence[object], reasons: Iterable[Reason]) -> dict[str, Any]:
    return row_checks.count(read, len(accepted), Counter(map(str, reasons)))


def queries_table(queries: Sequence[Entry]) -> pa.Table:
    return pa.table([[query.key for query in queries], [query.text for query in queries]], schema=schemas.QUERIES)


def write(
    root: Location, queries: pa.Table, judgements: Mapping[str, Sequence[Judgement]], rejects: Iterable[pa.Table]
) -> list[File]:
    written = [parquet.write(root, "queries.parquet", groups(queries), queries.schema)]
    for split, rows in judgements.items():
        table = pa.table(
            [
                [judgement.query_id for judgement in rows],
                [judgement.doc_id for judgement in rows],
                [judgement.grade for judgement in rows],
            ],
            schema=schemas.JUDGEMENTS,
        )
        written.append(parquet.write(root, f"judgements/{split}.parquet", groups(table), schemas.JUDGEMENTS))
    rejects = (table for table in rejects if table.num_rows)
    written.append(parquet.write(root, REJECTED, rejects, schemas.REJECTED))
    return written


def lines(counts: Mapping[str, Any]) -> list[str]:
    """Format the counts of a corpus, or of a split without documents, as lines for the user."""
    rows = {kind: counts[kind] for kind in ("documents", "queries") if kind in counts}
    rows |= {f"{split} judgements": row for split, row in counts["judgements"].items()}
    shown = [f"  {name}: {line(row)}" for name, row in rows.items() if row["read"]]
    if "rows" in counts and counts["rows"] != counts["documents"]["accepted"]:
        shown.insert(1, f"  passages: {counts['rows']:,}")
    if counts.get("fields"):
        shown.insert(1, f"  documents with fields: {', '.join(f'{k} {n:,}' for k, n in counts['fields'].items())}")
    if "language" in counts:
        stems = "words are counted as they are" if counts["language"] == "none" else "words are counted by their stems"
        shown.append(f"  language: {counts['language']}, {stems}")
    written = [f"{split} {row['queries']:,} ({row['judgements']:,})" for split, row in counts["splits"].items()]
    shown.append(f"  queries (judgements) by split: {', '.join(written)}")
    return shown


def notes(counts: Mapping[str, Any]) -> list[str]:
    """Say how dev was cut out of train, and how many queries of each split are also in an earlier split."""
    before = counts["asked_before"].items()
    shared = [told_before(split, **row) for split, row in before if row["by_id"] + row["by_text"]]
    return [*([told_cut(**counts["cut"])] if "cut" in counts else []), *(f"warning: {told}" for told in shared)]


def line(row: Mapping[str, Any]) -> str:
    reasons = ", ".join(f"{reason} {number:,}" for reason, number in row["rejected"].items())
    phrases = [f"{row['read']:,} read", f"{row['accepted']:,} accepted"]
    if row.get("cut"):
        phrases.append(f"{row['cut']:,} cut to the limits")
    phrases.append(f"{row['read'] - row['accepted']:,} rejected{f' ({reasons})' if reasons else ''}")
    return ", ".join(phrases)
