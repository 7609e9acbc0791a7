"""`train.pseudo_queries`: texts of documents that are used as queries."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Section

MOST_DRAWN = 200_000
"""Approximate number of documents that have pseudo-queries in a larger corpus. Hashes of ids choose these."""
SPANS = 2
"""Number of random spans that are drawn from a document, by its id."""


class PseudoQueries(Section):
    """Texts that are used as queries. A document is the answer of its pseudo-queries."""

    source: Literal["titles", "spans", "titles_and_spans", "simcse"] = "titles"
    """Kind of pseudo-query. `titles`: a document's title, or its first sentence if the document has no title. `spans`:
    random spans of its text. `simcse`: the document itself, encoded with dropout (Gao et al., 2021), for a transformer
    that trains. With simcse, titles and spans are the dev queries if no dev query is judged."""
    length: Annotated[int, Field(ge=4, le=8192)] = 64
    """Number of tokens of a span. A document that is no longer than a span has no spans. A head learns from the same
    two spans of a document, encoded once. A transformer that trains gets new spans in every epoch."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if not self.has_spans:
            self.refuse("length", where="only if source is not titles")
        return self

    @property
    def has_titles(self) -> bool:
        return self.source != "spans"

    @property
    def has_spans(self) -> bool:
        return self.source != "titles"
