"""`encoder:` the text encoder, and which part of it is trained."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Section

Similarity = Literal["cosine", "dot"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda"]
LearningPart = Literal["none", "head", "last_layer", "all"]


class EncoderSpec(Section):
    """A sentence-transformers folder and its settings."""

    model: Annotated[str, Field(min_length=1)]
    """A folder, `package:NAME` for the folder inside an installed package, or a hub id `ORG/NAME` (`@REVISION`)."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Expected SHA-256 of `model.safetensors` (if sharded: of the shards' digests in order of name); others fail."""
    train: LearningPart = "head"
    """Part that trains: `head` (residual, linear, on a frozen encoder), the transformer's `last_layer`, or `all`; with
    `none`, for train.type retreever, the encoder stays as it is."""
    max_length: Annotated[int, Field(ge=4, le=8192)] = 256
    """Most tokens of a text; the rest is cut off."""
    similarity: Similarity = "cosine"
    """How two vectors are compared: `cosine` makes them unit vectors, `dot` uses the encoder folder's own output."""
    device: Device = "auto"
    """Device to run the encoder on; `auto`: CUDA in a process that has such a device, else the CPU."""
    precision: Precision = "auto"
    """Number format the encoder computes in; `auto` measures whether bfloat16 or float32 is faster on the device."""
    batch_size: Annotated[int, Field(ge=1, le=65536)] = 64
    """Number of texts encoded at a time."""

    @model_validator(mode="after")
    def _float16_does_not_train(self) -> Self:
        if self.precision == "float16" and self.transformer_part is not None:
            raise ValueError(
                "float16 only with train none or head; training needs the range of auto, float32 or bfloat16"
            )
        return self

    @property
    def transformer_part(self) -> Literal["last_layer", "all"] | None:
        """Part of the transformer that training changes, so that texts are encoded again; None: it stays frozen."""
        return self.train if self.train in ("last_layer", "all") else None
