"""Documents of an index by their ids: some by name, or a page of all in the order of ids.

Shapes: N rows of a segment, R rows chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Bools, Ints
from rayhier.dataset.ranking import ID
from rayhier.search.answer import OWN
from rayhier.search.scan import LeafScan
from rayhier.search.segment import DOC_ID, MappedSegment
from rayhier.spec import InputError


@dataclass(frozen=True)
class Lookup:
    """A piece of work: read the documents with these ids. The answer is a table of their first rows."""

    ids: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise InputError where an id is not UTF-8."""
        _check(*self.ids)


@dataclass(frozen=True)
class Listing:
    """A piece of work: read the first documents whose ids come after one. The answer is a table of their first rows."""

    after: str
    """Id before the first; empty: begin with the first of all."""
    count: int
    """Most documents."""

    def __post_init__(self) -> None:
        """Raise InputError where `after` is not UTF-8."""
        _check(self.after)


@dataclass(frozen=True)
class Stored:
    """A document as an index holds it."""

    id: str
    title: str
    text: str | None
    """Its text; None where the corpus is cut into passages."""
    passages: list[str] | None
    """Texts of its passages, in their order; None where the corpus is not cut."""
    fields: dict[str, Any]
    """The corpus's declared fields, by name."""
    leaves: list[int]
    """Numbers of the leaves that hold it first: one, or those of its passages."""


def _check(*ids: str) -> None:
    for name in ids:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InputError(f"id: got {name!r:.80}; allowed: text in UTF-8") from None


def read(leaves: LeafScan, work: Lookup | Listing) -> pa.Table:
    """Do a piece of work over the documents whose first leaf is among those of a scan of mapped files.

    Columns are `id`, `doc_id`, `leaf`, `title`, `text` and the declared fields; a passage is a row.
    """
    segments = [segment for segment in leaves.segments if isinstance(segment, MappedSegment)]
    if len(segments) < len(leaves.segments):
        raise TypeError("documents: got rows in memory; allowed: of mapped files")
    found = [(segment, _rows(segment, leaves.leaves, work)) for segment in segments]
    if isinstance(work, Listing) and found:
        names = pa.chunked_array([segment.ids().take(pa.array(rows)).combine_chunks() for segment, rows in found])
        kept = _first(names, work.count)
        found = [(segment, rows[_among(segment.ids().take(pa.array(rows)), kept)]) for segment, rows in found]
    tables = [_shown(segment, rows) for segment, rows in found if len(rows)]
    return pa.concat_tables(tables) if tables else pa.table({ID: pa.array([], pa.string())})


def documents(tables: Sequence[pa.Table], work: Lookup | Listing) -> list[Stored]:
    """Make the documents of the answers of all parts of an index: in the order of the ids asked, or of all ids."""
    rows = [row for table in tables for row in table.to_pylist()]
    rows.sort(key=lambda row: (row[ID], row[DOC_ID]))
    made = {name: _document(name, list(parts)) for name, parts in groupby(rows, key=lambda row: str(row[ID]))}
    if isinstance(work, Lookup):
        return [made[name] for name in dict.fromkeys(work.ids) if name in made]
    return list(made.values())[: work.count]


def _rows(segment: MappedSegment, leaves: range, work: Lookup | Listing) -> Ints:
    """Return the first rows [r] of the documents that a piece of work asks for, of a listing those of all after one."""
    ids = segment.ids()
    wanted = pc.is_in(ids, value_set=pa.array(work.ids, pa.string())) if isinstance(work, Lookup) else None
    if isinstance(work, Listing) and work.after:
        wanted = pc.greater(ids, work.after)
    first_R = segment.first_rows(leaves)
    return first_R if wanted is None else first_R[wanted.to_numpy()[first_R]]


def _first(names: pa.ChunkedArray, count: int) -> pa.Array:
    """Return the first `count` distinct ids in their order, by bytes."""
    table = pa.table({ID: pc.unique(names)})
    return table.take(pc.select_k_unstable(table, count, [(ID, "ascending")]))[ID].combine_chunks()


def _among(names: pa.ChunkedArray, kept: pa.Array) -> Bools:
    return np.asarray(pc.is_in(names, value_set=kept).to_numpy())


def _shown(segment: MappedSegment, rows: Ints) -> pa.Table:
    shown = segment.take(rows)
    doc_ids = shown[ID] if not segment.holds_passages else segment.table[DOC_ID].take(pa.array(rows))
    return shown.append_column(DOC_ID, doc_ids)


def _document(name: str, parts: Sequence[dict[str, Any]]) -> Stored:
    """Make a document from its rows: one, or those of its passages in the order of their ids."""
    first, is_cut = parts[0], any(part[DOC_ID] != name for part in parts)
    texts = [str(part["text"]) for part in parts]
    fields = {key: value for key, value in first.items() if key not in (*OWN, DOC_ID)}
    leaves = sorted({int(part["leaf"]) for part in parts})
    return Stored(name, first["title"], None if is_cut else texts[0], texts if is_cut else None, fields, leaves)
