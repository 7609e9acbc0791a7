"""Documents of an index: some by given ids, or a page of all documents in the order of ids.

A document's first row is the row in its best leaf. Each passage has a first row. Ids are compared byte by byte. Shapes:
N first rows of a segment, R rows chosen.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Ints
from rayhier.corpus.passages import joined
from rayhier.dataset.ranking import ID, OWN, Needs
from rayhier.dataset.words import word_hashes
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.search.segment.segment import DOC_ID, INNER, Segment
from rayhier.spec import InputError
from rayhier.storage.leaf_map import LeafMap, key_of


@dataclass(frozen=True)
class Lookup:
    """A piece of work: read documents by ids. The answer is a table of the documents' first rows."""

    ids: tuple[str, ...]
    needs: Needs = "texts"
    """Columns that are read. `ids` tells only which ids exist."""

    def __post_init__(self) -> None:
        _check("id", *self.ids)


@dataclass(frozen=True)
class Listing:
    """A piece of work: read the first documents whose ids come after an id. The answer is a table of first rows."""

    after: str
    """Id before the first id of the page. Empty: begin with the first document of the index."""
    count: int

    def __post_init__(self) -> None:
        _check("after", self.after)


@dataclass(frozen=True)
class Stored:
    id: str
    title: str
    text: str
    passages: list[str] | None
    """Texts of the document's passages, in their order. None if the document is not cut into passages."""
    fields: dict[str, Any]
    """The corpus's declared fields, by name."""
    first_leaves: list[int]
    """Numbers of the leaves of the document's first rows: its best leaf, or the best leaves of its passages."""


def _check(name: str, *ids: str) -> None:
    for id_ in ids:
        try:
            id_.encode()
        except (AttributeError, UnicodeEncodeError):
            raise InputError(f"{name}: got {id_!r:.80}; allowed: an id, text in UTF-8") from None


class StoredDocuments:
    """Reads documents whose first rows are in the leaves of a scan of mapped files.

    A lookup finds ids by their hashes, which lie sorted in the files. The first page sorts the ids of each file, and
    keeps four bytes per row. Later pages read only the documents that they show.
    """

    def __init__(self, leaves: LeafScan) -> None:
        self._leaves = leaves

    @cached_property
    def _sorted(self) -> list["_Sorted"]:
        return [_Sorted.of(segment, self._leaves.leaves) for segment in self._leaves.segments]

    def read(self, work: Lookup | Listing) -> pa.Table:
        """Read first rows: columns `id`, `doc_id`, `leaf`, `title`, `text` and the declared fields."""
        if isinstance(work, Lookup):
            names, needs = list(dict.fromkeys(work.ids)), work.needs
        else:
            after = {name for ordered in self._sorted for name in ordered.after(work.after, work.count)}
            names, needs = sorted(after)[: work.count], "texts"
        hash_X, wanted = word_hashes(names), pa.array(names, pa.string())
        tables = []
        for segment in self._leaves.segments:
            row_R = self._first_rows(segment, segment.with_ids(hash_X), wanted)
            if len(row_R):
                tables.append(_shown(segment, row_R, needs=needs))
        return pa.concat_tables(tables) if tables else pa.table({ID: pa.array([], pa.string())})

    def _first_rows(self, segment: Segment, row_R: Ints, wanted: pa.Array) -> Ints:
        """Keep the rows [r] in this scan's leaves with a wanted id. Other ids may have the hash of a wanted id."""
        if not len(row_R):
            return row_R
        leaf_R = segment.table["leaf"].take(pa.array(row_R)).to_numpy()
        among_R = (leaf_R >= self._leaves.leaves.start) & (leaf_R < self._leaves.leaves.stop)
        is_wanted_R = pc.is_in(segment.ids().take(pa.array(row_R)), wanted).to_numpy()
        return np.asarray(row_R[among_R & is_wanted_R])


