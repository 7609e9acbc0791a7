"""Queries of a batch search, in chunks: from a user's file, or all documents of the index.

A file is JSON lines (`_id`, `id` or `query_id`, with `text` or `vector`), tab-separated lines (id, text), or parquet.
Columns of parquet are named like keys of JSON. BEIR's `queries.jsonl` is such a file.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rayhier.arrays import Floats, Ints
from rayhier.search.request.request import UNIT_WITHIN, Queries, Rules
from rayhier.spec import InputError
from rayhier.spec.query import check_text
from rayhier.storage import columns, files, parquet
from rayhier.storage.leaf_map import LeafMap

CHUNK, DOCUMENTS = 1_000, 4_096
"""Number of rows of a file of queries, or of documents of an index, that are searched in one chunk."""
IDS, TEXT, VECTOR = ("_id", "id", "query_id"), "text", "vector"
"""Columns or keys of a query's id (the first that exists), of its text and of its vector."""
KINDS = (".jsonl", ".json", ".tsv", ".parquet")
SHOWN = 5
"""Largest number of refused rows of a file of queries that a message names one by one."""


@dataclass(frozen=True)
class QueryRow:
    """A row of a file of queries: an id, and a text or a vector."""

    id: str
    text: str | None = None
    vector: Floats | None = None


@dataclass(frozen=True)
class Chunk:
    ids: Sequence[str]
    parts: Sequence[tuple[Ints, Queries]]
    """Texts and vectors [a, m], each with the places [a] of their queries in `ids`."""
    self_ids: Sequence[str] | None = None
    """Ids of documents that serve as queries, and that results of the same query leave out. None for a file."""

    @classmethod
    def of(cls, rows: Sequence[QueryRow]) -> Self:
        texts = {place: row.text for place, row in enumerate(rows) if row.text is not None}
        vectors = {place: row.vector for place, row in enumerate(rows) if row.vector is not None}
        parts: list[tuple[Ints, Queries]] = []
        if texts:
            parts.append((np.array(list(texts)), list(texts.values())))
        if vectors:
            parts.append((np.array(list(vectors)), np.stack(list(vectors.values()))))
        return cls([row.id for row in rows], parts)


@dataclass
class Refused:
    """Rows of a file of queries that cannot be searched: counts per reason, and the first rows."""

    counts: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)

    def add(self, place: str, reason: str) -> None:
        self.counts[reason] += 1
        if len(self.first) < SHOWN:
            self.first.append(f"{place}: {reason}")

    @property
    def total(self) -> int:
        return self.counts.total()

    def __bool__(self) -> bool:
        return self.total > 0

    def __str__(self) -> str:
        """Describe the number of refused rows, by reason, and the first rows."""
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.counts.items()))
        return f"{self.total:,} refused ({reasons}): {', '.join(self.first)}"


