"""`train.pseudo_queries`: titles and spans of documents that stand for queries."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Section

MOST_DRAWN = 200_000
"""Number of documents from which pseudo-queries are drawn in a larger corpus: about so many, by a hash of the id."""


SPANS = 2
"""Number of random spans of a document, drawn by its id."""


class PseudoQueries(Section):
    """Texts that stand for queries: a document is the answer of the pseudo-queries that are drawn from it."""

    source: Literal["titles", "spans", "titles_and_spans", "simcse"] = "titles"
    """Kind of pseudo-query. `titles`: a document's title, or its first sentence if it has none. `spans`: random spans
    of its text. `simcse`: the document itself under another dropout mask (Gao et al., 2021), for a transformer that
    trains; titles and spans then stand only for dev queries where none are judged."""
    length: Annotated[int, Field(ge=4, le=8192)] = 64
    """Number of tokens of a span. A document that is no longer than a span has none. A head learns from the same two
    spans of a document, encoded once. A transformer that trains gets new spans in every epoch."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if not self.has_spans:
            self.refuse("length", where="only where source is not titles")
        return self

    @property
    def has_titles(self) -> bool:
        return self.source != "spans"

    @property
    def has_spans(self) -> bool:
        return self.source != "titles"
