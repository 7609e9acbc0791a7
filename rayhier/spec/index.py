"""`index:` how the leaf map, the index on storage, keeps documents in leaves and leaves in files."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.base import Section

VectorFormat = Literal["float16", "float32"]
"""Number format of the vectors on storage."""
SPILLED = 0.5
"""Share of the documents that get a second leaf with router learned_ivf: those nearest to a border between leaves."""
MOST_SMALL = 200_000
"""Most documents of an index of which `auto` chooses few leaves, and a beam by dev queries (docs/results/search.md)."""
LEAF_FACTOR = 8.0
"""Most rows of a leaf, as a multiple of the mean rows of a leaf. The least probable rows of a fuller leaf move to their
next best leaf."""
BYTES: dict[VectorFormat, int] = {"float16": 2, "float32": 4}
"""Bytes of one number in each format."""


class IndexSpec(Section):
    """Number of leaves that hold a document, and number of files that hold the leaves."""

    shards: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    """Number of the leaf map's files (shards). Each holds a contiguous range of leaves, and fits in memory when it is
    built or compacted. `auto`: files of about 256 MiB on storage, at least four."""
    leaves_per_document: Literal[1, 2, "auto"] = "auto"
    """Most leaves that hold a document, each with a row of the document. Two leaves take more space and find more
    answers at equal cost. The second leaf is chosen by SOAR; with router learned_ivf only the half of the documents
    that are nearest to a border have one. `auto`: two with router learned_ivf, one with ehi, hce and retreever."""
    vectors: VectorFormat = "float16"
    """Number format in which trained document vectors are stored."""
    words: bool = True
    """True: the words of all documents are counted, so that searches can use BM25 (`search.mode`)."""
