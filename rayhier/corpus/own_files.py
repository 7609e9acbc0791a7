"""Read a user's own files: documents in one format, and queries and judgements in the formats of their files."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

from rayhier.corpus import lines, parquet, row_checks
from rayhier.corpus.parquet import check_columns
from rayhier.corpus.reader import Range, Rows, Stream, checked
from rayhier.corpus.row_checks import HEADER, Entry, Judgement, Reason, RowError, RowSchema
from rayhier.spec import InputError
from rayhier.spec.corpus import Beir, FieldType, OwnFiles, TextFiles
from rayhier.storage import csv_rows, listing
from rayhier.storage.listing import CorpusFiles, NamedFile


@dataclass(frozen=True)
class OwnReader:
    """Reader of queries and judgements. Its subclasses read documents."""

    listing: CorpusFiles
    schema: RowSchema

    @classmethod
    def of(cls, spec: Beir | OwnFiles | TextFiles) -> Self:
        return cls(
            listing.find(spec), RowSchema(spec.limits, spec.row_columns, spec.field_types, spec.row_query_columns)
        )

    def queries(self) -> Iterator[Stream[Entry]]:
        names = self.schema.of_queries
        section = "columns" if names == self.schema.columns else "query_columns"
        for file in self.listing.queries:
            match file.format:
                case "csv":
                    rows = csv_rows.rows(file.path)
                    yield Stream(file.name, checked(rows, lambda row: self.schema.query(whole(row))))
                case "parquet":
                    for name in ("id", "text"):
                        check_columns(f"corpus.{section}.{name}", file.path, [getattr(names, name)])
                    raw = parquet.read(file.path, [names.id, names.text])
                    yield Stream(file.name, checked(raw, self.schema.query))
                case _:
                    yield lines.whole(file, lines.json_objects(self.schema.query, names))

    def judgements(self, split: str) -> Iterator[Stream[Judgement]]:
        if split in self.listing.judgements:
            yield judgements(self.listing.judgements[split], f"corpus.judgements.{split}")


def judgements(file: NamedFile, key: str) -> Stream[Judgement]:
    """Stream the judgements of a file. InputError with the spec's `key` if a parquet file lacks a column of HEADER."""
    match file.format:
        case "csv":
            rows = csv_rows.rows(file.path)
            return Stream(file.name, checked(rows, lambda row: row_checks.judgement_row(whole(row))))
        case "parquet":
            check_columns(key, file.path, HEADER)
            return Stream(file.name, checked(parquet.read(file.path, HEADER), row_checks.judgement_row))
        case _:
            return lines.whole(file, lines.JUDGEMENTS)


class JsonReader(OwnReader):
    def ranges(self) -> list[Range]:
        return lines.ranges(self.listing.documents)

    def documents(self, piece: Range) -> Rows[Entry]:
        return lines.documents(piece, lines.json_objects(self.schema.document, self.schema.columns))


class ParquetReader(OwnReader):
    def ranges(self) -> list[Range]:
        ranges: list[Range] = []
        for file in self.listing.documents:
            self._check(file, self.schema.fields)
            cuts = parquet.pieces(parquet.sizes(file.path))
            ranges += [Range(len(ranges) + n, file.name, str(file.path), *cut) for n, cut in enumerate(cuts)]
        return ranges

    def documents(self, piece: Range) -> Rows[Entry]:
        names = self.schema.columns
        wanted = [names.id, names.title, names.text, *self.schema.fields]
        raw = parquet.read(Path(piece.path), wanted, range(piece.begin, piece.end))
        return checked(raw, self.schema.document)

    def _check(self, file: NamedFile, fields: Iterable[str]) -> None:
        wanted = ["id", "text", *(["title"] if self.schema.columns.title != "title" else [])]
        for name in wanted:
            check_columns(f"corpus.columns.{name}", file.path, [getattr(self.schema.columns, name)])
        for name in fields:
            check_columns(f"corpus.fields.{name}", file.path, [name])


class CsvReader(OwnReader):
    """Reader of CSV and TSV files. A row may have several lines, so one process reads a file from its start."""

    def documents(self) -> Stream[Entry]:
        rows = chain.from_iterable(csv_rows.rows(file.path) for file in self.listing.documents)
        return Stream("documents", checked(rows, lambda row: csv_document(row, self.schema)))


class TextReader(OwnReader):
    """Reader of a folder of text files."""

    def documents(self) -> Stream[Entry]:
        return Stream("documents", checked(self.listing.documents, self._document))

    def _document(self, file: NamedFile) -> Entry:
        if file.path.is_symlink():
            raise RowError(Reason.LINK)
        try:
            with file.path.open("rb") as opened:
                content = opened.read(row_checks.LONGEST_LINE + 1)
        except OSError as error:
            raise InputError(f"corpus.path: {file.path} cannot be read: {error.strerror}") from None
        title, text = titled(row_checks.decode(content), file.path)
        if not text:
            raise RowError(Reason.EMPTY_TEXT)
        return self.schema.document({"id": file.name, "title": title, "text": text})


def csv_document(row: dict[str, Any], schema: RowSchema) -> Entry:
    return schema.document(whole(row) | {name: typed(row.get(name), kind) for name, kind in schema.fields.items()})


def whole(row: dict[str, Any]) -> dict[str, Any]:
    """Check a row of a CSV file. RowError if a value or a column is missing, or a value is not UTF-8."""
    if None in row or None in row.values():
        raise RowError(Reason.WRONG_COLUMNS)
    if not all(map(row_checks.encodes, row.values())):
        raise RowError(Reason.INVALID_UTF8)
    return row


def typed(text: str | None, kind: FieldType) -> Any:
    """Convert the text of a field. A text that is no number, true or false stays text, which the schema rejects."""
    with suppress(ValueError):
        return text or None if kind == "string" else json.loads((text or "null").lower())
    return text


def titled(text: str, path: Path) -> tuple[str, str]:
    r"""Divide a file's text into title and rest. The title is a heading of Markdown, or else the file's name.

    >>> titled("# Pruning\n\nCut back.", Path("a.md"))
    ('Pruning', 'Cut back.')
    >>> titled("Cut back.", Path("apple_trees.txt"))
    ('apple trees', 'Cut back.')
    """
    first, _, rest = text.lstrip().partition("\n")
    if first.startswith("# ") and rest.strip():
        return first[2:].strip(), rest.strip()
    return path.stem.replace("_", " ").replace("-", " "), text.strip()
