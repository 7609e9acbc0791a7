"""Tables that the driver writes beside the documents: queries, judgements, rejected rows; and all counts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rayhier.corpus import check
from rayhier.corpus.check import Entry, Judgement, Reason, Rejection
from rayhier.corpus.parts import groups
from rayhier.corpus.split import cut_dev
from rayhier.storage import files, schemas
from rayhier.storage.files import File
from rayhier.storage.listing import SPLITS
from rayhier.storage.paths import Location

REJECTED = "rejected.parquet"


@dataclass(frozen=True)
class Contents:
    """A source, read and checked: documents in part files, queries and judgements in memory."""

    documents: Sequence[File]
    queries: Sequence[Entry]
    judgements: Mapping[str, Sequence[Judgement]]
    """Judgements by split, as published: before a dev split is cut from train."""
    rejected: Sequence[pa.Table]
    counts: dict[str, Any]
    """Counts of documents, queries and judgements; in each, read = accepted + rejected."""


def splits(judgements: Mapping[str, Sequence[Judgement]]) -> dict[str, Sequence[Judgement]]:
    """Judgements of train, dev and test; where dev has none, it is cut from train."""
    found = {split: judgements.get(split, ()) for split in SPLITS}
    if not found["dev"]:
        found["train"], found["dev"] = cut_dev(found["train"])
    return found


def describe(judgements: Mapping[str, Sequence[Judgement]]) -> dict[str, dict[str, int]]:
    """Number of queries, of judgements, and of judgements above 0, in each split."""
    return {
        split: {
            "queries": len({one.query_id for one in rows}),
            "judgements": len(rows),
            "relevant": sum(one.grade > 0 for one in rows),
        }
        for split, rows in judgements.items()
    }


def stored(root: Location, documents: Iterable[File], fields: Iterable[str]) -> dict[str, Any]:
    """Number of rows in the part files (passages, where declared), and of rows that have each declared field."""
    rows, filled = 0, dict.fromkeys(fields, 0)
    for file in documents:
        held = files.read_metadata(root / file.name)
        rows += held.num_rows
        names = held.schema.to_arrow_schema().names
        for group in map(held.row_group, range(held.num_row_groups)):
            for name in filled:
                column = group.column(names.index(name))
                filled[name] += column.num_values - column.statistics.null_count
    return {"rows": rows, "fields": filled}


def rejected(rows: Iterable[tuple[str, int, Rejection]]) -> pa.Table:
    """Table of rejected rows: file, line, reason, beginning of the row."""
    listed = [(source, line, str(one.reason), one.value) for source, line, one in rows]
    return pa.table(list(zip(*listed, strict=True)) or [()] * len(schemas.REJECTED), schema=schemas.REJECTED)


def count(read: int, accepted: Sequence[object], reasons: Iterable[Reason]) -> dict[str, Any]:
    """Counts of rows of any kind."""
    return check.count(read, len(accepted), Counter(map(str, reasons)))


def count_entries(read: int, accepted: Sequence[Entry], reasons: Iterable[Reason]) -> dict[str, Any]:
    """Counts of documents or queries."""
    return count(read, accepted, reasons) | {"cut": sum(one.cut for one in accepted)}


def write(root: Location, contents: Contents, judgements: Mapping[str, Sequence[Judgement]]) -> list[File]:
    """Write queries, judgements and rejected rows; returns the files."""
    queries = pa.table(
        [[one.key for one in contents.queries], [one.text for one in contents.queries]], schema=schemas.QUERIES
    )
    made = [files.write_parquet(root, "queries.parquet", groups(queries), schemas.QUERIES)]
    for split, rows in judgements.items():
        table = pa.table(
            [[one.query_id for one in rows], [one.doc_id for one in rows], [one.grade for one in rows]],
            schema=schemas.JUDGEMENTS,
        )
        made.append(files.write_parquet(root, f"judgements/{split}.parquet", groups(table), schemas.JUDGEMENTS))
    rejects = (table for table in contents.rejected if table.num_rows)
    made.append(files.write_parquet(root, REJECTED, rejects, schemas.REJECTED))
    return made


def lines(counts: Mapping[str, Any]) -> list[str]:
    """Lines to print that report the counts."""
    rows = {"documents": counts["documents"], "queries": counts["queries"]}
    rows |= {f"{split} judgements": counts["judgements"][split] for split in SPLITS}
    said = [f"  {name}: {line(row)}" for name, row in rows.items() if row["read"]]
    if counts["rows"] != counts["documents"]["accepted"]:
        said.insert(1, f"  passages: {counts['rows']:,}")
    if counts["fields"]:
        said.insert(1, f"  documents with fields: {', '.join(f'{k} {n:,}' for k, n in counts['fields'].items())}")
    written = [f"{split} {row['queries']:,} ({row['judgements']:,})" for split, row in counts["splits"].items()]
    return [*said, f"  queries (judgements) by split: {', '.join(written)}"]


def line(row: Mapping[str, Any]) -> str:
    """Counts of rows of one kind as text: read, accepted, cut, rejected and why."""
    reasons = ", ".join(f"{reason} {number:,}" for reason, number in row["rejected"].items())
    said = [f"{row['read']:,} read", f"{row['accepted']:,} accepted"]
    if row.get("cut"):
        said.append(f"{row['cut']:,} cut to the limits")
    said.append(f"{row['read'] - row['accepted']:,} rejected{f' ({reasons})' if reasons else ''}")
    return ", ".join(said)
