"""`search:` defaults of every search over the index."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.section import Section


class NoRerank(Section):
    """Results stand as the leaf scan ranked them."""

    type: Literal["none"]


class SearchSpec(Section):
    """How many leaves are read and how many documents come back."""

    k: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Results a query."""
    beam: Annotated[int, Field(ge=1)] = 4
    """Leaves a query visits, β."""
    codec: Literal["flat"] = "flat"
    """How faiss holds the vectors of a leaf."""
    rerank: NoRerank = NoRerank(type="none")
    """What happens to the results after the scan."""
