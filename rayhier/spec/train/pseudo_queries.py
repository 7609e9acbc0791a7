"""`train.pseudo_queries`: texts that stand for queries where documents teach."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Section


class PseudoQueries(Section):
    """Texts that stand for queries where documents teach: a document answers the pseudo-queries drawn from it."""

    source: Literal["titles_and_spans", "titles", "spans", "simcse"] = "titles_and_spans"
    """`titles`: a document's title. `spans`: random spans of its text. `simcse`: the document itself under another
    dropout mask (Gao et al., 2021), for a transformer that trains; titles and spans then only stand for dev queries
    where none are judged."""
    spans: Annotated[int, Field(ge=1, le=16)] = 2
    """Random spans of a document, drawn by its id; none from a document that is no longer than a span. A head learns
    from the same spans, embedded once; a transformer that trains gets new spans in every epoch."""
    length: Annotated[int, Field(ge=4, le=8192)] = 64
    """Tokens of a span."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if not self.has_spans:
            self.refuse("spans", "length", where="only where source is not titles")
        return self

    @property
    def has_titles(self) -> bool:
        """Return True if titles are drawn."""
        return self.source != "spans"

    @property
    def has_spans(self) -> bool:
        """Return True if spans are drawn."""
        return self.source != "titles"
