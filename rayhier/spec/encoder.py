"""`encoder:` the text encoder, and what of it is trained."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.section import Section


class EncoderSpec(Section):
    """A sentence-transformers folder and how to use it."""

    model: Annotated[str, Field(min_length=1)]
    """A folder, or `package:NAME` for the folder inside an installed package."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Expected SHA-256 of its `model.safetensors`; another file is refused."""
    train: Literal["head"] = "head"
    """What trains: a residual linear head on the frozen encoder."""
    max_length: Annotated[int, Field(ge=4, le=8192)] = 256
    """Tokens a text is cut at."""
    similarity: Literal["cosine"] = "cosine"
    """How two vectors compare."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the encoder; `auto` is bfloat16 where the hardware multiplies it."""
    batch_size: Annotated[int, Field(ge=1, le=65536)] = 64
    """Texts encoded at a time."""
