"""`encoder:` the text encoder, and the part of it that is trained."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Section

Similarity = Literal["cosine", "dot"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
LearningPart = Literal["none", "head", "last_layer", "all"]

ENOUGH = 300
"""Number of queries that tell what a training gains. With fewer dev queries, folds of train queries are used."""
FOLDS = 5
"""Largest number of folds of the train queries. As many folds are used as have ENOUGH queries together."""


class EncoderSpec(Section):
    """An encoder in a folder of sentence-transformers' layout, and its settings."""

    model: Annotated[str, Field(min_length=1)]
    """A folder, `package:NAME` (a folder in an installed package), or a Hugging Face hub id `ORG/NAME@REVISION`."""
    documents: Annotated[str, Field(min_length=1)] | None = None
    """A larger encoder for documents, which is trained. `model` then encodes only the queries of searches, and learns
    the vectors that the trained encoder makes of queries. `null`: `model` encodes documents too."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Expected SHA-256 of `model.safetensors`. Several weight files have the SHA-256 of their digests in order of name.
    A model with another digest is refused. `null`: any."""
    train: LearningPart = "head"
    """Part of the encoder that is trained: `head` (a residual linear layer on the frozen encoder), the transformer's
    `last_layer`, or `all`. `none`, for train.type contrast and retreever: the encoder is not trained."""
    adopt: Literal["auto", "always"] = "auto"
    """Encoder that the index is built with. `always`: the trained encoder. `auto`: the trained encoder if it finds more
    for queries that training did not read, else the base encoder. The comparison searches by vectors, and by BM25 too
    if the index counts words. Only with train.type contrast, hce or retreever, and not with router.type hce."""
    max_length: Annotated[int, Field(ge=4, le=8192)] = 256
    """Largest number of tokens of a text. Further tokens are cut off. The limit in the model's folder is ignored."""
    query_prefix: str | None = None
    """Text that is put before each query, such as `query: ` for e5. `null`: the folder's prompt for queries, if any."""
    document_prefix: str | None = None
    """Text that is put before each document, such as `passage: ` for e5. `null`: the folder's document prompt."""
    similarity: Similarity = "cosine"
    """Score of two vectors. `cosine`: dot product of unit vectors. `dot`: dot product of the encoder's vectors."""
    precision: Precision = "auto"
    """Number format of the encoder's computation. `auto`: bfloat16 or float32, whichever a measurement finds faster on
    the device. With `auto`, a CPU encodes queries of searches in int8 if dev queries lose at most 0.001 of nDCG@10.
    Else a CPU encodes queries in float32."""

    @model_validator(mode="after")
    def _float16_does_not_train(self) -> Self:
        if self.precision == "float16" and self.transformer_part is not None:
            raise ValueError("float16 only with train none or head. Training a transformer needs float32 or bfloat16")
        return self

    @property
    def names(self) -> str:
        return self.model if self.documents is None else f"{self.documents}, and {self.model} for queries"

    @property
    def transformer_part(self) -> Literal["last_layer", "all"] | None:
        """Part of the transformer that training changes. None if the transformer stays frozen."""
        return self.train if self.train in ("last_layer", "all") else None
