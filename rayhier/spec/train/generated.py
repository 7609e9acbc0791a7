"""`train.generated`: pairs of a document and a query that a model wrote for it, to train on like judged pairs."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.base import Section

MOST_READ, MOST_WRITTEN = 512, 64
"""Most tokens that a model reads, prompt and document together, and most tokens of a query that it writes."""


class PairFile(Section):
    """Pairs in a UTF-8 file of JSON lines, `{"query": "…", "doc_id": "…"}`."""

    type: Literal["file"]
    path: Annotated[str, Field(min_length=1)]
    """Path of the file, relative to the current directory. In a corpus of passages, `doc_id` names a document, not a
    passage."""


class QueryModel(Section):
    """Queries that a model with encoder and decoder (T5, BART) writes for documents (Nogueira et al., doc2query)."""

    type: Literal["model"]
    model: Annotated[str, Field(min_length=1)]
    """A folder of the model and its tokenizer, `package:NAME` for the folder inside an installed package, or a Hugging
    Face hub id `ORG/NAME` (`@REVISION`). Only weights in safetensors are read, and no code of the model is run."""
    prompt: str = ""
    """Text that is put before each document that the model reads."""
    per_document: Annotated[int, Field(ge=1, le=100)] = 1
    """Number of queries for each document; fewer where the model repeats itself."""
    most: Annotated[int, Field(ge=1)] = 100_000
    """Most documents (passages, where documents are cut) to write queries for, drawn by a hash of the id."""


GeneratedSpec = Annotated[PairFile | QueryModel, Field(discriminator="type")]
