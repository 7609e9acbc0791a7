"""`index:` the leaf map on storage."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.section import Section


class IndexSpec(Section):
    """How documents lie in leaves and leaves in files."""

    shards: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    """Files of the leaf map; each holds a contiguous range of leaves and is made, and compacted, in memory. `auto`:
    about 256 MiB each as they lie on storage, four at least."""
    leaves_per_document: Literal[1, 2, "auto"] = "auto"
    """Leaves that hold a document. Each is a row of its own: two cost twice the space and find more at equal work.
    `auto`: two with learned_ivf, which is taught to reach a document by either; one with ehi."""
    spilled: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the documents that lie in a second leaf, those nearest to a border; learned_ivf alone."""
    second_leaf: Literal["soar", "next_best"] = "soar"
    """`soar`: among the 32 best the one whose residual is least parallel to the first's (Sun et al., 2023).
    `next_best`: the second most probable."""
    max_leaf_factor: Annotated[float, Field(ge=1)] = 8.0
    """Most rows of a leaf, in times the mean: what is least probable in a fuller one goes to its next-best leaf."""
    vectors: Literal["float16", "float32"] = "float16"
    """Stored precision of the trained document vectors."""
