"""Turn a document into one row of the corpus, or into a row for each of its passages."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import pyarrow as pa

from rayhier.corpus.row_checks import Entry
from rayhier.spec import InputError
from rayhier.spec.corpus import CorpusSpec, FieldType, Passages, passages_of
from rayhier.storage import schemas

WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class DocumentLayout:
    """Columns of a corpus's documents, and the rule by which a document becomes one row or several passages."""

    passages: Passages | None
    fields: Mapping[str, FieldType]

    @classmethod
    def of(cls, spec: CorpusSpec) -> Self:
        return cls(passages_of(spec), spec.field_types)

    @property
    def schema(self) -> pa.Schema:
        return schemas.documents(self.fields, self.passages is not None)

    @property
    def key(self) -> str:
        return "doc_id" if self.passages is None else schemas.PARENT.name

    def check_cut(self, names: Sequence[str]) -> None:
        """Check that an index and this layout both have passages, or both have none. InputError if the two differ."""
        were_cut = schemas.PARENT.name in names
        if were_cut != (self.passages is not None):
            got, allowed = ("passages", "whole documents") if were_cut else ("whole documents", "passages")
            raise InputError(f"corpus.passages: got an index of {got}; allowed: {allowed}, as the spec says")

    def fitted(self, rows: pa.Table) -> pa.Table:
        """Return rows of another layout with this layout's columns. InputError if a field has another type."""
        self.check_cut(rows.column_names)
        columns = []
        for field in self.schema:
            there = rows.column_names
            column = rows[field.name] if field.name in there else pa.nulls(len(rows), field.type)
            if column.type != field.type:
                raise InputError(
                    f"corpus.fields.{field.name}: got {column.type}; allowed: {field.type}, as in the spec"
                )
            columns.append(column)
        return pa.table(columns, schema=self.schema)

    def table(self, documents: Sequence[Entry]) -> pa.Table:
        if self.passages is None:
            rows = [[document.key, document.title, document.text, *document.values] for document in documents]
        else:
            rows = [row for document in documents for row in cut(document, self.passages)]
        columns = list(zip(*rows, strict=True)) or [()] * len(self.schema)
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)],
            schema=self.schema,
        )


def cut(document: Entry, passages: Passages) -> Iterator[list[Any]]:
    """Yield a row for each passage, even a single one: id `ID#0001`, title, text, the document's ID, and fields."""
    for number, text in enumerate(windows(document.text, passages), 1):
        yield [f"{document.key}#{number:04d}", document.title, text, document.key, *document.values]


def windows(text: str, passages: Passages) -> Iterator[str]:
    """Yield passages of `words` words. A passage begins `stride` words after the previous passage.

    >>> list(windows("a b c d e f", Passages(words=3, stride=2)))
    ['a b c', 'c d e', 'e f']
    """
    spans = [word.span() for word in WORD.finditer(text)]
    if len(spans) <= passages.words:
        yield text
        return
    for first in passages.starts(len(spans)):
        end = min(first + passages.words, len(spans))
        yield text[spans[first][0] : spans[end - 1][1]]


def joined(passages: Sequence[str]) -> str:
    """Join a document's passages to its text. All neighbours share equally many words, and as many as possible.

    >>> joined(["a b c", "c d e", "e f"])
    'a b c d e f'
    """
    words = [passage.split() for passage in passages]
    shares = (n for n in range(len(words[0])) if all(b[:n] == a[len(a) - n :] for a, b in pairwise(words)))
    if not (shared := max(shares, default=0)):
        return " ".join(passages)
    return passages[0] + "".join(passage[[*WORD.finditer(passage)][shared - 1].end() :] for passage in passages[1:])
