"""`train.pseudo_queries`: what stands in for queries where documents teach."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.section import Section


class PseudoQueries(Section):
    """What stands in for queries where documents teach: each document is the answer of its own pseudo-queries."""

    source: Literal["spans", "simcse"] = "spans"
    """`spans`: title and random spans of a document. `simcse`: the document itself under another dropout mask
    (Gao et al., 2021), for a transformer that trains."""
    titles: bool = True
    """Whether a document's title is a pseudo-query of its text."""
    spans: Annotated[int, Field(ge=0, le=16)] = 2
    """Random spans of a document, drawn by its id; none from a document that is no longer than a span. A head learns
    from these, embedded once; a transformer that trains gets others in every epoch."""
    length: Annotated[int, Field(ge=4, le=8192)] = 64
    """Tokens of a span."""

    @model_validator(mode="after")
    def _something_is_drawn(self) -> Self:
        if self.source == "simcse":
            self.refuse("titles", "spans", "length", where="only where source is spans")
        elif not self.titles and not self.spans:
            raise ValueError("titles or spans: with neither no document has a pseudo-query")
        if not self.spans:
            self.refuse("length", where="only where spans is above 0")
        return self
