"""Documents as rows of the corpus: one row per document, or one row per passage."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from rayhier.corpus.check import Entry
from rayhier.spec.corpus import CorpusSpec, FieldType, Passages
from rayhier.storage import schemas

WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class DocumentLayout:
    """Columns of a corpus, and how documents fill them."""

    passages: Passages | None
    fields: Mapping[str, FieldType]

    @classmethod
    def of(cls, spec: CorpusSpec) -> Self:
        """Make the layout that a spec declares."""
        return cls(spec.passages, spec.field_types)

    @property
    def schema(self) -> pa.Schema:
        """Columns of documents/*.parquet."""
        return schemas.documents(self.fields, self.passages is not None)

    @property
    def key(self) -> str:
        """Name of the column with the id of the document, not of the passage."""
        return "doc_id" if self.passages is None else schemas.PARENT.name

    def table(self, documents: Sequence[Entry]) -> pa.Table:
        """Make the table of the documents' rows, in the order given."""
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
    """Yield a row for each passage of a document: `ID#0001`, title, text, ID and the fields.

    Every passage is numbered, also the only passage of a short document: the text before the last `#` is always the
    parent's id, so that no two passages have the same id.
    """
    for number, text in enumerate(windows(document.text, passages), 1):
        yield [f"{document.key}#{number:04d}", document.title, text, document.key, *document.values]


def windows(text: str, passages: Passages) -> Iterator[str]:
    """Yield windows of `words` words, each `stride` words after the last, until a window reaches the text's end.

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
