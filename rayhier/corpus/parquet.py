"""Read a user's own parquet files, by ranges of row groups."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayhier.corpus import lines, row_checks
from rayhier.corpus.reader import Range, Rows, Stream, checked
from rayhier.corpus.row_checks import HEADER, Entry, Judgement, RowSchema
from rayhier.spec import InputError
from rayhier.spec.corpus import OwnFiles
from rayhier.storage import listing
from rayhier.storage.listing import CorpusFiles, NamedFile
from rayhier.storage.parquet import opened, tables
from rayhier.storage.source import PARQUET

RANGE_BYTES = 16 << 20
"""Most uncompressed bytes of a range of small row groups. A larger row group is a range by itself."""
BATCH_ROWS = 1_000


@dataclass(frozen=True)
class ParquetReader:
    listing: CorpusFiles
    schema: RowSchema

    def ranges(self) -> list[Range]:
        ranges: list[Range] = []
        for file in self.listing.documents:
            self._check(file, self.schema.fields)
            cuts = pieces(_sizes(file.path))
            ranges += [Range(len(ranges) + n, file.name, str(file.path), *cut) for n, cut in enumerate(cuts)]
        return ranges

    def documents(self, piece: Range) -> Rows[Entry]:
        names = self.schema.columns
        wanted = [names.id, names.title, names.text, *self.schema.fields]
        raw = read(Path(piece.path), wanted, range(piece.begin, piece.end))
        return checked(raw, self.schema.document)

    def queries(self) -> Iterator[Stream[Entry]]:
        section = "columns" if self.schema.of_queries == self.schema.columns else "query_columns"
        for file in self.listing.queries:
            for name in ("id", "text"):
                check_columns(f"corpus.{section}.{name}", file.path, [getattr(self.schema.of_queries, name)])
            raw = read(file.path, [self.schema.of_queries.id, self.schema.of_queries.text])
            yield Stream(file.name, checked(raw, self.schema.query))

    def judgements(self, split: str) -> Iterator[Stream[Judgement]]:
        """Stream the judgements of a split, from a parquet file or from BEIR's tab-separated file."""
        file = self.listing.judgements.get(split)
        if file is None:
            return
        if file.path.suffix.lower() != PARQUET:
            yield lines.whole(file, lines.JUDGEMENTS)
            return
        check_columns(f"corpus.judgements.{split}", file.path, HEADER)
        yield Stream(file.name, checked(read(file.path, HEADER), row_checks.judgement_row))

    def _check(self, file: NamedFile, fields: Iterable[str]) -> None:
        wanted = ["id", "text", *(["title"] if self.schema.columns.title != "title" else [])]
        for name in wanted:
            check_columns(f"corpus.columns.{name}", file.path, [getattr(self.schema.columns, name)])
        for name in fields:
            check_columns(f"corpus.fields.{name}", file.path, [name])


def reader(spec: OwnFiles) -> ParquetReader:
    return ParquetReader(listing.find(spec), RowSchema(spec.limits, spec.columns, spec.fields, spec.row_query_columns))


def read(path: Path, columns: Iterable[str], groups: Iterable[int] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, or of some row groups, with the existing columns. InputError if the file is damaged."""
    for table in tables(path, columns, BATCH_ROWS, groups):
        yield from table.to_pylist()


def check_columns(key: str, path: Path, names: Iterable[str]) -> None:
    """Check that a parquet file has the columns `names`. InputError with the spec's `key` if a column is missing."""
    columns = opened(path).schema_arrow.names
    for name in names:
        if name not in columns:
            shown = ", ".join(columns[:20])
            raise InputError(f"{key}: {path} has no column {name!r}; allowed: one of its columns: {shown}")


def pieces(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Cut row groups into ranges [begin, end) of at most RANGE_BYTES. A larger row group is a range by itself.

    >>> pieces([9 << 20, 9 << 20, 1, 1])
    [(0, 1), (1, 4)]
    """
    cuts, range_size = [0], 0
    for number, size in enumerate(sizes):
        if number > cuts[-1] and range_size + size > RANGE_BYTES:
            cuts.append(number)
            range_size = 0
        range_size += size
    return list(zip(cuts, [*cuts[1:], len(sizes)], strict=True))


def _sizes(path: Path) -> list[int]:
    metadata = opened(path).metadata
    return [metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)]
