"""`train.generated`: pairs of a document and a query that was written for it, to train on like judged pairs."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.base import Section


class PairFile(Section):
    """Pairs in a UTF-8 file of JSON lines, `{"query": "…", "doc_id": "…"}`."""

    type: Literal["file"]
    path: Annotated[str, Field(min_length=1)]
    """Path of the file, relative to the current directory. In a corpus of passages, `doc_id` names a document, not a
    passage."""