class QueryFile:
    """A file of queries, read in the same chunks each time."""

    def __init__(self, path: Path, rules: Rules) -> None:
        """Take a path, and the rules of the index that is searched. InputError if the file does not exist."""
        if path.suffix not in KINDS:
            raise InputError(f"--queries: got {path.name!r}; allowed: a file that ends in {', '.join(KINDS)}")
        if not path.is_file():
            raise InputError(f"--queries: {path}: no such file")
        self.path, self._rules = path, rules

    @property
    def size(self) -> int:
        return CHUNK

    @property
    def digest(self) -> str:
        return files.digest(self.path)

    def __str__(self) -> str:
        return f"rows of {self.path}"

    def __len__(self) -> int:
        if self.path.suffix == ".parquet":
            try:
                return int(parquet.metadata(self.path).num_rows)
            except (pa.ArrowException, OSError) as error:
                raise InputError(f"--queries: {self.path}: cannot be read: {error}") from None
        with self.path.open("rb") as opened:
            return sum(1 for line in opened if line.strip())

    def chunks(self, refused: Refused) -> Iterator[Chunk]:
        """Yield the file's queries, and count refused rows in `refused`. InputError if a parquet file lacks columns."""
        seen: set[str] = set()
        numbered = self._rows()
        while chunk := list(islice(numbered, self.size)):
            kept = []
            for place, row in chunk:
                try:
                    query = self._query(row)
                    if query.id in seen:
                        raise ValueError("id of an earlier row")
                except ValueError as error:
                    refused.add(place, str(error))
                    continue
                seen.add(query.id)
                kept.append(query)
            yield Chunk.of(kept)

    def _rows(self) -> Iterator[tuple[str, Any]]:
        if self.path.suffix == ".parquet":
            yield from self._parquet()
            return
        with self.path.open("rb") as opened:
            for number, line in enumerate(opened, start=1):
                if line.strip():
                    yield f"line {number}", line

    def _parquet(self) -> Iterator[tuple[str, Any]]:
        try:
            with pq.ParquetFile(self.path) as opened:
                names = opened.schema_arrow.names
                ids = [name for name in IDS if name in names]
                what = [name for name in (TEXT, VECTOR) if name in names]
                if not ids or not what:
                    raise InputError(
                        f"--queries: {self.path}: got columns {', '.join(names)}; allowed: {' or '.join(IDS)}, and "
                        "text or vector"
                    )
                number = 0
                for batch in opened.iter_batches(self.size, columns=[ids[0], *what]):
                    values = [_values(batch[name]) for name in (ids[0], *what)]
                    for row in zip(*values, strict=True):
                        number += 1
                        yield f"row {number}", dict(zip(("id", *what), row, strict=True))
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"--queries: {self.path}: cannot be read: {error}") from None

    def _query(self, row: Any) -> QueryRow:
        """Make a query of a row. ValueError with the reason if the row is refused."""
        fields = self._parsed(row) if isinstance(row, bytes) else row
        name = next((fields[key] for key in IDS if fields.get(key) is not None), None)
        if isinstance(name, int) and not isinstance(name, bool):
            name = str(name)
        if not isinstance(name, str) or not name:
            raise ValueError("without an id")
        if fields.get(VECTOR) is not None:
            return QueryRow(name, vector=self._vector(fields[VECTOR]))
        text = fields.get(TEXT)
        if not isinstance(text, str):
            raise ValueError("without a text or a vector")
        if len(text) > self._rules.limits.max_query:
            raise ValueError(f"of more than {self._rules.limits.max_query} characters")
        try:
            return QueryRow(name, check_text(text))
        except ValueError:
            raise ValueError("without words") from None

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            text = line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise ValueError("not UTF-8") from None
        if self.path.suffix == ".tsv":
            name, tab, words = text.partition("\t")
            if not tab:
                raise ValueError("without a tab")
            return {"id": name, TEXT: words}
        try:
            value = json.loads(text)
        except ValueError:
            raise ValueError("not JSON") from None
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        return value

    def _vector(self, numbers: Any) -> Floats:
        try:
            vector = np.asarray(numbers, dtype=np.float32)
        except (TypeError, ValueError):
            raise ValueError("with a vector that is not a list of numbers") from None
        if vector.shape != (self._rules.dimension,) or not np.isfinite(vector).all():
            raise ValueError(f"with a vector that is not of {self._rules.dimension} finite numbers")
        if self._rules.is_cosine and abs(float(np.linalg.norm(vector)) - 1) > UNIT_WITHIN:
            raise ValueError("with a vector that is not of length 1")
        return vector


class IndexDocuments:
    """All documents (or passages) of a version, in the order of leaves. Their stored vectors serve as queries."""

    def __init__(self, leaf_map: LeafMap) -> None:
        self._leaf_map = leaf_map

    @property
    def size(self) -> int:
        """Number of documents of a chunk. The last chunk of each shard may have fewer."""
        return DOCUMENTS

    @property
    def digest(self) -> str:
        """Entry of the ledger for the queries. The ledger's entry for the index says which documents are queries."""
        return "documents of the index"

    def __str__(self) -> str:
        return self.digest

    def __len__(self) -> int:
        return self._leaf_map.manifest.documents

    def chunks(self, refused: Refused) -> Iterator[Chunk]:  # noqa: ARG002  no document is refused
        """Yield the documents, with one shard in memory at a time. InputError if a file is not as published."""
        for shard in self._leaf_map.manifest.shards:
            key = self._leaf_map.key(shard)
            names = list(dict.fromkeys(["doc_id", key]))
            rows = self._leaf_map.read(shard, [*names, "rank", "vector"])
            first_N, vector_NM = np.flatnonzero(rows["rank"].to_numpy() == 0), columns.as_stored(rows["vector"])
            rows = rows.select(names)  # frees the second copy of the vectors
            for begin in range(0, len(first_N), DOCUMENTS):
                row_A = first_N[begin : begin + DOCUMENTS]
                some, query_AM = rows.take(pa.array(row_A)), vector_NM[row_A].astype(np.float32)
                yield Chunk(some["doc_id"].to_pylist(), [(np.arange(len(row_A)), query_AM)], some[key].to_pylist())


Source = QueryFile | IndexDocuments
"""Source of queries, always in the same chunks."""


def _values(column: pa.Array) -> Sequence[Any]:
    """Return a column's values. Lists of numbers become float32 arrays, with NaN for missing numbers."""
    kind = column.type
    if not (pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind)) or not pa.types.is_floating(kind.value_type):
        return list(column.to_pylist())
    lists = column.cast(pa.list_(pa.float32()))
    flat, ends = lists.values.to_numpy(zero_copy_only=False), lists.offsets.to_numpy().tolist()
    there = lists.is_valid().to_pylist()
    return [flat[begin:end] if held else None for (begin, end), held in zip(pairwise(ends), there, strict=True)]
