"""`train.generated`: pairs of a query that a model has written and its document, in addition to judged pairs."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Section


class PairFile(Section):
    """Pairs of a file of JSON lines, `{"query": "…", "doc_id": "…"}`, in UTF-8."""

    type: Literal["file"]
    path: Annotated[str, Field(min_length=1)]
    """The file, relative to the current directory. In a corpus of passages `doc_id` names the document, no passage."""


class QueryModel(Section):
    """Queries that a model with encoder and decoder (T5, BART) writes for documents (Nogueira et al., doc2query)."""

    type: Literal["model"]
    model: Annotated[str, Field(min_length=1)]
    """A folder of the model and its tokenizer, `package:NAME` for the folder inside an installed package, or a hub id
    `ORG/NAME` (`@REVISION`). Weights in safetensors only, no code of the model's own."""
    prompt: str = ""
    """Text put before every document."""
    per_document: Annotated[int, Field(ge=1, le=100)] = 1
    """Queries of a document; fewer where the model repeats itself."""
    max_length: Annotated[int, Field(ge=4, le=8192)] = 512
    """Most tokens that the model reads, prompt and document together; the rest is cut off."""
    new_tokens: Annotated[int, Field(ge=1, le=1024)] = 64
    """Most tokens of a query."""
    most: Annotated[int, Field(ge=1)] = 100_000
    """Most documents (passages, where these are cut) to write queries for, drawn by a hash of the id."""
    top_k: Annotated[int, Field(ge=1, le=1000)] = 10
    """Likeliest tokens from which each next one is drawn; 1: always the likeliest."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed that, with a document's id, decides on drawing the document and on the tokens drawn for it."""
    batch_size: Annotated[int, Field(ge=1, le=65536)] = 32
    """Documents that the model reads at a time."""

    @model_validator(mode="after")
    def _not_the_likeliest_twice(self) -> Self:
        if self.top_k == 1 and self.per_document > 1:
            raise ValueError("per_document 1 where top_k is 1, which writes the same query every time")
        return self


GeneratedSpec = Annotated[PairFile | QueryModel, Field(discriminator="type")]
