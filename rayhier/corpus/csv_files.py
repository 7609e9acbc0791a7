"""Reader of a user's own CSV and TSV files.

A row may have several lines, so one process reads a file from its start.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rayhier.corpus import lines
from rayhier.corpus.reader import Stream, checked
from rayhier.corpus.row_checks import Entry, Judgement, Reason, RowError, RowSchema
from rayhier.spec.corpus import FieldType, OwnFiles
from rayhier.storage import csv_rows, listing
from rayhier.storage.listing import CorpusFiles


@dataclass(frozen=True)
class CsvReader:
    listing: CorpusFiles
    schema: RowSchema

    def documents(self) -> Stream[Entry]:
        rows = chain.from_iterable(csv_rows.rows(file.path) for file in self.listing.documents)
        return Stream("documents", checked(rows, self._document))

    def queries(self) -> Iterator[Stream[Entry]]:
        for file in self.listing.queries:
            yield Stream(file.name, checked(csv_rows.rows(file.path), self._query))

    def judgements(self, split: str) -> Iterator[Stream[Judgement]]:
        if split in self.listing.judgements:
            yield lines.whole(self.listing.judgements[split], lines.JUDGEMENTS)

    def _document(self, row: dict[str, Any]) -> Entry:
        typed = {name: _typed(row.get(name), kind) for name, kind in self.schema.fields.items()}
        return self.schema.document({**_whole(row), **typed})

    def _query(self, row: dict[str, Any]) -> Entry:
        return self.schema.query(_whole(row))


def reader(spec: OwnFiles) -> CsvReader:
    return CsvReader(listing.find(spec), RowSchema(spec.limits, spec.columns, spec.fields, spec.row_query_columns))


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    if None in row or None in row.values():
        raise RowError(Reason.WRONG_COLUMNS)
    return row


def _typed(text: str | None, kind: FieldType) -> Any:
    """Read the text of a field. A text that is not of the field's type stays text, which the schema rejects."""
    if not text or kind == "string":
        return text or None
    if kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        return text
