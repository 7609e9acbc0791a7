"""`index:` the leaf map on storage."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.base import Section

VectorFormat = Literal["float16", "float32"]
"""Number format in which vectors are stored."""
BYTES: dict[VectorFormat, int] = {"float16": 2, "float32": 4}
"""Bytes of a number in each format."""


class IndexSpec(Section):
    """How documents are stored in leaves, and leaves in files."""

    shards: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    """Number of files of the leaf map; each holds a contiguous range of leaves and is built and compacted in memory.
    `auto`: files of about 256 MiB on storage, four at least."""
    leaves_per_document: Literal[1, 2, "auto"] = "auto"
    """Most leaves that hold a document, each with a row of its own: two take more space and find more at equal work.
    `auto`: two with learned_ivf, which learns to find a document in either; one with ehi, hce and retreever."""
    spilled: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the documents stored in a second leaf: those nearest to a border between leaves; learned_ivf alone."""
    second_leaf: Literal["soar", "next_best"] = "soar"
    """Choice of a document's second leaf. `soar`: among the 32 best leaves, the one whose residual is least parallel
    to the first leaf's (Sun et al., 2023). `next_best`: the second most probable leaf."""
    max_leaf_factor: Annotated[float, Field(ge=1)] = 8.0
    """Most rows of a leaf, as a multiple of the mean: a fuller leaf's least probable rows move to their next best."""
    vectors: VectorFormat = "float16"
    """Number format in which trained document vectors are stored."""
