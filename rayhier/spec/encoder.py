"""`encoder:` the text encoder, and what of it is trained."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.section import Section

Similarity = Literal["cosine", "dot"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda"]
Trained = Literal["head", "last_layer", "all"]


class EncoderSpec(Section):
    """A sentence-transformers folder and how to use it."""

    model: Annotated[str, Field(min_length=1)]
    """A folder, `package:NAME` for the folder inside an installed package, or a hub id `ORG/NAME` (`@REVISION`)."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Expected SHA-256 of its `model.safetensors` (of the shards' digests in order of name); another is refused."""
    train: Trained = "head"
    """What trains: a residual linear head on the frozen encoder, its last transformer layer, or all of it."""
    max_length: Annotated[int, Field(ge=4, le=8192)] = 256
    """Tokens a text is cut at."""
    similarity: Similarity = "cosine"
    """How two vectors compare: `cosine` makes them unit vectors, `dot` leaves them as the folder's modules do."""
    device: Device = "auto"
    """Where it runs; `auto` is CUDA in a process that sees such a device."""
    precision: Precision = "auto"
    """Arithmetic of the encoder; `auto` measures which of bfloat16 and float32 is faster there."""
    batch_size: Annotated[int, Field(ge=1, le=65536)] = 64
    """Texts encoded at a time."""

    @model_validator(mode="after")
    def _float16_does_not_train(self) -> Self:
        if self.precision == "float16" and self.train != "head":
            raise ValueError("precision float16 with train head; training needs the range of auto, float32 or bfloat16")
        return self