@dataclass(frozen=True)
class _Sorted:
    segment: Segment
    row_N: Ints

    @classmethod
    def of(cls, segment: Segment, leaves: range) -> "_Sorted":
        first_N = segment.first_rows(leaves)
        order_N = pc.sort_indices(segment.ids().take(pa.array(first_N))).to_numpy()
        return cls(segment, first_N[order_N].astype(np.int32))

    def _id(self, row: int) -> str:
        return str(self.segment.ids()[int(row)].as_py())

    def after(self, name: str, count: int) -> Iterator[str]:
        """Yield at most `count` ids after an id, in their order."""
        place = bisect_right(self.row_N, name, key=self._id)
        while count and place < len(self.row_N):
            name, count = self._id(self.row_N[place]), count - 1
            yield name
            place += 1
            if self.segment.holds_passages:
                place = bisect_right(self.row_N, name, lo=place, key=self._id)


def _shown(segment: Segment, rows: Ints, *, needs: Needs) -> pa.Table:
    shown = segment.take(rows, needs=needs)
    return shown if needs == "ids" else shown.append_column(DOC_ID, segment.table[DOC_ID].take(pa.array(rows)))


def read_shards(leaf_map: LeafMap, work: Lookup | Listing) -> list[pa.Table]:
    """Do a piece of work from a leaf map's shards. Of shards without a wanted document, only ids are read."""
    shards = [shard for shard in leaf_map.manifest.shards if shard.rows]
    kept = list(work.ids) if isinstance(work, Lookup) else []
    if isinstance(work, Listing):
        for shard in shards:
            ids = leaf_map.read(shard, [leaf_map.key(shard)], verify=False)[leaf_map.key(shard)]
            later = pc.unique(ids.filter(pc.greater(ids, work.after)) if work.after else ids)
            least = pc.select_k_unstable(pa.table({ID: later}), work.count, [(ID, "ascending")])
            kept = sorted({*kept, *later.take(least).to_pylist()})[: work.count]
    wanted, tables = pa.array(kept, pa.string()), list[pa.Table]()
    for shard in shards:
        key = leaf_map.key(shard)
        if not pc.any(pc.is_in(leaf_map.read(shard, [key], verify=False)[key], wanted)).as_py():
            continue
        rows = leaf_map.read(shard, without=("vector",))
        rows = rows.filter(pc.and_(pc.equal(rows["rank"], 0), pc.is_in(rows[key], wanted)))
        key, names = key_of(rows.column_names), [name for name in rows.column_names if name not in INNER]
        inner = {ID: rows[key], DOC_ID: rows[DOC_ID]}
        tables.append(pa.table({**inner, **{name: rows[name] for name in names}}))
    return tables


def documents(tables: Sequence[pa.Table], work: Lookup | Listing) -> list[Stored]:
    """Make documents from the answers of all parts of an index, in the order of `Lookup.ids`, else sorted by id."""
    rows = [row for table in tables for row in table.to_pylist()]
    rows.sort(key=lambda row: (row[ID], _passage(row)))
    made = {name: _document(name, list(parts)) for name, parts in groupby(rows, key=lambda row: str(row[ID]))}
    if isinstance(work, Lookup):
        return [made[name] for name in dict.fromkeys(work.ids) if name in made]
    return list(made.values())[: work.count]


def _passage(row: dict[str, Any]) -> int:
    return 0 if row[DOC_ID] == row[ID] else int(row[DOC_ID].rpartition("#")[2])


def _document(name: str, parts: Sequence[dict[str, Any]]) -> Stored:
    first, is_cut = parts[0], any(part[DOC_ID] != name for part in parts)
    texts = [str(part["text"]) for part in parts]
    fields = {key: value for key, value in first.items() if key not in (*OWN, DOC_ID)}
    leaves = sorted({int(part["leaf"]) for part in parts})
    return Stored(name, first["title"], joined(texts), texts if is_cut else None, fields, leaves)
