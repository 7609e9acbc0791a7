"""`index:` settings of the leaf map, the index on storage: documents in leaves, and leaves in files."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.base import Section

VectorFormat = Literal["float16", "float32"]
SPILLED = 0.5
"""Share of the documents that get a second leaf with router learned_ivf: those nearest to a border of leaves."""
MOST_SMALL = 200_000
"""Largest number of documents of an index for which dev queries choose the beam by default (docs/results/search.md)."""
LEAF_FACTOR = 8.0
"""Largest number of rows of a leaf, as a multiple of the mean. A fuller leaf's least probable rows go to another
leaf."""
BYTES: dict[VectorFormat, int] = {"float16": 2, "float32": 4}


class IndexSpec(Section):
    """Number of leaves that hold a document, and number of files that hold the leaves."""

    shards: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    """Number of the leaf map's files (shards). Each file holds a contiguous range of leaves, and must fit in memory to
    be built or compacted. `auto`: files of about 256 MiB on storage, at least four."""
    leaves_per_document: Literal[1, 2, "auto"] = "auto"
    """Largest number of leaves that hold a document, each with a row of the document. Two leaves take more space and
    find more answers at equal cost. SOAR chooses the second leaf. `auto`: two with router learned_ivf, one with ehi,
    hce and retreever. With learned_ivf, only the half of the documents nearest to a border has a second leaf."""
    vectors: VectorFormat = "float16"
    """Number format in which trained document vectors are stored."""
    words: bool = True
    """True: the words of all documents are counted, so that searches can use BM25 (`search.mode`)."""
