"""A corpus file range by range: each becomes a part file of documents, and in scratch the fates of its rows.

The fates are the truth of what was accepted: the driver finds ids that recur across parts there, drops
them from the later parts, and counts. Making or settling again, after a crash, gives the same bytes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.corpus import ids
from rayhier.corpus.beir import Range, entries, lines
from rayhier.corpus.check import Entry, Parsed, Reason, count, digest, document
from rayhier.spec.corpus import Limits
from rayhier.storage import columns, files, ledger, schemas
from rayhier.storage.attempt import SCRATCH
from rayhier.storage.files import File
from rayhier.storage.ledger import Ledger
from rayhier.storage.paths import Location

GROUP_ROWS = 10_000
FATES = pa.schema([("line", pa.int64()), ("digest", ids.DIGEST), ("cut", pa.bool_()), ("reason", pa.string())])
"""One row a row read, accepted ones first, in the order of the part file; `reason` is null where accepted."""


@dataclass(frozen=True)
class Part:
    """A finished range."""

    lines: int
    read: int
    documents: File | None
    """None where nothing was accepted."""
    fates: Location


@dataclass
class Settled:
    """All parts of a file, each id once."""

    digests: ids.Digests
    """Of all accepted ids; one that recurs stands more than once."""
    documents: list[File] = field(default_factory=list)
    rejected: list[pa.Table] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    read: int = 0
    accepted: int = 0
    cut: int = 0

    def counts(self) -> dict[str, Any]:
        """Counts for record.json."""
        return count(self.read, self.accepted, self.reasons) | {"cut": self.cut}


def finished(span: Range, root: Location) -> Part | None:
    """The part of a range that an earlier task or run finished."""
    entry = _ledger(root).done(_name(span))
    if entry is None:
        return None
    fates, *documents = entry.files
    return Part(entry.counts["lines"], entry.counts["read"], documents[0] if documents else None, root / fates.name)


def make(span: Range, source: Path, root: Location, limits: Limits) -> int:
    """Read one range and write its part; returns the documents accepted. Holds one range in memory."""
    parsed = entries(lines(source, span.begin, span.end), lambda line: document(line, limits))
    made = [_write_fates(root, span.part, parsed)]
    if parsed.accepted:
        made.append(write_documents(root, span.part, [one for _, one in parsed.accepted]))
    _ledger(root).enter(_name(span), ledger.Entry(tuple(made), {"lines": parsed.lines, "read": parsed.read}))
    return len(parsed.accepted)


def settle(root: Location, parts: Sequence[Part], source: str) -> Settled:
    """Take ids that recur across parts out of the later parts, and count; `source` names rejected rows."""
    digests = [_digests(part) for part in parts]
    settled = Settled(np.concatenate(digests))
    again = ids.later(settled.digests)
    first = line = 0
    for part, own in zip(parts, digests, strict=True):
        begin, end = np.searchsorted(again, (first, first + len(own)))
        positions = again[begin:end] - first
        file = part.documents
        if file is not None and len(positions):
            file = _drop(root, file, own[positions])
        settled.documents += [file] if file else []
        _count(settled, _marked(part, positions), source, line)
        first += len(own)
        line += part.lines
        settled.read += part.read
    return settled


def write_documents(root: Location, part: int, documents: Sequence[Entry]) -> File:
    """The part file of these documents."""
    table = pa.table(
        [[one.key for one in documents], [one.title for one in documents], [one.text for one in documents]],
        schema=schemas.DOCUMENTS,
    )
    return files.write_parquet(root, f"documents/part-{part:05d}.parquet", groups(table), schemas.DOCUMENTS)


def groups(table: pa.Table) -> Iterator[pa.Table]:
    """Slices of a table, to be its row groups."""
    for begin in range(0, table.num_rows, GROUP_ROWS):
        yield table.slice(begin, GROUP_ROWS)


def _write_fates(root: Location, part: int, parsed: Parsed[Entry]) -> File:
    accepted, rejected = parsed.accepted, parsed.rejected
    table = pa.table(
        [
            [line for line, _ in accepted] + [line for line, _ in rejected],
            [digest(one.key) for _, one in accepted] + [None] * len(rejected),
            [one.cut for _, one in accepted] + [False] * len(rejected),
            [None] * len(accepted) + [str(reason) for _, reason in rejected],
        ],
        schema=FATES,
    )
    return files.write_parquet(root, f"{SCRATCH}/fates/{part:05d}.parquet", groups(table), FATES)


def _digests(part: Part) -> ids.Digests:
    """[n] digests of the accepted ids, in the order of the part file."""
    return ids.array(files.read_table(part.fates, ["digest"])["digest"].drop_null())


def _marked(part: Part, positions: npt.NDArray[np.intp]) -> pa.Table:
    """The fates of a part whose documents at these positions recur."""
    fates = files.read_table(part.fates)
    gone = np.zeros(len(fates), dtype=bool)
    gone[positions] = True
    reasons = pc.if_else(pa.array(gone), str(Reason.DUPLICATE_ID), fates["reason"])
    return fates.set_column(fates.schema.get_field_index("reason"), "reason", reasons)


def _count(settled: Settled, fates: pa.Table, source: str, line: int) -> None:
    """Add the fates of a part whose lines follow `line`."""
    accepted = fates.filter(pc.is_null(fates["reason"]))
    rejected = fates.filter(pc.is_valid(fates["reason"])).sort_by("line")
    names = [source] * len(rejected)
    numbers = pc.add(rejected["line"], line)
    settled.rejected.append(pa.table([names, numbers, rejected["reason"]], schema=schemas.REJECTED))
    settled.reasons.update(rejected["reason"].to_pylist())
    settled.accepted += len(accepted)
    settled.cut += pc.sum(accepted["cut"]).as_py() or 0


def _drop(root: Location, file: File, gone: ids.Digests) -> File | None:
    """The part file without the ids of these digests, whether or not an earlier run took them out."""
    path = root / file.name
    table = columns.read([path], schemas.DOCUMENTS.names)
    own = np.array([digest(key) for key in table["doc_id"].to_pylist()], dtype=gone.dtype)
    kept = table.filter(pa.array(~np.isin(own, gone)))
    if kept.num_rows == 0:
        path.unlink()
        return None
    return files.write_parquet(root, file.name, groups(kept), schemas.DOCUMENTS)


def _ledger(root: Location) -> Ledger:
    return Ledger(root / SCRATCH / "ledger", root)


def _name(span: Range) -> str:
    return f"part-{span.part:05d}-{span.begin}-{span.end}"
