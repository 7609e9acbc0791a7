"""Reader of a user's own CSV and TSV files.

A row may have several lines, so one process reads a file from its start.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rayhier.corpus import lines
from rayhier.corpus.reader import Stream, checked
from rayhier.corpus.row_checks import Entry, Judgement, Reason, RowError, RowSchema, encodes
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
        fields = {name: typed(row.get(name), kind) for name, kind in self.schema.fields.items()}
        return self.schema.document(whole(row) | fields)

    def _query(self, row: dict[str, Any]) -> Entry:
        return self.schema.query(whole(row))


def reader(spec: OwnFiles) -> CsvReader:
    return CsvReader(listing.find(spec), RowSchema(spec.limits, spec.columns, spec.fields, spec.row_query_columns))


def whole(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as it is. RowError if a value or a column is missing, or a value is not UTF-8."""
    if None in row or None in row.values():
        raise RowError(Reason.WRONG_COLUMNS)
    if not all(map(encodes, row.values())):
        raise RowError(Reason.INVALID_UTF8)
    return row


def typed(text: str | None, kind: FieldType) -> Any:
    """Read the text of a field. A text that is no number, true or false stays text, which the schema rejects."""
    with suppress(ValueError):
        return text or None if kind == "string" else json.loads((text or "null").lower())
    return text
