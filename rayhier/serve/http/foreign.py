"""Bodies of requests and responses in the forms of other services: OpenAI's embeddings, Jina's and Cohere's rerank."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator

from rayhier.serve.http.bodies import Body, Count, Query, RequestBody
from rayhier.spec.query import check_text


class EmbeddingsRequest(RequestBody):
    """Texts to encode, in OpenAI's form."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "quickstart", "input": ["sort a list"]}]})
    input: str | list[str]
    """One text or several, each of at most `limits.max_query` characters. The encoder cuts texts that are too long."""
    model: str | None = None
    """Name of the index, or fingerprint of its model, as `GET /v1/models` lists them. Default: the served model."""
    encoding_format: Literal["float", "base64"] = "float"
    """Format of vectors: numbers, or base64 of float32, little-endian."""
    dimensions: Count | None = None
    """Length of a vector. Only the length of the model's vectors is allowed."""
    user: str | None = None
    """Ignored. Part of OpenAI's form."""

    @field_validator("input", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        """Return the texts unchanged. ValueError for anything else, such as token ids of another model."""
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) for text in texts):
            kind = "an empty list" if not texts else "token ids" if isinstance(texts[0], int | list) else "no text"
            raise ValueError(f"got {kind}; allowed: a text, or a list of texts")
        for text in texts:
            check_text(text)
        return value


class Embedding(Body):
    """The vector of a text."""

    object: Literal["embedding"] = "embedding"
    index: int
    """Position of the text in the request, from 0."""
    embedding: list[float] | str


class Usage(Body):
    """Number of tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(Body):
    """Vectors, in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class ModelBody(Body):
    """A model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "rayhier"


class ModelsResponse(Body):
    """Models that are served."""

    object: Literal["list"] = "list"
    data: list[ModelBody]


class TextBody(RequestBody):
    """A document, as an object."""

    text: Query


TEXT = {"type": "string"}
OBJECT = {"type": "object", "properties": {"text": TEXT}, "required": ["text"], "additionalProperties": False}
Document = Annotated[
    TextBody,
    BeforeValidator(lambda given: {"text": given} if isinstance(given, str) else given),
    WithJsonSchema({"anyOf": [TEXT, OBJECT]}),
]
"""A document as a text, or as an object. With a union, messages would name pydantic's functions."""


class RerankRequest(RequestBody):
    """A query and documents to score, in Jina's and Cohere's form."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": "quickstart", "query": "sort a list", "documents": ["list.sort", "zipfile"]}]
        }
    )
    model: str | None = None
    """Name of the index, or fingerprint of its model, as `GET /v1/models` lists them. Default: the served model."""
    query: Query
    documents: Annotated[list[Document], Field(min_length=1, fail_fast=True)]
    top_n: Count | None = None
    """Number of results. Default: all."""
    return_documents: bool = False
    """True: results have the documents' texts."""


class RerankResult(Body):
    """A document's score."""

    index: int
    """Position of the document in the request, from 0."""
    relevance_score: float
    """Score of the cross-encoder, through the logistic function: 0 to 1."""
    document: TextBody | None = None


class RerankResponse(Body):
    """Scores of the documents, the best first."""

    id: str
    model: str
    results: list[RerankResult]
