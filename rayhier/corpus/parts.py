"""Turn each range of a source into a part file of accepted documents and a scratch file of fates.

The fate of a row says that the row was accepted, or why it was rejected. From the fates alone, the driver process
counts rows and drops ids that occur in several parts. `make` and `settle` write the same bytes again after a crash.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.corpus import ids
from rayhier.corpus.passages import DocumentLayout
from rayhier.corpus.reader import Range, Rows, distinct
from rayhier.corpus.row_checks import Entry, Reason, Rejection, beginning, count, digest
from rayhier.storage import columns, ledger, parquet, schemas
from rayhier.storage.attempt import SCRATCH
from rayhier.storage.files import File
from rayhier.storage.ledger import Ledger
from rayhier.storage.paths import Location

GROUP_ROWS = 10_000
CHUNK_DOCUMENTS = 1_000
FATES = pa.schema(
    [("line", pa.int64()), ("value", pa.string()), ("digest", ids.DIGEST), ("cut", pa.bool_()), ("reason", pa.string())]
)
"""Columns of a file of fates. Accepted rows come first, in the order of the part file. `value` is the beginning of the
id, or of a rejected row. `digest` is a hash of the id."""


@dataclass(frozen=True)
class PartFile:
    source: str
    lines: int
    read: int
    documents: File | None
    fates: Location


@dataclass
class Fates:
    lines: int = 0
    accepted: list[tuple[int, str, bytes, bool]] = field(default_factory=list)
    """Accepted rows: line, beginning of the id, digest of the id, and True if title or text was cut."""
    rejected: list[tuple[int, Rejection]] = field(default_factory=list)

    def keep(self, rows: Rows[Entry]) -> Iterator[Entry]:
        for row in rows:
            self.lines += 1
            if isinstance(row, Rejection):
                self.rejected.append((self.lines, row))
            elif row is not None:
                self.accepted.append((self.lines, beginning(row.key), digest(row.key), row.cut))
                yield row

    def table(self) -> pa.Table:
        rows: list[tuple[Any, ...]] = [(*row, None) for row in self.accepted]
        rows += [(line, rejection.value, None, False, str(rejection.reason)) for line, rejection in self.rejected]
        values = list(zip(*rows, strict=True)) or [()] * len(FATES)
        return pa.table([pa.array(value, kind) for value, kind in zip(values, FATES.types, strict=True)], schema=FATES)


@dataclass
class CheckedParts:
    """Part files of a source, in which each id occurs once, and counts of rows."""

    digests: ids.Digests
    """Digests [n] of all ids that parts accepted. An id in several parts occurs several times."""
    documents: list[File] = field(default_factory=list)
    rejected: list[pa.Table] = field(default_factory=list)
    reasons: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    read: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    cut: int = 0

    def counts(self) -> dict[str, Any]:
        reasons = sum(self.reasons.values(), Counter[str]())
        return count(self.read.total(), self.accepted, reasons) | {"cut": self.cut}

    def misshapen(self) -> list[str]:
        """List the files in which no row has the right number of columns."""
        return [name for name, rows in self.read.items() if rows and self.reasons[name][Reason.WRONG_COLUMNS] == rows]


def finished(piece: Range, root: Location) -> PartFile | None:
    entry = _ledger(root).done(_name(piece))
    if entry is None:
        return None
    fates, *documents = entry.files
    document_file = documents[0] if documents else None
    return PartFile(piece.source, entry.counts["lines"], entry.counts["read"], document_file, root / fates.name)


def make(piece: Range, rows: Rows[Entry], root: Location, layout: DocumentLayout) -> int:
    """Write the part of a range: its accepted documents, each id once. Returns the number of documents."""
    fates = Fates()
    file = write_documents(root, piece.part, fates.keep(distinct(rows, set())), layout)
    noted = parquet.write(root, f"{SCRATCH}/fates/{piece.part:05d}.parquet", groups(fates.table()), FATES)
    read = len(fates.accepted) + len(fates.rejected)
    entry = ledger.LedgerEntry((noted, *([file] if file else [])), {"lines": fates.lines, "read": read})
    _ledger(root).enter(_name(piece), entry)
    return len(fates.accepted)


def settle(root: Location, parts: Sequence[PartFile], layout: DocumentLayout) -> CheckedParts:
    """Keep an id that occurs in several parts only in the first of these parts. Counts the rows of all parts."""
    digests = [ids.array(parquet.read(part.fates, ["digest"])["digest"].drop_null()) for part in parts]
    checked = CheckedParts(np.concatenate([ids.NO_DIGESTS, *digests]))
    again = ids.later(checked.digests)
    first = 0
    lines: Counter[str] = Counter()
    for part, part_digests in zip(parts, digests, strict=True):
        begin, end = np.searchsorted(again, (first, first + len(part_digests)))
        positions = again[begin:end] - first
        file = part.documents
        if file is not None and len(positions):
            file = _drop(root, file, part_digests[positions], layout)
        checked.documents += [file] if file else []
        _count(checked, part, positions, lines[part.source])
        first += len(part_digests)
        lines[part.source] += part.lines
    return checked


def write_documents(root: Location, part: int, documents: Iterator[Entry], layout: DocumentLayout) -> File | None:
    chunks = iter(lambda: list(islice(documents, CHUNK_DOCUMENTS)), [])
    first = next(chunks, None)
    if first is None:
        return None
    tables = (layout.table(chunk) for chunk in chain([first], chunks))
    return parquet.write(root, f"documents/part-{part:05d}.parquet", regrouped(tables), layout.schema)


def regrouped(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Join consecutive tables until each has at least GROUP_ROWS rows. Only the last may have fewer."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(map(len, waiting)) >= GROUP_ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def groups(table: pa.Table) -> Iterator[pa.Table]:
    for begin in range(0, table.num_rows, GROUP_ROWS):
        yield table.slice(begin, GROUP_ROWS)


def _count(checked: CheckedParts, part: PartFile, duplicates: npt.NDArray[np.intp], line: int) -> None:
    """Count the rows of a part. Rows at the positions `duplicates` count as rejected."""
    fates = parquet.read(part.fates)
    is_duplicate = np.zeros(len(fates), dtype=bool)
    is_duplicate[duplicates] = True
    reasons = pc.if_else(pa.array(is_duplicate), str(Reason.DUPLICATE_ID), fates["reason"])
    fates = fates.set_column(fates.schema.get_field_index("reason"), "reason", reasons)
    accepted = fates.filter(pc.is_null(reasons))
    rejected = fates.filter(pc.is_valid(reasons)).sort_by("line")
    names = [part.source] * len(rejected)
    numbers = pc.add(rejected["line"], line)
    checked.rejected.append(pa.table([names, numbers, rejected["reason"], rejected["value"]], schema=schemas.REJECTED))
    checked.reasons[part.source].update(rejected["reason"].to_pylist())
    checked.read[part.source] += part.read
    checked.accepted += len(accepted)
    checked.cut += pc.sum(accepted["cut"]).as_py() or 0


def _drop(root: Location, file: File, removed: ids.Digests, layout: DocumentLayout) -> File | None:
    """Rewrite a part file without the ids whose digests are in `removed`. Returns None if no row is left."""
    path = root / file.name
    table = columns.read([path], layout.schema.names)
    remaining = table.filter(pa.array(~np.isin(ids.of(table[layout.key].to_pylist()), removed)))
    if remaining.num_rows == 0:
        path.unlink()
        return None
    return parquet.write(root, file.name, groups(remaining), layout.schema)


def _ledger(root: Location) -> Ledger:
    return Ledger(root / SCRATCH / "ledger", root)


def _name(piece: Range) -> str:
    return f"part-{piece.part:05d}-{piece.begin}-{piece.end}"
